#!/usr/bin/env python3
"""Accuracy against overhead: a table (CSV) and a plot (SVG) for each curve.

usage: curves.py [--memprov FILE] [--to DIR] [--runs N] [CURVE...]
       curves.py plot FILE.csv X Y[,Y...] [BY]     a plot of columns of any such table, a line for each value of BY

Curves (default: all):
  period   the remote share of access time, by replay: samples of known mixes, thinned to 1/2 ... 1/64
  touch    the share of first touches by function, live, by how many pages are in the sample (root, gcc)
"""

import argparse
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COLOURS = ["#1b6ca8", "#c8553d", "#3f7d20", "#7b4b94", "#8d6b00", "#333333"]


# --- Tables and plots ---------------------------------------------------------------------------------------------

def write(path, rows):
    """Rows as a table; numbers with four digits that count."""
    short = lambda value: f"{value:.4g}" if isinstance(value, float) else value
    with open(path, "w", newline="") as out:
        table = csv.DictWriter(out, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows({key: short(value) for key, value in row.items()} for row in rows)


def plot(path, x, ys, by=None):
    """Columns `ys` of a table over its column `x`, both on logarithmic axes, to a file of the same name."""
    rows = list(csv.DictReader(open(path)))
    lines = {}
    for row in rows:
        for y in ys:
            name = " ".join(filter(None, [row.get(by), y if len(ys) > 1 or not by else ""]))
            if row[x] and row[y] and float(row[x]) > 0 and float(row[y]) > 0:
                lines.setdefault(name, []).append((float(row[x]), float(row[y])))
    if not lines:
        sys.exit(f"{path}: nothing above 0 to plot")
    points = [point for line in lines.values() for point in line]
    lo, hi = ([pick(p[axis] for p in points) for axis in (0, 1)] for pick in (min, max))
    lo = [10 ** math.floor(math.log10(v)) for v in lo]
    hi = [max(10 ** math.ceil(math.log10(v)), 10 * l) for v, l in zip(hi, lo)]
    left, top, width, height = 56, 12, 400, 260

    def at(value, axis):
        part = math.log(value / lo[axis]) / math.log(hi[axis] / lo[axis])
        return left + part * width if axis == 0 else top + (1 - part) * height

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 210} {top + height + 44}" '
           'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>']
    for axis in (0, 1):
        tick = lo[axis]
        while tick <= hi[axis] * 1.001:
            p = at(tick, axis)
            ends = f'x1="{p:.1f}" x2="{p:.1f}" y1="{top}" y2="{top + height}"' if axis == 0 else \
                f'x1="{left}" x2="{left + width}" y1="{p:.1f}" y2="{p:.1f}"'
            where = f'x="{p:.1f}" y="{top + height + 16}" text-anchor="middle"' if axis == 0 else \
                f'x="{left - 6}" y="{p + 4:.1f}" text-anchor="end"'
            out += [f'<line {ends} stroke="#ddd"/>', f"<text {where}>{tick:g}</text>"]
            tick *= 10
    words = {x: x.replace("_", " ")} | {y: y.replace("_", " ") for y in ys}
    out.append(f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">{words[x]}</text>')
    if len(ys) == 1:
        out.append(f'<text x="{left + width + 12}" y="{top + 10}" font-weight="bold">{words[ys[0]]}</text>')
    for number, (name, line) in enumerate(sorted(lines.items())):
        colour = COLOURS[number % len(COLOURS)]
        dots = " ".join(f"{at(a, 0):.1f},{at(b, 1):.1f}" for a, b in sorted(line))
        out.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{d.split(",")[0]}" cy="{d.split(",")[1]}" r="3" fill="{colour}"/>' for d in dots.split()]
        y = top + 30 + 18 * number
        out.append(f'<text x="{left + width + 12}" y="{y}" fill="{colour}">{name.replace("_", " ")}</text>')
    path.with_suffix(".svg").write_text("\n".join([*out, "</svg>"]) + "\n")


def most(values, part=0.95):
    """What that part of all values stay below."""
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)] if values else math.nan


# --- Period -------------------------------------------------------------------------------------------------------

SECONDS, EACH, PERIOD, BURSTS = 120, 400, 10_007, 1_200
# Share of remote accesses, cycles of those and of others, how much they vary; whether they come in bursts.
MIXES = {"even": (0.327, 300, 300, 0.0, False), "heavy-tailed": (0.6, 400, 150, 0.8, False),
         "in bursts": (0.3, 300, 300, 0.0, True)}


def samples(draw):
    """Samples of every mix in the order of time: (nanoseconds, mix, remote, cycles); and the true shares of time."""
    found, truth = [], {}
    for number, (name, (share, far, near, sigma, bursts)) in enumerate(MIXES.items()):
        parts = [draw.random() < share for _ in range(BURSTS)]
        share = sum(parts) / BURSTS if bursts else share
        truth[name] = share * far / (share * far + (1 - share) * near)
        for _ in range(SECONDS * EACH):
            at = draw.random()
            remote = parts[int(at * BURSTS)] if bursts else draw.random() < share
            cycles = (far if remote else near) * draw.lognormvariate(-sigma * sigma / 2, sigma)
            found.append((10**9 + int(at * SECONDS * 1e9), number, remote, max(1, round(cycles))))
    return sorted(found), truth


