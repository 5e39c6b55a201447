#!/usr/bin/env python3
"""Lists the cells of results in which a variant is slower than the hosts alone on BBR, by more than 2 % and 5 ms.

    farlink sim run loss-sweep --json loss.json
    scripts/against-bbr.py loss.json [MORE.json ...] [--variant farlink] [--all]

Cells are compared that have the same parameters but for gateways and controllers; of repeated runs the medians count. Where a scenario
measures what people wait for (mixed-day: `short_median_s`, `page_p95_s`, ...), each of these counts, and not when the last job was done.
Exit status: 0 only if none is slower and something was compared.
"""

import argparse
import json
import statistics
import sys

NOT_COMPARED = {"gateways", "host_cc", "iw", "cc", "rate_known"}


def cells_of(paths):
    """Seconds by (scenario, parameters), for each variant."""
    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for cell in report["cells"]:
            params = cell["params"]
            key = tuple(sorted((k, v) for k, v in params.items() if k not in NOT_COMPARED))
            variant = cell["variant"]
            if variant == "direct":
                variant += "-" + str(params.get("host_cc"))
            elif params.get("iw"):
                variant += f"-iw{params['iw']}"
            elif params.get("host_cc", "cubic") != "cubic" and params.get("hosts") != "legacy":
                continue
            # A run that broke off is slower than any other.
            is_whole = cell.get("intact") and cell.get("seconds")
            waits = {k: v for k, v in cell["metrics"].items() if k.endswith(("_median_s", "_p95_s"))}
            for measure, seconds in (waits or {"seconds": cell.get("seconds")}).items():
                by_measure = (report["scenario"], key + (() if measure == "seconds" else (("measure", measure),)))
                found.setdefault(by_measure, {}).setdefault(variant, []).append(seconds if is_whole else float("inf"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="what --json of `farlink sim run` and `farlink lab run` wrote")
    parser.add_argument("--variant", default="farlink", help="what is compared (default: farlink); NAME-iwN: with that initial window")
    parser.add_argument("--all", action="store_true", help="print all cells, not only the slower ones")
    args = parser.parse_args()
    found = cells_of(args.results)
    constant = {k for k in {k for _, key in found for k, _ in key} if len({dict(key).get(k) for _, key in found}) == 1}
    compared, slower, best, worst = 0, 0, None, None
    for (scenario, key), variants in found.items():
        if args.variant not in variants or "direct-bbr" not in variants:
            continue
        ours, theirs = (statistics.median(variants[v]) for v in (args.variant, "direct-bbr"))
        compared += 1
        ratio = ours / theirs if theirs < float("inf") else 0.0
        best, worst = min(best or ratio, ratio), max(worst or ratio, ratio)
        is_slower = ours > theirs * 1.02 + 0.005
        slower += is_slower
        if is_slower or args.all:
            params = " ".join(f"{k}={v}" for k, v in key if k not in constant)
            print(f"{'slower' if is_slower else '      '} {ratio:6.3f}  {ours:9.3f} s  {theirs:9.3f} s  {scenario} {params}")
    span = f", {best:.3f} to {worst:.3f} of their time" if compared else ""
    print(f"{compared} cells of {args.variant} compared with the hosts alone on BBR: {slower} slower{span}")
    return 0 if compared and not slower else 1


if __name__ == "__main__":
    sys.exit(main())
