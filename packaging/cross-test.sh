#!/bin/bash
# Runs unit tests as static programs: those for another processor with qemu-user.
#   packaging/cross-test.sh [TARGET ...]
# CRATES: which ones (wire, xcp, cc and egress by default; the others need kernels, or minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands
host=$(uname -m)
packages=()
for crate in ${CRATES:-wire xcp cc egress}; do packages+=(--package "farlink-$crate"); done
[ $# -gt 0 ] || set -- x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf
for target; do
    need_target "$target"
    name=${target//-/_}
    export "CARGO_TARGET_${name^^}_LINKER=rust-lld"
    case ${target%%-*} in
    "$host") ;;
    armv7) runner=qemu-arm-static ;;
    *) runner=qemu-${target%%-*}-static ;;
    esac
    if [ -n "${runner:-}" ]; then
        need_package "$runner" qemu-user-static 'programs for another processor'
        export "CARGO_TARGET_${name^^}_RUNNER=$runner"
    fi
    echo "== $target ${runner:-}"
    cargo test --quiet --locked --tests "${packages[@]}" --target "$target"
    unset runner
done