def trace(path, found, period):
    """The samples as a trace of one process with a mapping for each mix (docs/TRACE.md)."""
    place = lambda number: 0x7000_0000_0000 + (number << 24)
    totals = {"anon": 0, "file": 0}
    maps = [{"extent": f"{place(n):x}-{place(n) + (1 << 23):x}", "backing": "anonymous", "write": True,
             "path": f"[anon:{name}]"} for n, name in enumerate(MIXES)]
    lines = [{"kind": "header", "schema": "memprov.trace/1", "version": "0", "clock": {"wall_at_zero": "0"},
              "watching_since": 1, "host": {"kernel": None, "nodes": 2, "no_pmu": None},
              "scope": {"all": False, "pids": [7]}},
             {"kind": "residency", "when": {"begin": 10, "end": 20}, "tgid": 7, "start": 1, "comm": "mix", "parent": 1,
              "before": totals, "maps": maps, "pages": [], "exclusive_known": True, "after": totals, "slack": 0,
              "object_slack": 0}]
    with open(path, "w") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
        for at, number, remote, cycles in found:
            served = '{"remote_memory":{"hops":null}}' if remote else '"local"'
            out.write(f'{{"kind":"access","when":{{"begin":{at},"end":{at}}},"tgid":7,"address":"{place(number):x}",'
                      f'"population":"loads","period":{period},"latency":{cycles},"op":"load","served":{served}}}\n')
        out.write(json.dumps({"kind": "end", "when": 10**9 * (SECONDS + 1)}) + "\n")


def period(args, home):
    told = {}
    for seed in range(args.runs):
        draw = random.Random(seed)
        found, truth = samples(draw)
        for thin in (1, 2, 4, 8, 16, 32, 64):
            # Drawn at random, as periods are: a fixed one can beat with the workload.
            trace(f"{home}/t", [sample for sample in found if draw.random() * thin < 1], PERIOD * thin)
            report = subprocess.run([args.memprov, "replay", f"{home}/t", "--output", "report-json"], check=True,
                                    capture_output=True, text=True)
            for row in json.loads(report.stdout)["accesses"]["owners"]:
                name = row["name"].removeprefix("[anon:").removesuffix("]")
                share = row["sums"]["methods"]["served"]["time"].get("shares", {}).get("remote")
                told.setdefault((name, thin), []).append(share and (share["share"] - truth[name], share["lo"] - truth[name],
                                                                    share["hi"] - truth[name]))
    rows = []
    for (name, thin), shares in sorted(told.items()):
        known = [share for share in shares if share]
        rows.append({"mix": name, "period": PERIOD * thin, "samples_per_second": EACH / thin, "runs": len(shares),
                     "withheld": len(shares) - len(known),
                     "error_points": 100 * most([abs(error) for error, _, _ in known]),
                     "half_width_points": 100 * statistics.median((hi - lo) / 2 for _, lo, hi in known),
                     "interval_holds": sum(lo <= 0 <= hi for _, lo, hi in known) / len(known)})
    return rows, ("samples_per_second", ["error_points", "half_width_points"], "mix")


# --- First touch --------------------------------------------------------------------------------------------------

def touch(args, home):
    import perf
    perf.ARGS = argparse.Namespace(memprov=args.memprov, load=f"{home}/load")
    subprocess.run(["gcc", "-O2", "-o", perf.ARGS.load, HERE / "load.c"], check=True)
    pages, seconds, rows = 400_000, 12, []
    for part in (0.001, 0.003, 0.01, 0.03, 0.1):
        errors, small, cpu, unknown, told = [], [], [], [], 0
        for seed in range(max(1, args.runs // 5)):
            with perf.Load("touch", seed, pages, seconds) as load:
                load.line()
                with perf.Agent("--pid", str(load.pid), "--interval", "5s", "--set",
                                f"first_touch.probability={part}") as agent:
                    time.sleep(1)
                    before, begun = perf.cpu_of(agent.pid), time.monotonic()
                    load.process.stdin.write("g")
                    load.process.stdin.flush()
                    truth = load.numbers()
                    cpu.append(100 * (perf.cpu_of(agent.pid) - before) / (time.monotonic() - begun))
                    found = agent.report("--pid", str(load.pid))["processes"][0]["first_touch"]
            known = {r["name"]: r["resident"]["bytes"] for r in found["rows"]}
            unknown.append(100 * found["unknown_share"])
            touched, rows_sum = sum(truth.values()), sum(known.values())
            for name, pages_of in truth.items():
                share = next((b / rows_sum for n, b in known.items() if name in n), None)
                told += share is not None
                if share is not None:
                    error = 100 * abs(share - pages_of / touched)
                    (errors if pages_of > touched / 10 else small).append(error)
        rows.append({"sample_percent": 100 * part, "error_points_large": most(errors), "error_points_small": most(small),
                     "named": told, "owners": len(truth) * max(1, args.runs // 5), "unknown_percent": most(unknown),
                     "agent_cpu_percent": statistics.median(cpu)})
    return rows, ("sample_percent", ["error_points_large", "error_points_small", "unknown_percent", "agent_cpu_percent"],
                  None)


CURVES = {"period": period, "touch": touch}


def main():
    if sys.argv[1:2] == ["plot"]:
        path, x, ys, *by = sys.argv[2:]
        return plot(pathlib.Path(path), x, ys.split(","), *by)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memprov", default=str(HERE.parent.parent / "target/release/memprov"))
    parser.add_argument("--to", default=HERE.parent.parent / "docs/curves", type=pathlib.Path, help="where tables and plots go")
    parser.add_argument("--runs", type=int, default=20, help="runs of each point, a seed each; live a fifth of them")
    parser.add_argument("curve", nargs="*", metavar="CURVE", choices=[[], *CURVES], default=[])
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    for name in args.curve or CURVES:
        with tempfile.TemporaryDirectory(prefix="memprov-curves-") as home:
            rows, (x, ys, by) = CURVES[name](args, home)
        path = args.to / f"{name}.csv"
        write(path, rows)
        plot(path, x, ys, by)
        print(path.read_text(), end="", flush=True)


if __name__ == "__main__":
    main()
