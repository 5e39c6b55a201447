#!/bin/bash
# What is run before a release, beside `make test`: every scenario in the simulator under all its expectations, the list of cells that are
# slower than the hosts alone on BBR, a sample of every scenario in the laboratory, and the processors of small routers (`make targets`). Root and an otherwise idle machine: the laboratory's
# figures are judged, too. Results stay in target/check.
#
# The simulator's results do not depend on the clock, so its runs take what processor time the laboratory leaves (SCHED_IDLE).
#
#   scripts/check.sh [STAGE ...]      only these stages: targets sim bbr lab
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands || exit 1
target=${CARGO_TARGET_DIR:-target}
out=$target/check
wanted=${*:-targets sim bbr lab}
failed=()
times=()
started=$SECONDS
mkdir -p "$out"
cargo build --quiet --locked --profile lab --package farlink || exit 1
export FARLINK=$target/lab/farlink

# stage NAME COMMAND...: runs it, notes its time, and goes on after a failure.
stage() {
    local name=$1 from=$SECONDS outcome=ok
    shift
    case " $wanted " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    "$@" || { outcome=FAILED; failed+=("$name"); }
    times+=("$(printf '%-10s %5d s  %s' "$name" $((SECONDS - from)) "$outcome")")
}

# Cells whose program is missing here are named and counted as failures: a release is checked beside them.
lab() {
    local outcome=0 scenario divert
    local what="a program of the laboratory's" package
    for package in haproxy nginx curl iperf3 iptables openssl rsync vsftpd; do need_package "$package" "$package" "$what" || true; done
    need_package sshd openssh-server "$what" || true
    need_package ssh openssh-client "$what" || true
    need_package ping iputils-ping "$what" || true
    need_package conntrack conntrack "$what" || true
    need_package ufw ufw "$what" || true
    for scenario in $("$FARLINK" lab list --names); do
        echo "-- $scenario"
        # Captures of many packets, and delays of single ones, are left alone.
        case "$scenario" in behaviour | emulator-accuracy) tell_simulator STOP ;; *) tell_simulator CONT ;; esac
        # Firewalls and translation are met by a bump.
        divert=()
        [ "$scenario" != router ] || divert=(--divert bump)
        "$FARLINK" lab run "$scenario" "${divert[@]}" --subset sample --json "$out/lab-$scenario.json" >"$out/lab-$scenario.txt" 2>"$out/lab-$scenario.log"
        local ended=$?
        grep -E '^(  FAIL|  [0-9]+ hold|NOT INTACT|           expected because|skipped)' "$out/lab-$scenario.txt"
        [ "$ended" -eq 0 ] || { echo "   status $ended"; tail -3 "$out/lab-$scenario.log"; outcome=1; }
    done
    tell_simulator CONT
    return "$outcome"
}

# The simulator's runs began before the laboratory's: they are waited for, and told of in one piece.
simulator=
sim() {
    local outcome
    wait "$simulator"
    outcome=$?
    simulator=
    cat "$out/sim.txt"
    return "$outcome"
}

# tell_simulator SIGNAL: to all of its processes.
tell_simulator() { [ -z "$simulator" ] || kill "-$1" -- "-$simulator" 2>/dev/null; }

# Cut off, it leaves no run behind.
trap 'tell_simulator KILL' EXIT

stage targets scripts/check-targets.sh
case " $wanted " in *" sim "*)
    setsid chrt --idle 0 scripts/expectations.sh check "$out/sim" >"$out/sim.txt" 2>&1 &
    simulator=$!
    ;;
esac
stage lab lab
stage sim sim
stage bbr scripts/against-bbr.py "$out"/sim/*.json

echo "== times"
printf '%s\n' "${times[@]}"
echo "total      $((SECONDS - started)) s"
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}"
[ ${#failed[@]} -eq 0 ]
