#!/bin/bash
# Type-checks what goes onto routers (without the laboratory) for processors that this machine does not have: 32 and 64 bits, both
# orders of bytes, with and without 64-bit atomics. Nothing is linked, so no other compiler is needed.
#
#   scripts/check-targets.sh [TARGET ...]      only these
#
# rustup brings the core of most. That of MIPS is built from its source, with the nightly toolchain.
set -uo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
prebuilt=(armv7-unknown-linux-gnueabihf aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu s390x-unknown-linux-gnu)
built=(mipsel-unknown-linux-gnu mips-unknown-linux-gnu)
failed=()

check() { # TARGET CARGO_ARGUMENT...
    local triple=$1
    shift
    echo "== $triple"
    cargo "$@" --quiet --locked --target "$triple" --target-dir "$target/targets" -p farlink --no-default-features || failed+=("$triple")
}

wanted=("$@")
[ $# -gt 0 ] || wanted=("${prebuilt[@]}" "${built[@]}")
for triple in "${wanted[@]}"; do
    case " ${prebuilt[*]} " in
    *" $triple "*) rustup --quiet target add "$triple" && check "$triple" check || failed+=("$triple") ;;
    *)
        rustup --quiet component add rust-src --toolchain nightly || { failed+=("$triple"); continue; }
        check "$triple" +nightly check -Zbuild-std=std
        ;;
    esac
done
[ ${#failed[@]} -eq 0 ] || { echo "does not compile, or rustup could not bring what it takes: ${failed[*]}" >&2; exit 1; }
