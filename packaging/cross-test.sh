#!/bin/bash
# Runs unit tests for other processors, with qemu-user where it takes that: static programs without a C library, and for s390x, which has
# the bytes of a number the other way round, programs with one.
#   packaging/cross-test.sh [TARGET ...]
# CRATES: which ones (wire, xcp, cc and egress by default, engine, too, for s390x; the others need kernels, or minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands
host=$(uname -m)
[ $# -gt 0 ] || set -- x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf s390x-unknown-linux-gnu
for target; do
    need_target "$target"
    name=${target//-/_}
    processor=${target%%-*}
    crates=${CRATES:-wire xcp cc egress}
    case $target in
    *-musl*) linker=rust-lld ;;
    *)
        linker=$processor-linux-gnu-gcc
        need_package "$linker" "gcc-$processor-linux-gnu" 'linking for another processor'
        need_library "/usr/$processor-linux-gnu/lib/crt1.o" "libc6-dev-$processor-cross" 'linking for another processor'
        crates=${CRATES:-wire engine}
        ;;
    esac
    packages=()
    for crate in $crates; do packages+=(--package "farlink-$crate"); done
    export "CARGO_TARGET_${name^^}_LINKER=$linker"
    case $processor in
    "$host") ;;
    armv7) runner=qemu-arm-static ;;
    *) runner=qemu-$processor-static ;;
    esac
    if [ -n "${runner:-}" ]; then
        need_package "$runner" qemu-user-static 'programs for another processor'
        [ "$linker" = rust-lld ] || runner="$runner -L /usr/$processor-linux-gnu"
        export "CARGO_TARGET_${name^^}_RUNNER=$runner"
    fi
    echo "== $target ${runner:-}"
    cargo test --quiet --locked --tests "${packages[@]}" --target "$target"
    # The programs of a bump are made here. To load one takes a kernel.
    if [ "$processor" = s390x ]; then
        cargo test --quiet --locked --lib --package farlink-linux --target "$target" -- bump::assembler bpf::tests::registers
    fi
    unset runner
done
