# Sourced by the other scripts: installs what is missing, and says what. Needs root for packages of the distribution; without it,
# says what to install.

# need_package COMMAND PACKAGE WHAT-FOR: a command that comes in a package of the distribution.
need_package() {
    command -v "$1" >/dev/null && return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing: $1 ($3); install the package $2 of your distribution" >&2
        return 1
    fi
    echo "installing $2 with apt-get: $3"
    if [ -z "${apt_is_fresh:-}" ]; then
        apt-get update -qq || true
        apt_is_fresh=1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

# need_commands: what every build and test needs.
need_commands() {
    if ! command -v cargo >/dev/null; then
        echo "missing: cargo; see https://rustup.rs (the version stands in rust-toolchain.toml)" >&2
        return 1
    fi
    need_package cc gcc "linking" || return 1
    cargo fmt --version >/dev/null 2>&1 || need_component rustfmt
    cargo clippy --version >/dev/null 2>&1 || need_component clippy
    need_package nft nftables "diverting packets" || true
    need_package ip iproute2 "looking at routes" || true
}

need_component() {
    echo "installing $1 with rustup"
    rustup component add "$1"
}

# need_target TRIPLE: another target of the compiler.
need_target() {
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]; then
        return 0
    fi
    echo "installing the target $1 with rustup"
    rustup target add "$1"
}

# need_library FILE PACKAGE WHAT-FOR: a file that is no command, in a package of the distribution.
need_library() {
    [ -e "$1" ] || need_package "$1" "$2" "$3"
}
