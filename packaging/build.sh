#!/bin/bash
# Builds Farlink as routers get it: without the laboratory, stripped, the same to the last byte wherever and whenever it is built.
#   packaging/build.sh [TARGET ...]     without a target: for this machine, linked with its C library
# Targets are triples of the compiler: x86_64-unknown-linux-musl, aarch64-unknown-linux-musl, armv7-unknown-linux-musleabihf give static
# binaries. Prints the path, size and SHA-256 of each.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
. packaging/version.sh
need_commands

# flags: no path of this machine goes into the program. Libraries lie in a directory that is named after their registry. The standard library
# has the name that it has where its sources (rust-src) are not installed.
flags() {
    local home=${CARGO_HOME:-$HOME/.cargo} dir
    printf -- '--remap-path-prefix\x1f%s=.' "$PWD"
    printf -- '\x1f--remap-path-prefix\x1f%s=/rustc/%s' "$(rustc --print sysroot)/lib/rustlib/src/rust" \
        "$(rustc -vV | sed -n 's/^commit-hash: //p')"
    for dir in "$home"/registry/src/*/; do
        [ -d "$dir" ] && printf -- '\x1f--remap-path-prefix\x1f%s=libraries' "${dir%/}"
    done
    # The linker of the compiler links for all processors, so no cross compiler is needed: nothing here is written in C.
    case $1 in *-musl*) printf -- '\x1f-Clinker=rust-lld' ;; esac
}

host=$(rustc -vV | sed -n 's/^host: //p')
cargo fetch --quiet --locked
for target in "${@:-$host}"; do
    need_target "$target"
    CARGO_ENCODED_RUSTFLAGS=$(flags "$target") CARGO_INCREMENTAL=0 \
        cargo build --quiet --locked --profile router --package farlink --no-default-features --target "$target"
    built=${CARGO_TARGET_DIR:-target}/$target/router/farlink
    printf '%s  %s bytes  %s\n' "$(sha256sum "$built" | cut -d' ' -f1)" "$(stat -c %s "$built")" "$built"
done
