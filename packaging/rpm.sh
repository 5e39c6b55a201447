#!/bin/bash
# Makes an rpm package of Farlink with the files of the Debian package.
#   packaging/rpm.sh [TARGET]     without a target: for this machine, linked with its C library
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
. packaging/version.sh
umask 022
need_package rpmbuild rpm 'making the package'
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
architecture=${target%%-*}
[ "$architecture" != armv7 ] || architecture=armv7hl
packaging/build.sh "$target"
output=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

packaging/stage.sh "$output/$target/router/farlink" "$work/staged" >"$work/config"
doc=$work/staged/usr/share/doc/farlink
install -m 644 CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$doc"
# By these names zsh looks there.
if [ -d "$work/staged/usr/share/zsh/vendor-completions" ]; then
    mv "$work/staged/usr/share/zsh/vendor-completions" "$work/staged/usr/share/zsh/site-functions"
fi
{
    echo '%defattr(-,root,root)'
    # Those of the shells may be others' as well, and go with the last of them.
    for directory in etc/farlink usr/share/doc/farlink usr/share/doc/farlink/html usr/share/bash-completion{,/completions} \
        usr/share/fish{,/vendor_completions.d} usr/share/zsh{,/site-functions}; do
        [ ! -d "$work/staged/$directory" ] || echo "%dir /$directory"
    done
    # A configuration that somebody has changed stays.
    sed 's/^/%config(noreplace) /' "$work/config"
    (cd "$work/staged" && find . -type f | sed 's/^\.//') | grep -Fxvf "$work/config" |
        sed 's|^/usr/share/doc/.*|%doc &|; s|^/usr/share/man/.*|%doc &|' | LC_ALL=C sort
} >"$work/list"
rpmbuild -bb --quiet --target "$architecture-linux" --define "_topdir $work" --define "_rpmdir $work/made" --define "version_ $version" \
    --define "staged $work/staged" --define "list $work/list" packaging/farlink.spec >/dev/null
mkdir -p "$output/packages"
for package in "$work"/made/*/*.rpm; do
    install -m 644 "$package" "$output/packages"
    package=$output/packages/${package##*/}
    printf '%s  %s bytes  %s\n' "$(sha256sum "$package" | cut -d' ' -f1)" "$(stat -c %s "$package")" "$package"
done
