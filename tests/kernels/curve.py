#!/usr/bin/env python3
"""What regions and intervals of a DAMON monitor are worth: found and taken bytes against CPU time of its thread.

usage: curve.py MEMPROV CACHE CSV    (CACHE: a folder for kernels and results)

Boots Debian's 6.12 in a guest (qemu), where memprov watches `hot/hot.c`, which uses 16 of 128 MiB, and writes a line for
each number of regions and each interval. Errors: `found` is the share of the 16 MiB that is told as used within one
interval, `wrong` of the 112 MiB. Guests emulate their CPUs: times are several times real ones.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
REGIONS = [10, 30, 100, 300, 1000]
SAMPLES = [5, 20, 50]
HOT, COLD = 16 << 20, 112 << 20


def in_use(report, site):
    """Bytes that the report tells as used of owners of that site, and whether it tells of any."""
    owners = report["processes"][0]["owners"] if report["processes"] else []
    told = [o["touched"]["in_use"]["bytes"] for o in owners if site in o["name"] and "touched" in o]
    return sum(told), bool(told)


def main(memprov, cache, out):
    cache = pathlib.Path(cache)
    run = lambda *command, **more: subprocess.run([str(word) for word in command], check=True, text=True, **more)
    kernel = run(HERE / "get", "trixie", cache, stdout=subprocess.PIPE).stdout.strip()
    run("cc", "-std=gnu11", "-O2", "-o", cache / "hot", HERE / "hot" / "hot.c")
    settings = f"REGIONS='{' '.join(map(str, REGIONS))}'\nSAMPLES='{' '.join(map(str, SAMPLES))}'\n"
    results = cache / "curve"
    script = settings + "".join((HERE / name).read_text() for name in ("once.sh", "curve.sh"))
    run(HERE / "boot", kernel, results, script, memprov, cache / "hot",
        env={**os.environ, "TIMEOUT": "1800"})
    with open(out, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["regions", "sample_ms", "regions_used", "found", "wrong", "cpu_percent"])
        for line in (results / "points").read_text().splitlines():
            regions, sample, ticks, hundredths = map(int, line.split())
            report = json.loads((results / f"{regions}-{sample}.json").read_text())
            (hot, told), (cold, _) = in_use(report, "hot_memory"), in_use(report, "cold_memory")
            found, wrong = (f"{hot / HOT:.3f}", f"{cold / COLD:.3f}") if told else ("", "")
            used = report["regions"][0]["regions"] if report["regions"] else ""
            table.writerow([regions, sample, used, found, wrong, f"{100 * ticks / hundredths:.2f}"])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
