#!/bin/bash
# Prints the licence texts of all that is linked into the program. Most of them ask to be handed on with it.
set -euo pipefail
cd "$(dirname "$0")/.."
echo 'The program contains these libraries of others, under these licences, and the standard library of Rust (MIT OR Apache-2.0).'
cargo tree --quiet --locked --package farlink --no-default-features --edges normal,no-proc-macro --target x86_64-unknown-linux-gnu --prefix none \
    --format '{p}|{l}|{r}' | sed 's/ (\*)//' | LC_ALL=C sort -u |
    while IFS='|' read -r package licence repository; do
        case $package in *' ('*) continue ;; esac
        printf '\n==== %s\nLicence: %s\nSource: %s\n' "$package" "$licence" "$repository"
        for directory in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"${package/ v/-}"; do
            [ -d "$directory" ] || continue
            find "$directory" -maxdepth 1 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) |
                LC_ALL=C sort | while read -r text; do
                printf '\n-- %s\n\n' "${text##*/}"
                cat "$text"
            done
            break
        done
    done
