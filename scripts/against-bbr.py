#!/usr/bin/env python3
"""Lists the cells in which a variant is slower than the hosts alone on BBR, by more than 2 % and 5 ms.

    scripts/against-bbr.py                                   runs all scenarios in the simulator, then lists
    scripts/against-bbr.py RESULT.json [MORE.json ...]       lists cells of these results of `farlink sim run` or `lab run`

Cells are compared that have the same parameters but for gateways and controllers; of repeated runs the means count. Where a scenario
measures what people wait for (mixed-day: `short_median_s`, `page_p95_s`, ...), each of these counts, and not when the last job was done.
Exit status: 0 only if none is slower and each variant was compared.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

NOT_COMPARED = {"gateways", "host_cc", "iw", "cc", "rate_known", "rtt_known"}
# With the rate known (with and without the round trip), not known, and with one gateway: these are compared in any case, others that results have beside them.
VARIANTS = ["farlink", "farlink-no-rtt", "farlink-auto", "farlink-one-sided", "farlink-one-sided-no-rtt"]


def run_all(directory, subset):
    """Runs every scenario that can be simulated; the paths of the results."""
    root = pathlib.Path(__file__).resolve().parent.parent
    target = os.environ.get("CARGO_TARGET_DIR", root / "target")
    farlink = os.environ.get("FARLINK")
    if not farlink:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--profile", "lab", "-p", "farlink"], cwd=root, check=True)
        farlink = str(pathlib.Path(target) / "lab" / "farlink")
    directory.mkdir(parents=True, exist_ok=True)
    names = subprocess.run([farlink, "sim", "list"], check=True, capture_output=True, text=True).stdout.split()
    paths = []
    for name in names:
        print(f"running {name}", file=sys.stderr)
        path = directory / f"{name}.json"
        path.unlink(missing_ok=True)
        threads = str(os.cpu_count() or 2)
        command = [farlink, "sim", "run", name, "--subset", subset, "--allow-skips", "--threads", threads, "--json", str(path)]
        # Whether its expectations hold is for others to say; what matters here is that there are results.
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not path.exists():
            sys.exit(f"{name} gave no results: {' '.join(command)}")
        paths.append(path)
    return paths


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


def others(found):
    """Further variants of Farlink that stand beside the hosts alone on BBR, without the thesis's initial windows."""
    beside = {name for variants in found.values() if "direct-bbr" in variants for name in variants}
    return sorted(n for n in beside if n.startswith("farlink") and "-iw" not in n and n not in VARIANTS)


def compare(found, variant, show_all):
    """Prints the slower cells of a variant; how many were compared and how many are slower."""
    constant = {k for k in {k for _, key in found for k, _ in key} if len({dict(key).get(k) for _, key in found}) == 1}
    compared, slower, best, worst = 0, 0, None, None
    for (scenario, key), variants in found.items():
        if variant not in variants or "direct-bbr" not in variants:
            continue
        ours, theirs = (statistics.fmean(variants[v]) for v in (variant, "direct-bbr"))
        compared += 1
        ratio = ours / theirs if theirs < float("inf") else 0.0
        best, worst = min(best or ratio, ratio), max(worst or ratio, ratio)
        is_slower = ours > theirs * 1.02 + 0.005
        slower += is_slower
        if is_slower or show_all:
            params = " ".join(f"{k}={v}" for k, v in key if k not in constant)
            print(f"{'slower' if is_slower else '      '} {ratio:6.3f}  {ours:9.3f} s  {theirs:9.3f} s  {variant}: {scenario} {params}")
    span = f", {best:.3f} to {worst:.3f} of their time" if compared else ""
    print(f"{compared} cells of {variant} compared with the hosts alone on BBR: {slower} slower{span}")
    return compared, slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", help="what --json of `farlink sim run` and `farlink lab run` wrote; none: all scenarios are run")
    parser.add_argument("--variant", action="append", help="what is compared (default: all of Farlink); NAME-iwN: with that initial window")
    parser.add_argument("--all", action="store_true", help="print all cells, not only the slower ones")
    parser.add_argument("--subset", default="check", help="which cells are run (default: check)")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("target/against-bbr"), help="where results go that are run here")
    args = parser.parse_args()
    found = cells_of(args.results or run_all(args.directory, args.subset))
    variants = args.variant or VARIANTS + others(found)
    outcomes = [compare(found, variant, args.all) for variant in variants]
    return 0 if all(compared and not slower for compared, slower in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
