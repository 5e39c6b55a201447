#!/bin/bash
# Shows that a redesign changes no byte: digests of many simulated runs, recorded before it and compared after it.
#
#   scripts/digests.sh record FILE      runs everything and writes one line for each part: digest, name
#   scripts/digests.sh compare FILE     runs everything again, and names the parts that have changed
#
# A part is all seeds of one mode of `farlink sim faults` under one policy of flow control, or all cells of one scenario. The digest of
# seeds covers each packet on each wire, with its time. The digest of a scenario is the SHA-256 of its JSON without the program's version.
#
# SEEDS (1000): seeds of each mode and policy. SUBSET (check): cells of each scenario (docs/expectations.md). FARLINK: the program.
set -uo pipefail
cd "$(dirname "$0")/.."
verb=${1:-}
file=${2:-}
case "$verb" in record | compare) ;; *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
[ -n "$file" ] || { echo "which file? scripts/digests.sh $verb FILE" >&2; exit 2; }
[ "$verb" = record ] || [ -r "$file" ] || { echo "$file cannot be read: record it first, with the program of before" >&2; exit 2; }
seeds=${SEEDS:-1000}
subset=${SUBSET:-check}
target=${CARGO_TARGET_DIR:-target}
farlink=${FARLINK:-$target/release/farlink}
if [ -z "${FARLINK:-}" ]; then
    cargo build --quiet --locked --release --package farlink || exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without the version, which every commit changes.
json_digest() { sed 's/"version": *"[^"]*"/"version": ""/' "$1" | sha256sum | cut -d' ' -f1; }

digests() {
    local mode policy scenario
    for mode in clean route-flap mixed hostile; do
        for policy in by-seed fixed send-window adaptive automatic; do
            local wish=()
            [ "$policy" = by-seed ] || wish=(--policy "$policy")
            # Hostile seeds play their connections twice, and have half an hour of quiet at their end.
            local last=$seeds
            [ "$mode" = hostile ] && last=$(((seeds + 9) / 10))
            "$farlink" sim faults --mode "$mode" "${wish[@]}" --seeds "0..$last" --threads "$(nproc)" --failures 1000000 >"$work/seeds" 2>&1
            printf '%s  seeds %s %s 0..%s\n' "$(sed -n 's/.*digest \([0-9a-f]*\)$/\1/p' "$work/seeds" | tail -1)" "$mode" "$policy" "$last"
        done
    done
    for scenario in $("$farlink" sim list); do
        rm -f "$work/json"
        "$farlink" sim run "$scenario" --subset "$subset" --allow-skips --threads "$(nproc)" --json "$work/json" >/dev/null 2>"$work/log"
        if [ -s "$work/json" ]; then
            printf '%s  scenario %s %s\n' "$(json_digest "$work/json")" "$scenario" "$subset"
        else
            printf '%s  scenario %s %s\n' "no-result" "$scenario" "$subset"
        fi
    done
}

if [ "$verb" = record ]; then
    digests | tee "$file"
    exit
fi
digests >"$work/now"
if diff "$file" "$work/now" >"$work/changed"; then
    echo "$(wc -l <"$file") digests, all as in $file"
else
    echo "changed ('<' is $file, '>' is now):"
    grep '^[<>]' "$work/changed" | sort -k3
    exit 1
fi
