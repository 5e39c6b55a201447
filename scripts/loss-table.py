#!/usr/bin/env python3
"""The tables of docs/loss.md: how much losses cost on a link of 8 Mbit/s and 500 ms, two gateways, rate known, in the simulator.

    scripts/loss-table.py [table] [legacy] [runs] [fast]      all of them unless some are named

`runs`: 20 runs of 10 MB at a loss of 5 %, each with what its handshake took. `fast`: 10 MB at 100 Mbit/s. FARLINK: the program (default: target/release/farlink).
"""

import json
import os
import statistics
import subprocess
import sys

FARLINK = os.environ.get("FARLINK", "target/release/farlink")
# Hosts, size, losses, runs.
ROWS = [
    (10_000_000, "loss=0.01", 40),
    (10_000_000, "loss=0.05", 40),
    (10_000_000, "ber=1e-6", 40),
    (1_000_000, "ber=1e-6", 100),
    (1_000_000, "loss=0.05", 100),
    (100_000, "loss=0.01", 500),
]
# A handshake that lost nothing takes one round trip of 0.5 s.
ROUND_TRIP_S = 0.5
# Promised of each run.
BOUND = 1.05
LOSSES = ["0", "0.001", "0.01", "0.03", "0.05"]


def run(size, settings, count, scenario="geo-download", more=""):
    """The runs of one cell."""
    only = f"variant=farlink,size_bytes={size}{more}"
    command = [FARLINK, "sim", "run", scenario, "--only", only, "--set", *settings, "--repeat", str(count), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    cells = [c for c in json.loads(done.stdout)["cells"] if c["params"].get("ip", 4) == 4]
    if len(cells) != count or not all(c["intact"] for c in cells):
        sys.exit(f"{len(cells)} runs of {count}, or some not intact: {' '.join(command)}")
    return cells


def p90(values):
    return sorted(values)[-(-9 * len(values) // 10) - 1]


def table():
    print("| size | losses | runs | median, times the limit | 90th percentile | largest |\n|---|---|---|---|---|---|")
    for size, losses, count in ROWS:
        cells = run(size, [losses], count)
        ratios = [c["ratio_to_limit"] for c in cells]
        late = p90([c["seconds"] - c["limit_seconds"] for c in cells])
        tail = f" (limit + {late:.3f} s)" if size == 100_000 else ""
        middle = statistics.median(ratios)
        print(f"| {size:,} | `{losses}` | {count} | {middle:.3f} | {p90(ratios):.3f}{tail} | {max(ratios):.3f} |")


def legacy():
    print("| size | clean | `ber=1e-6` |\n|---|---|---|")
    for size in (100_000, 1_000_000, 10_000_000):
        middles = [
            statistics.median(c["ratio_to_limit"] for c in run(size, ["hosts=legacy", f"ber={ber}"], 20)) for ber in ("0", "1e-6")
        ]
        print(f"| {size:,} | {middles[0]:.3f} | {middles[1]:.3f} |")


def runs():
    print("| run | times the limit | connect() | without the wait of the handshake | above 1.05 because |\n|---|---|---|---|---|")
    for cell in run(10_000_000, ["loss=0.05"], 20):
        connect, limit = cell["metrics"]["connect_seconds"], cell["limit_seconds"]
        rest = (cell["seconds"] - max(0.0, connect - ROUND_TRIP_S)) / limit
        is_late, waited = cell["ratio_to_limit"] > BOUND, connect > ROUND_TRIP_S * 1.5
        cause = ("the SYN or its answer was lost" if waited and rest <= BOUND else "data") if is_late else ""
        print(f"| {cell['repeat'] + 1} | {cell['ratio_to_limit']:.3f} | {connect:.1f} s | {rest:.3f} | {cause} |")


def fast():
    print("| losses | seconds | times the limit |\n|---|---|---|")
    for loss in LOSSES:
        (cell,) = run(10_000_000, ["rate=100M"], 1, "loss-sweep", f",loss_burst=1,loss={loss}")
        print(f"| {float(loss):.1%} | {cell['seconds']:.2f} | {cell['ratio_to_limit']:.2f} |")


def main():
    parts = {"table": table, "legacy": legacy, "runs": runs, "fast": fast}
    wanted = sys.argv[1:] or list(parts)
    if any(name not in parts for name in wanted):
        sys.exit(__doc__)
    for name in wanted:
        print(f"\n{name}\n")
        parts[name]()


if __name__ == "__main__":
    main()
