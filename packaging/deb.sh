#!/bin/bash
# Makes a Debian package of Farlink, the same to the last byte wherever it is made from the same commit.
#   packaging/deb.sh [TARGET]     without a target: for this machine, linked with its C library
# A target of the compiler with musl gives a package without libraries, for other processors too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
. packaging/version.sh
umask 022
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
case $target in
x86_64-*) architecture=amd64 ;;
aarch64-*) architecture=arm64 ;;
armv7-*) architecture=armhf ;;
*) echo "packaging/deb.sh knows no architecture of Debian for $target" >&2; exit 2 ;;
esac
packaging/build.sh "$target"
output=$(realpath "${CARGO_TARGET_DIR:-target}")
program=$output/$target/router/farlink
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/farlink

mkdir -p "$root/DEBIAN" "$work/debian"
packaging/stage.sh "$program" "$root" >"$root/DEBIAN/conffiles"

# What Debian wants to be there, and by which names.
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
printf 'farlink (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version" \
    'The Farlink authors <farlink@example.invalid>' "$(date -uR -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
{ cat packaging/debian/copyright; sed '1,/^$/d; s/^$/./; s/^/ /' LICENSE-MIT; } >"$doc/copyright"

install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/farlink"

libraries=
case $target in
*-gnu*)
    need_package dpkg-shlibdeps dpkg-dev 'the libraries that a package depends on'
    printf 'Source: farlink\n\nPackage: farlink\nArchitecture: any\n' >"$work/debian/control"
    libraries="$(cd "$work" && dpkg-shlibdeps -O "$program" 2>/dev/null | sed -n 's/^shlibs:Depends=//p'), "
    ;;
*)
    printf '%s\n' '# One program for every release, and for processors without a cross compiler.' \
        'farlink: statically-linked-binary [usr/bin/farlink]' >>"$root/usr/share/lintian/overrides/farlink"
    ;;
esac
sed "s|@VERSION@|$version-1|; s|@ARCHITECTURE@|$architecture|; s|@LIBRARIES@|$libraries|
    s|@SIZE@|$(find "$root/usr" "$root/etc" -printf '%y %s\n' | awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')|" packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find usr etc -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
for script in postinst prerm postrm; do install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"; done
chmod 644 "$root"/DEBIAN/{control,conffiles,md5sums}

package=$output/packages/farlink_${version}-1_$architecture.deb
mkdir -p "$output/packages"
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
printf '%s  %s bytes  %s\n' "$(sha256sum "$package" | cut -d' ' -f1)" "$(stat -c %s "$package")" "$package"
