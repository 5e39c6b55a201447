#!/usr/bin/env python3
"""The tables of docs/never-slower.md: cells of the scenario `never-slower` against the better of the hosts alone, before and after.

    scripts/never-slower-table.py BEFORE.json AFTER.json      tables in Markdown, `before > after` in each cell
    scripts/never-slower-table.py AFTER.json [--worst N]      one run alone; the N worst cells as a list
    scripts/never-slower-table.py --before PROGRAM OUT.json [SEEDS [PATH,...]]
                                                              runs what a program can that knows neither bundles nor `told_rates`

A ratio is that of the means of all runs, without 5 ms and the time of a packet. Where the sender's own congestion control crosses the link
(the header of the scenario says where), it is that to the hosts alone on CUBIC. `*`: beyond what is expected, noise allowed for; `!`: not intact.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib

SCENARIO = os.path.join(os.path.dirname(__file__), "..", "scenarios", "never-slower.toml")
PLACES = {"server": "One gateway, at the server's end", "client": "One gateway, at the client's end", "two": "Two gateways"}
PACKET_BITS = 12_000
ALLOWANCE_S = 0.005
TOLERANCE, NEVER_ABOVE, DECLARED = 0.02, 1.10, 1.05
# Hosts alone on a link as it was declared.
TWINS = {"server-minus-50": "hosts-down-50", "client-minus-50": "hosts-up-50", "two-minus-50": "hosts-50"}
TWINS |= {f"{place}-swapped": "hosts-swapped" for place in PLACES}


def is_far(variant, traffic):
    """Whether the sender's own congestion control crosses the link."""
    at_receiver = "server-" if traffic.startswith("upload") else "client-"
    return traffic == "forwarded" or variant.startswith(at_receiver)


def is_alone(variant):
    return variant == "direct" or variant.startswith("hosts-")


def mean(values):
    return sum(values) / len(values)


def noise_of(ours, theirs):
    """Two standard errors of the difference of means."""
    def of(values):
        return sum((v - mean(values)) ** 2 for v in values) / (len(values) - 1) / len(values) if len(values) > 1 else 0.0

    return 2 * math.sqrt(of(ours) + of(theirs))


def compared(path):
    """Cells by path, traffic and variant: the ratio, whether it is missed, whether all runs are intact, seconds of both."""
    runs = {}
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    for cell in report["cells"]:
        params = cell["params"]
        if params.get("ip", 4) == 4:
            host = params["host_cc"] if is_alone(cell["variant"]) else ""
            runs.setdefault((params["path"], params["traffic"], cell["variant"], host), []).append(cell)
    found = {}
    for (path_, traffic, variant, _), cells in runs.items():
        if is_alone(variant):
            continue
        hosts = ["cubic"] if is_far(variant, traffic) else ["cubic", "bbr"]
        others = [runs.get((path_, traffic, "direct", host), []) for host in hosts]
        times = [[c["seconds"] or math.inf for c in of] for of in others if of]
        if not times:
            continue
        theirs, ours = min(times, key=mean), [c["seconds"] or math.inf for c in cells]
        params = cells[0]["params"]
        rate = params["rate_up_bps"] if traffic.startswith("upload") else params["rate_bps"]
        allowed = ALLOWANCE_S + PACKET_BITS / rate
        ratio = max(mean(ours) - allowed, 0.0) / mean(theirs)
        most = min(1 + TOLERANCE + noise_of(ours, theirs) / mean(theirs), NEVER_ABOVE)
        declared = [c["metrics"].get("ratio_to_declared", math.inf) for c in cells]
        twins = [runs.get((path_, traffic, TWINS.get(variant), host), []) for host in hosts]
        twin_s = min((mean([c["seconds"] or math.inf for c in of]) for of in twins if of), default=0.0)
        is_missed = not ratio <= most and not mean(declared) <= DECLARED and mean(ours) > twin_s * DECLARED + allowed
        found[path_, traffic, variant] = (ratio, is_missed, all(c["intact"] for c in cells), mean(ours), mean(theirs), len(cells))
    return found


def text_of(cell):
    if cell is None:
        return ""
    ratio, is_missed, is_intact = cell[:3]
    return ("never" if math.isinf(ratio) else f"{ratio:.2f}") + ("*" if is_missed else "") + ("" if is_intact else "!")


def tables(before, after):
    rows = list(dict.fromkeys((path, traffic) for path, traffic, _ in after))
    for place, title in PLACES.items():
        typed = list(dict.fromkeys(v.split("-", 1)[1] for _, _, v in after if v.startswith(place + "-")))
        print(f"\n### {title}\n\n| path | traffic | hosts alone | {' | '.join(typed)} |\n|---|---|---|{'---|' * len(typed)}")
        for path, traffic in rows:
            of = [(path, traffic, f"{place}-{t}") for t in typed]
            alone = next((after[key][4] for key in of if key in after), None)
            both = [(text_of(before.get(key)), text_of(after.get(key))) for key in of]
            cells = [f"{b} > {a}" if b else a for b, a in both]
            if alone is not None:
                print(f"| {path} | {traffic} | {alone:.2f} s | {' | '.join(cells)} |")
    for name, cells in (("before", before), ("after", after)):
        if cells:
            missed = sum(1 for c in cells.values() if c[1])
            print(f"\n{name}: {len(cells)} cells, {missed} slower than is expected, {sum(1 for c in cells.values() if not c[2])} not intact")
    both = [key for key in after if key in before]
    if both:
        slower = sorted((key for key in both if after[key][3] > 1.02 * before[key][3] + ALLOWANCE_S), key=lambda k: -after[k][3] / before[k][3])
        print(f"of {len(both)} cells that both have, {len(slower)} take more than 1.02 times as long as before")


