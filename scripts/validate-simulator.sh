#!/bin/sh
# Thirty cells in the laboratory and in the simulator, compared by `farlink sim compare`: the table of docs/simulator.md.
#
#   scripts/validate-simulator.sh [DIRECTORY]      results stay there; root, and ten minutes of an otherwise idle machine
#
# REPEAT: runs of each cell in the laboratory (3). SIM_REPEAT: in the simulator (1; 25 of the cells with losses).
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/validation}
farlink=${FARLINK:-target/release/farlink}
[ -x "$farlink" ] || cargo build --release -p farlink
mkdir -p "$out"

number=0
files=
# run REPEATS-OF-THE-SIMULATOR SCENARIO CONDITION...
run() {
    repeat=$1 scenario=$2
    shift 2
    number=$((number + 1))
    name=$(printf '%02d-%s' "$number" "$scenario")
    only=
    for condition; do only="$only --only $condition"; done
    # shellcheck disable=SC2086
    "$farlink" sim run "$scenario" $only --repeat "$repeat" --json "$out/$name-sim.json" >/dev/null ||
        echo "$name: not every run in the simulator was intact and as expected" >&2
    # shellcheck disable=SC2086
    "$farlink" lab run "$scenario" $only --repeat "${REPEAT:-3}" --json "$out/$name-lab.json" >/dev/null ||
        echo "$name: not every run in the laboratory was intact and as expected" >&2
    files="$files $out/$name-lab.json $out/$name-sim.json"
}

once=${SIM_REPEAT:-1}
geo=rate_bps=8000000,rtt_ms=500,ber=0
run "$once" thesis-single $geo,size_bytes=102400,size_bytes=1024000,variant=direct,hosts=legacy
run "$once" thesis-single $geo,size_bytes=1024000,size_bytes=10240000,variant=direct,host_cc=cubic
run "$once" thesis-single $geo,size_bytes=1024000,variant=direct,host_cc=bbr
run "$once" thesis-single $geo,size_bytes=102400,size_bytes=1024000,size_bytes=10240000,variant=farlink,hosts=modern
run "$once" thesis-single $geo,size_bytes=1024000,variant=farlink,hosts=legacy
run "$once" thesis-single $geo,size_bytes=1024000,variant=farlink-auto,iw=0
run "$once" thesis-single rate_bps=1536000,rtt_ms=500,ber=0,size_bytes=102400,variant=farlink-auto,iw=4
run "$once" thesis-single rate_bps=1536000,rtt_ms=500,ber=0,size_bytes=1024000,variant=farlink,hosts=modern
run "$once" thesis-single rate_bps=8000000,rtt_ms=0,ber=0,size_bytes=1024000,host_cc=cubic,variant=direct,variant=farlink
run "$once" geo-download variant=farlink-one-sided
run "$once" thesis-parallel size_bytes=102400,flows=10,host_cc=cubic,variant=direct,variant=farlink
run "$once" thesis-parallel size_bytes=102400,flows=40,variant=farlink
run "$once" thesis-parallel size_bytes=10240,flows=20,variant=farlink
run "$once" thesis-two-sessions size_bytes=1024000,variant=farlink
run "$once" thesis-web rate_bps=8000000,rtt_ms=500,page=2,transport=persistent,transport=six,host_cc=cubic,variant=direct,variant=farlink
run "$once" thesis-web rate_bps=8000000,rtt_ms=500,page=3,transport=multiplexed,variant=farlink
run "${SIM_REPEAT:-25}" loss-sweep loss_burst=1,loss=0.01,size_bytes=1000000,size_bytes=10000000,variant=farlink
run "${SIM_REPEAT:-25}" loss-sweep loss_burst=1,loss=0.05,size_bytes=1000000,variant=farlink

# shellcheck disable=SC2086
"$farlink" sim compare $files
