#!/bin/bash
# The laboratory in short: real kernels and the daemon as it is deployed, in network namespaces. As root, or, where the machine
# allows it, in a user namespace. What the scenarios expect is judged but for times: those are for `make check` on an idle machine.
# FARLINK: the program.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
target=${CARGO_TARGET_DIR:-target}
farlink=${FARLINK:-$target/debug/farlink}

if [ ! -w /dev/net/tun ]; then
    echo "left out: /dev/net/tun cannot be opened here"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] && ! unshare --user --net true 2>/dev/null; then
    echo "left out: not root, and this machine gives ordinary users no user namespaces"
    exit 0
fi
need_package nft nftables "diverting packets" || exit 1
[ -n "${FARLINK:-}" ] || cargo build --quiet --locked --package farlink || exit 1

failed=0
# lab SCENARIO [ARGUMENT ...]
lab() {
    echo "-- farlink lab run $*"
    "$farlink" lab run "$@" --json "$target/lab-$1.json" || failed=1
}
lab geo-download --subset smoke
lab middleboxes --subset smoke
# A firewall and a bump: BPF is refused in a user namespace.
if [ "$(id -u)" -eq 0 ] && need_package conntrack conntrack "what connection tracking has counted"; then
    lab router --subset smoke --divert bump
fi
exit $failed