def worst(cells, count):
    for key in sorted((k for k in cells if cells[k][1]), key=lambda k: -cells[k][0])[:count]:
        ratio, _, is_intact, ours, theirs, n = cells[key]
        print(f"{ratio:6.2f}  {ours:8.2f} s, hosts {theirs:8.2f} s  {' / '.join(key)}, {n} runs{'' if is_intact else ', not intact'}")


def bps(text):
    factor = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)
    return int(float(text.rstrip("kMG")) * factor)


def as_toml(table):
    """Keys of a bundle, those of a direction with dots."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"{key}.{inner} = {json.dumps(own)}" for inner, own in value.items()]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)


def told_flat(variant, path):
    """What a variant tells in the words of a program that tells all gateways the same; None: it cannot."""
    told = variant.get("told_rates", "gw1=100%").split()[0].split("=")[1]
    own = {k: v for k, v in variant.items() if k not in ("told_rates", "rate_in_known", "name")}
    down = bps(path["rate"])
    up = bps(path.get("rate_up", path["rate"]))
    if variant.get("link_as_told"):
        return None
    if not variant["gateways"] or (told == "100%" and up == down):
        return own
    own["rate_known"] = False
    if told == "none":
        return own
    if variant["gateways"] == 2 and up != down:
        return None
    out, back = (down, up) if variant.get("gateway_at") != "client" else (up, down)
    rate = back if told == "swapped" else out * int(told.rstrip("%")) // 100
    return own | {"link_config": f"rate = '{rate} bit/s'"}


def run_before(program, out, seeds, paths):
    with open(SCENARIO, "rb") as file:
        scenario = tomllib.load(file)
    axes = {axis["name"]: axis["values"] for axis in scenario["axis"]}

    def is_skipped(path, traffic, variant):
        is_it = {"path": path, "traffic": traffic, "variant": variant}
        return any(all(is_it[k] in (v if isinstance(v, list) else [v]) for k, v in s["of"].items()) for s in scenario["skip"])

    random = {p for s in scenario["subset"] if s.get("repeat", 1) > 8 for p in s["of"]["path"]}
    cells = []
    for path in axes["path"]:
        for traffic in axes["traffic"]:
            if is_skipped(path["name"], traffic["name"], "direct") or (paths and path["name"] not in paths):
                continue
            settings = {k: v for k, v in scenario["settings"].items() if k != "rate_in_known"}
            settings |= {k: v for k, v in (path | traffic).items() if k != "name"}
            text = f"name = 'flat'\ntitle = 'flat'\nkind = 'transfer'\n[settings]\n{as_toml(settings)}\n"
            for variant in scenario["variant"]:
                flat = told_flat(variant, path)
                if flat is not None and not is_skipped(path["name"], traffic["name"], variant["name"]):
                    text += f"[[variant]]\nname = '{variant['name']}'\n{as_toml(flat)}\n"
            with tempfile.TemporaryDirectory() as directory:
                file, result = os.path.join(directory, "flat.toml"), os.path.join(directory, "flat.json")
                with open(file, "w", encoding="utf-8") as to:
                    to.write(text)
                repeat = seeds if path["name"] in random else 1
                command = [program, "sim", "run", file, "--repeat", str(repeat), "--threads", "1", "--json", result]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if not os.path.exists(result):
                    # It knows no such link, or no such setting.
                    print(f"{path['name']}, {traffic['name']}: {done.stderr.strip()[-200:]}", file=sys.stderr)
                    continue
                with open(result, encoding="utf-8") as read:
                    ran = json.load(read)["cells"]
            for cell in ran:
                cell["params"] |= {"path": path["name"], "traffic": traffic["name"]}
                for key in ("round_trip_bps", "schedule", "starved"):
                    cell.pop(key, None)
            cells += ran
            print(f"{path['name']}, {traffic['name']}: {len(ran)} runs", file=sys.stderr, flush=True)
            with open(out, "w", encoding="utf-8") as to:
                json.dump({"cells": cells}, to)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--before"] and len(arguments) >= 3:
        seeds = int(arguments[3]) if len(arguments) > 3 else 40
        return run_before(arguments[1], arguments[2], seeds, arguments[4].split(",") if len(arguments) > 4 else [])
    if "--worst" in arguments and len(arguments) == 3:
        return worst(compared(arguments[0]), int(arguments[2]))
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    tables(compared(arguments[0]) if len(arguments) == 2 else {}, compared(arguments[-1]))


if __name__ == "__main__":
    main()
