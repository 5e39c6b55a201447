#!/bin/sh
# Proves that the sans-I/O crates call no operating system: the seven of them, linked into one WebAssembly module behind an
# exported function that drives them, import nothing. Then shows that the proof can fail: the same module with one call to the
# outside must be caught.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
triple=wasm32-unknown-unknown
module=$target/$triple/release/farlink_wasm_proof.wasm

mkdir -p "$target"
rustc --edition 2024 -O -o "$target/wasm-imports" scripts/wasm-proof/imports.rs
# The versions that the workspace has resolved.
cp Cargo.lock scripts/wasm-proof/Cargo.lock

build() {
    # Dead code stays in, so that what nobody calls is proven too.
    CARGO_TARGET_DIR=$target RUSTFLAGS="-A warnings -C link-dead-code" cargo build --quiet --release --target $triple \
        --manifest-path scripts/wasm-proof/Cargo.toml "$@"
}

build
imports=$("$target/wasm-imports" "$module")
if [ -n "$imports" ]; then
    echo "wasm-proof: the sans-I/O crates reach outside:" >&2
    echo "$imports" >&2
    exit 1
fi
bytes=$(wc -c <"$module")

build --features reach-outside
caught=$("$target/wasm-imports" "$module")
if [ "$caught" != "outside.clock" ]; then
    echo "wasm-proof: a call to the outside was not noticed (found: '$caught'): the proof proves nothing" >&2
    exit 1
fi
echo "wasm-proof: wire, cc, xcp, engine, egress, channel and gateway import nothing ($bytes bytes of WebAssembly)"
