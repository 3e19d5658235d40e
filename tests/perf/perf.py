#!/usr/bin/env python3
"""What memprov costs here: interleaved runs without and with it, medians and their 95 % intervals.

usage: perf.py [--memprov FILE] [--pairs N] [--seconds N] [--json FILE] [MEASUREMENT...]

Measurements (default: all, in this order): idle busy calls faults compile accuracy.
Needs root, gcc and Python 3.11. Where the whole host is watched, what else runs on it is measured too, and said. A run
during which another memprov came or went is made again: its hooks would be measured as ours.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
NPROC = os.cpu_count()


# --- Statistics ---------------------------------------------------------------------------------------------------

def median(values):
    """The median and its 95 % interval by order statistics (sign test): (median, lo, hi)."""
    v = sorted(values)
    n = len(v)
    k, below = 0, 0.0
    # The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %.
    for i in range(n // 2):
        below += math.comb(n, i) / 2**n
        if below > 0.025:
            break
        k = i + 1
    lo, hi = (v[k - 1], v[n - k]) if k else (-math.inf, math.inf)
    return statistics.median(v), lo, hi


def paired(runs, with_it, without, of=lambda a, b: a - b):
    return median([of(a, b) for a, b in zip(runs[with_it], runs[without])])


# --- The host -----------------------------------------------------------------------------------------------------

def cpu_of(pid):
    """CPU seconds of a process, its ended threads included, by its CPU clock."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def threads(pid):
    """CPU seconds by thread name."""
    out = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        out[name] = out.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return out


def memory(pid):
    """VmRSS, RssAnon, RssFile, VmHWM in MiB."""
    rows = dict(l.split(":", 1) for l in open(f"/proc/{pid}/status") if ":" in l)
    return {k: int(rows[k].split()[0]) / 1024 for k in ("VmRSS", "RssAnon", "RssFile", "VmHWM")}


class Host:
    """What the whole host does between two looks: CPUs busy, forks, faults."""

    def __init__(self):
        self.at = time.monotonic()
        rows = [l.split() for l in open("/proc/stat")]
        cpu = [int(x) for x in rows[0][1:9]]
        self.busy = (sum(cpu) - cpu[3] - cpu[4]) / os.sysconf("SC_CLK_TCK")
        self.forks = int(next(r[1] for r in rows if r[0] == "processes"))
        self.faults = int(next(l.split()[1] for l in open("/proc/vmstat") if l.startswith("pgfault ")))

    def since(self, before):
        span = self.at - before.at
        return {
            "cpus": (self.busy - before.busy) / span,
            "forks": (self.forks - before.forks) / span,
            "faults": (self.faults - before.faults) / span,
        }


