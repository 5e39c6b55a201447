#!/bin/bash
# Speed and size of the datapath: builds the release and runs `farlink bench` as root. Arguments go to it (--help shows them).
# Results also go to out/bench.json.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands
case " $* " in
    *" --only hostile "* | *" --only day "* | *" --only hostile,day "*) ;; # in one process, without a network
    *)
        need_package haproxy haproxy "the baseline to compare with" || true
        if [ "$(id -u)" -ne 0 ]; then
            echo "the benchmark makes network namespaces: run it as root" >&2
            exit 1
        fi
        ;;
esac
cargo build --release --locked --package farlink
mkdir -p out
"${CARGO_TARGET_DIR:-target}/release/farlink" bench --json out/bench.json "$@"
