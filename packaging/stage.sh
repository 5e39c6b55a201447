#!/bin/bash
# Puts the files of a package below a directory. Every kind of package is made from this one.
#   packaging/stage.sh PROGRAM ROOT
# Prints the configuration files, one a line. Man pages and completions come from the program itself; one for another processor runs with
# qemu-user.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1 root=$2
. scripts/need.sh
. packaging/version.sh

run() {
    case $(od -An -tx1 -j18 -N1 "$program" | tr -d ' ') in
    3e) elf=x86_64 ;;
    b7) elf=aarch64 ;;
    28) elf=arm ;;
    *) elf=unknown ;;
    esac
    case $(uname -m) in
    "$elf"*) "$program" "$@" ;;
    *) need_package "qemu-$elf-static" qemu-user-static 'the pages of a program for another processor' && "qemu-$elf-static" "$program" "$@" ;;
    esac
}

put() {
    install -D -m "$1" "$2" "$root/$3"
}

put 755 "$program" usr/bin/farlink
while read -r mode source destination config maybe; do
    case $mode in '#'* | '') continue ;; esac
    [ "$config" = maybe ] && config='' maybe=maybe
    [ -e "$source" ] || [ "$maybe" != maybe ] || continue
    put "$mode" "$source" "$destination"
    if [ "$config" = config ]; then echo "/$destination"; fi
done <packaging/files

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
run manual "$pages" >/dev/null
for page in "$pages"/man/*; do
    gzip -9n "$page"
    put 644 "$page.gz" "usr/share/man/man${page##*.}/${page##*/}.gz"
done
for page in "$pages"/html/*; do put 644 "$page" "usr/share/doc/farlink/html/${page##*/}"; done
put 644 "$pages/completions/bash/farlink" usr/share/bash-completion/completions/farlink
put 644 "$pages/completions/zsh/_farlink" usr/share/zsh/vendor-completions/_farlink
put 644 "$pages/completions/fish/farlink.fish" usr/share/fish/vendor_completions.d/farlink.fish
packaging/licences.sh >"$pages/licences"
gzip -9nc "$pages/licences" >"$pages/licences.gz"
put 644 "$pages/licences.gz" usr/share/doc/farlink/licences-of-libraries.gz

# Nothing is younger than the commit.
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