def others(own):
    """Other processes named memprov."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in own:
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().startswith("memprov"):
                    found.add(int(entry.name))
    return found


OWN = set()


def undisturbed(run):
    """Runs again until no other memprov came or went meanwhile."""
    while True:
        before = others(OWN)
        value = run()
        if others(OWN) == before:
            return value


# --- Programs -----------------------------------------------------------------------------------------------------

class Load:
    """A subcommand of load.c; ends when its input is closed."""

    def __init__(self, *args):
        args = [ARGS.load, *map(str, args)]
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def numbers(self):
        """What it prints until it ends, or says that it is done."""
        lines = iter(self.line, "")
        rows = [l.split() for l in itertools.takewhile(lambda l: l != "done", lines)]
        return {name: float(value) for name, value in rows}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Agent:
    """A daemon with hooks attached."""

    def __init__(self, *more, touch=True):
        self.home = tempfile.TemporaryDirectory(prefix="memprov-perf-")
        args = [ARGS.memprov, "run", "--state-dir", self.home.name, "--output", "none", *more]
        args += [] if touch else ["--set", "first_touch.enabled=false"]
        self.log = open(f"{self.home.name}/log", "w")
        begun = time.monotonic()
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pid = self.process.pid
        OWN.add(self.pid)
        while not os.path.exists(f"{self.home.name}/memprov.sock"):
            if self.process.poll() is not None or time.monotonic() - begun > 60:
                sys.exit("memprov did not start: " + open(self.log.name).read()[-2000:])
            time.sleep(0.02)
        self.start = time.monotonic() - begun

    def report(self, *more):
        args = [ARGS.memprov, "report", "--state-dir", self.home.name, "--output", "json", *more]
        child = subprocess.Popen(args, stdout=subprocess.PIPE)
        OWN.add(child.pid)
        text = child.communicate()[0]
        OWN.discard(child.pid)
        return json.loads(text) if child.returncode == 0 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        OWN.discard(self.pid)
        self.log.close()
        self.home.cleanup()


@contextlib.contextmanager
def way(name, **options):
    """`none`: without an agent; else with one."""
    if name == "none":
        yield None
    else:
        with Agent(*options.get("more", ()), touch=options.get("touch", True)) as agent:
            yield agent


# --- Measurements -------------------------------------------------------------------------------------------------

ROWS = []


def row(what, value, unit, lo=None, hi=None, limit=None, note=""):
    ROWS.append(dict(what=what, value=value, unit=unit, lo=lo, hi=hi, limit=limit, note=note))
    interval = "" if lo is None else f" [{lo:.4g}, {hi:.4g}]"
    print(f"{what}: {value:.4g}{interval} {unit}  {'(limit ' + limit + ')' if limit else ''} {note}", flush=True)


def watch(what, agent, seconds, slices, limit_cpu, limit_memory):
    """CPU of an agent over slices of time, memory at the end."""
    looks, hosts = [cpu_of(agent.pid)], [Host()]
    named = threads(agent.pid)
    begun = looks[0]
    for _ in range(slices):
        time.sleep(seconds / slices)
        looks.append(cpu_of(agent.pid))
        hosts.append(Host())
    spans = [b.at - a.at for a, b in zip(hosts, hosts[1:])]
    shares = [100 * (b - a) / s for a, b, s in zip(looks, looks[1:], spans)]
    whole = 100 * (looks[-1] - begun) / (hosts[-1].at - hosts[0].at)
    _, lo, hi = median(shares)
    did = hosts[-1].since(hosts[0])
    rest = did["cpus"] - whole / 100
    more = {k: 100 * (v - named.get(k, 0)) / sum(spans) for k, v in threads(agent.pid).items()}
    detail = ", ".join(f"{k} {v:.2f}" for k, v in sorted(more.items(), key=lambda x: -x[1]) if v >= 0.005)
    row(f"{what}: CPU of the agent", whole, "% of a CPU", lo, hi, limit_cpu,
        f"others used {rest:.2f} CPUs, {did['forks']:.0f} forks/s, {did['faults']:.0f} faults/s; {detail}")
    m = memory(agent.pid)
    row(f"{what}: memory", m["VmRSS"], "MiB", limit=limit_memory,
        note=f"anonymous {m['RssAnon']:.1f}, file and rings {m['RssFile']:.1f}, highest {m['VmHWM']:.1f}")


def own_figures(what, agent, before, after, span):
    """What the agent says of its own CPU, beside what is seen from outside."""
    a, b = before.get("agent"), after.get("agent")
    if not a or not b:
        return
    told = sum(b["cpu_seconds"].values()) - sum(a["cpu_seconds"].values())
    row(f"{what}: CPU by its own report / from outside", told / span, "ratio", limit="0.5 to 2")
    row(f"{what}: memory by its own report / from outside",
        b["rss_bytes"] / 2**20 / memory(agent.pid)["VmRSS"], "ratio", limit="0.5 to 2")


def idle():
    with Load("sleepers", 500) as load:
        load.line()
        for what, more in (("idle host", ()), ("500 idle processes alone", ("--pid", str(load.pid)))):
            with Agent(*more) as agent:
                # Attached; the first scans go on for a while.
                time.sleep(20)
                row(f"{what}: start, with the first scans", cpu_of(agent.pid), "CPU s",
                    note=f"hooks attached and answering after {agent.start:.1f} s")
                before, cpu = agent.report() or {}, cpu_of(agent.pid)
                watch(what, agent, ARGS.seconds, 6, "1", "64 + rings")
                seen = cpu_of(agent.pid)
                own_figures(what, agent, before, agent.report() or {}, seen - cpu)
                row(f"{what}: with one report of everything", cpu_of(agent.pid) - seen, "CPU s")


def busy():
    for what, alone in (("busy host", False), ("busy processes alone", True)):
        with Load("busy", 100, 20000, 50000, ARGS.busy_seconds) as load:
            load.line()
            with Agent(*(("--pid", str(load.pid)) if alone else ())) as agent:
                time.sleep(10)
                before, cpu = agent.report() or {}, cpu_of(agent.pid)
                lost = before.get("lost", {})
                watch(what, agent, ARGS.busy_seconds - 20, 6, None, "64 + rings")
                seen = cpu_of(agent.pid)
                after = agent.report()
                own_figures(what, agent, before, after, seen - cpu)
                did = load.line().split(), load.line().split()
                did = ", ".join(f"{name.split('_')[0]} {float(n):.0f}/s" for name, n in did)
                for stream in ("lifecycle", "queue", "stacks", "faults"):
                    n = after["lost"].get(stream, 0) - lost.get(stream, 0)
                    limit = "0" if alone and stream in ("lifecycle", "queue") else None
                    row(f"{what}: {stream} records lost", n, "records", limit=limit, note=did)
                ours = agent.report("--pid", str(load.pid))["processes"]
                row(f"{what}: processes of the load with a loss", sum(not p["lossless"] for p in ours), "processes",
                    limit="0", note=f"of {len(ours)}")


def rounds(ways, run, pairs):
    """Interleaves `ways` (name -> options) in random order: name -> list of results."""
    out = {name: [] for name in ways}
    for _ in range(pairs):
        for name in random.sample(list(ways), len(ways)):
            def one(name=name):
                with way(name, **ways[name]):
                    if name != "none":
                        time.sleep(1.0)
                    return run()
            out[name].append(undisturbed(one))
    return out


def calls():
    def run():
        with Load("calls") as load:
            return load.numbers()

    with Load("sleepers", 1) as other:
        other.line()
        fentry = ("--set", "hooks.mechanism=fentry")
        ways = {
            "none": {},
            "watched": {"touch": False},
            "without stacks": {"touch": False, "more": ("--set", "inject.stacks=1.0")},
            "unwatched": {"touch": False, "more": ("--pid", str(other.pid))},
        }
        runs = rounds(ways, run, ARGS.pairs)
    of = lambda key: {name: [r[key] for r in rs] for name, rs in runs.items()}
    pair, ppid = of("pair_ns"), of("getppid_ns")
    base = statistics.median(pair["none"]), statistics.median(ppid["none"])
    row("pair of mmap and munmap, with its stack", *unit(paired(pair, "watched", "none"), "ns"), limit="2500",
        note=f"on {base[0]:.0f} ns")
    row("pair of mmap and munmap, without stack", *unit(paired(pair, "without stacks", "none"), "ns"), limit="1000")
    row("pair of mmap and munmap, in a process that is not watched", *unit(paired(pair, "unwatched", "none"), "ns"))
    row("any system call (getppid)", *unit(paired(ppid, "watched", "none"), "ns"), note=f"on {base[1]:.0f} ns")


def unit(m, name):
    """A median with its interval, in the order of `row`."""
    return m[0], name, m[1], m[2]


def percent(a, b):
    return 100 * (a / b - 1)


TOUCH_WAYS = {"none": {}, "off": {"touch": False}, "on": {}}


def faults():
    def run():
        with Load("faults", 40) as load:
            return load.numbers()["fault_ns"]

    runs = rounds(TOUCH_WAYS, run, ARGS.pairs)
    base = statistics.median(runs["off"])
    row("a fault, first touch on against off", *unit(paired(runs, "on", "off", percent), "%"), limit="8",
        note=f"on {base:.0f} ns")
    row("a fault, agent with first touch against none", *unit(paired(runs, "on", "none", percent), "%"))


def compile_job():
    with tempfile.TemporaryDirectory(prefix="memprov-perf-") as home:
        source = pathlib.Path(home) / "large.c"
        with open(source, "w") as out:
            for i in range(1500):
                out.write(f"struct s{i} {{ int a[{i % 7 + 1}]; struct s{max(i - 1, 0)} *next; }};\n"
                          f"int f{i}(struct s{i} *s, int n) {{ int x = n; for (int k = 0; k < n; k++) "
                          f"x += s->a[k % {i % 7 + 1}] * {i} ^ x >> {i % 5 + 1}; "
                          f"return x > {i} ? x : f{max(i - 1, 0)}((void *)s, n - 1); }}\n")

        def run():
            args = ["gcc", "-O1", "-S", "-o", "/dev/null", str(source)]
            pid = os.posix_spawnp(args[0], args, os.environ)
            _, status, used = os.wait4(pid, 0)
            if status:
                sys.exit("gcc failed")
            faulted.append(used.ru_minflt)
            return used.ru_utime + used.ru_stime

        faulted = []
        run()
        runs = rounds(TOUCH_WAYS, run, ARGS.pairs)
    base = statistics.median(runs["off"])
    row("a compile job, first touch on against off", *unit(paired(runs, "on", "off", percent), "%"), limit="2",
        note=f"on {base:.2f} CPU s with {statistics.median(faulted):.0f} faults")
    row("a compile job, agent with first touch against none", *unit(paired(runs, "on", "none", percent), "%"))


def accuracy():
    """First touch by a sample against every fault: one agent a seed, as it draws its sample at start."""
    pages, seconds = 400_000, 12
    large, inside, all_small, withheld, unknown = [], 0, 0, 0, []
    for seed in range(ARGS.seeds):
        with Load("touch", seed, pages, seconds) as load:
            load.line()
            with Agent("--pid", str(load.pid), "--interval", "5s") as agent:
                time.sleep(1)
                load.process.stdin.write("g")
                load.process.stdin.flush()
                truth = load.numbers()
                process = agent.report("--pid", str(load.pid))["processes"][0]
        told = process["first_touch"]
        rows = {r["name"]: r for r in told["rows"]}
        anon = process["books"]["anon"]["owned"]
        unknown.append(told["unknown_share"])
        for name, touched in truth.items():
            true = touched * 4096
            found = next((r for n, r in rows.items() if name in n), None)
            if found is None:
                withheld += 1
                continue
            q = found["resident"]
            if found["pages"] >= 1500:
                large.append(100 * (q["bytes"] - true) / anon)
            else:
                all_small += 1
                inside += q["lo"] <= true <= q["hi"]
    what = "first touch, sample against all faults"
    if large:
        row(f"{what}: owners of at least 1,500 kept pages, largest difference of a share",
            max(map(abs, large)), "points", limit="3", note=f"{len(large)} owners in {ARGS.seeds} runs")
    row(f"{what}: owners of fewer pages inside their interval", 100 * inside / max(all_small, 1), "%", limit="95",
        note=f"{inside} of {all_small}, {withheld} without a row; unknown share at most {max(unknown):.3f}")


MEASUREMENTS = {"idle": idle, "busy": busy, "calls": calls, "faults": faults, "compile": compile_job,
                "accuracy": accuracy}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memprov", default=str(HERE.parent.parent / "target/release/memprov"))
    parser.add_argument("--pairs", type=int, default=9, help="pairs of runs, at least 7")
    parser.add_argument("--seconds", type=int, default=120, help="how long an idle host is watched")
    parser.add_argument("--busy-seconds", type=int, default=65, help="how long a busy one is")
    parser.add_argument("--seeds", type=int, default=20, help="runs of the accuracy program")
    parser.add_argument("--json", help="write the rows to this file, too")
    parser.add_argument("what", nargs="*", metavar="MEASUREMENT", choices=[[], *MEASUREMENTS], default=[])
    global ARGS
    ARGS = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memprov-perf-") as home:
        ARGS.load = f"{home}/load"
        subprocess.run(["gcc", "-O2", "-o", ARGS.load, HERE / "load.c"], check=True)
        for name in ARGS.what or MEASUREMENTS:
            before = Host()
            MEASUREMENTS[name]()
            did = Host().since(before)
            print(f"# {name}: {did['cpus']:.2f} of {NPROC} CPUs were busy\n", flush=True)
    if ARGS.json:
        pathlib.Path(ARGS.json).write_text(json.dumps(ROWS, indent=1) + "\n")


if __name__ == "__main__":
    main()
