#!/bin/bash
# Builds programs and packages of the commit that is checked out twice, and compares them byte by byte: here, and from a clone in another
# directory, with another time zone, language and umask.
#   packaging/reproduce.sh [deb|rpm|TARGET ...]     TARGET is a triple of the compiler; without any: the packages and three static programs
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- deb rpm x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf
git diff --quiet HEAD || { echo 'there are changes that are not committed' >&2; exit 2; }
clone=$work/somewhere/else
git clone --quiet . "$clone"

# sums DIRECTORY WHAT: the SHA-256, size and name of what is made there. What else is printed (a target that is installed) is left out.
sums() {
    case $2 in
    deb | rpm) (cd "$1" && "packaging/$2.sh") ;;
    *) (cd "$1" && packaging/build.sh "$2") ;;
    esac | sed -n 's|\(bytes  \).*/target/|\1|; s|\(bytes  \)target/|\1|; /bytes  /p'
}

outcome=0
for what; do
    first=$(sums . "$what")
    second=$(umask 027 && unset CARGO_TARGET_DIR && TZ=Asia/Kathmandu LC_ALL=C sums "$clone" "$what")
    if [ "$first" = "$second" ]; then
        printf '%s\n' "$first" | sed 's/^/equal  /'
    else
        printf 'DIFFERENT\n%s\n%s\n' "$first" "$second"
        outcome=1
    fi
done
exit $outcome
