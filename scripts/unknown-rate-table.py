#!/usr/bin/env python3
"""The table of docs/unknown-rate.md: what it costs that nobody has told the gateways the rate of their link, in the simulator.

    scripts/unknown-rate-table.py

FARLINK: the program (default: target/release/farlink).
"""

import json
import os
import subprocess
import sys

FARLINK = os.environ.get("FARLINK", "target/release/farlink")
RATES_BPS = [384_000, 1_536_000, 8_000_000, 20_000_000, 100_000_000]
SIZES_BYTES = {100_000: "100 KB", 1_000_000: "1 MB", 10_000_000: "10 MB"}
# Column: variant, transfers before it.
COLUMNS = [("farlink", 0), ("farlink-auto", 0), ("farlink-auto", 1)]


def cells():
    """One run of each cell, by rate, size, variant and transfers before it."""
    found = {}
    for variant in dict.fromkeys(name for name, _ in COLUMNS):
        command = [FARLINK, "sim", "run", "unknown-rate", "--only", f"variant={variant}", "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for cell in json.loads(done.stdout)["cells"]:
            params = cell["params"]
            if params.get("ip", 4) != 4:
                continue
            if not cell["intact"]:
                sys.exit(f"not intact: {variant} {params}")
            found[params["rate_bps"], params["size_bytes"], variant, params["earlier"]] = cell
    return found


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    found = cells()
    print("| rate | size | limit | rate said | first connection | second connection |\n|---|---|---|---|---|---|")
    for rate in RATES_BPS:
        for size, name in SIZES_BYTES.items():
            of = [found[rate, size, variant, earlier] for variant, earlier in COLUMNS]
            took = " | ".join(f"{c['seconds']:.2f} s, {c['ratio_to_limit']:.2f} x" for c in of)
            print(f"| {rate / 1e6:g} Mbit/s | {name} | {of[0]['limit_seconds']:.2f} s | {took} |")


if __name__ == "__main__":
    main()
