#!/usr/bin/env python3
"""Judges what the guest wrote down. usage: judge.py RESULTS

A line for each law; status 1 when one is broken."""

import json
import re
import sys
from pathlib import Path

CAPABILITIES = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_SYS_PTRACE": 19,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
TCP_LISTEN = "0A"

results = Path(sys.argv[1])
broken = 0


def law(holds, text, *seen):
    global broken
    broken += not holds
    print(f"{'ok    ' if holds else 'BROKEN'} {text}", *(() if holds else seen))


def read(step, name):
    path = results / step / name
    return path.read_text() if path.exists() else ""


def report(step, name="redis"):
    text = read(step, name + ".json")
    return json.loads(text) if text else None


def field(text, key):
    found = re.search(rf"^{key}[:=]\s*(\S+)", text, re.M)
    return found.group(1) if found else None


def attributed(step):
    """Share of the resident bytes of redis that an owner has which is neither preexisting nor unattributed, and the
    bytes."""
    redis = report(step)
    rows = redis["processes"][0]["owners"] if redis and redis["processes"] else []
    total = sum(row["resident"]["bytes"] or 0 for row in rows)
    known = sum(row["resident"]["bytes"] or 0 for row in rows if row["kind"] not in ("preexisting", "unattributed"))
    return (known / total if total else 0.0), known


def configuration(step):
    whole = report(step, "all") or {}
    return (whole.get("agent") or {}).get("configuration") or {}


status = read("installed", "status")
law(read("installed", "active") == "active\n", "after its installation it runs", read("installed", "active"))
law(read("installed", "enabled") == "enabled\n", "it starts at boot", read("installed", "enabled"))
wanted = sum(1 << bit for bit in CAPABILITIES.values())
for line in ("CapEff", "CapPrm", "CapBnd"):
    law(int(field(status, line) or "0", 16) == wanted, f"{line} is exactly what the unit lists", field(status, line))
law(field(status, "Uid") not in (None, "0"), "it is not root", field(status, "Uid"))
law(field(status, "NoNewPrivs") == "1" and field(status, "Seccomp") == "2", "no new privileges, filtered system calls")
law(read("installed", "oom_score_adj").strip() == "500", "it goes before workloads do")
inodes = set(re.findall(r"socket:\[(\d+)\]", read("loaded", "fds")))
rows = [line.split() for line in read("loaded", "sockets").splitlines()]
listening = [row for row in rows if len(row) > 9 and row[9] in inodes and row[3] in (TCP_LISTEN, "07")]
law(inodes and not listening, "it listens on no port", listening)
law(re.search(r"^srw------- .* memprov.sock$", read("loaded", "run"), re.M), "its socket is for its owner only")

share, _ = attributed("loaded")
law(share > 0.9, f"{share:.1%} of what redis has resident is attributed", read("loaded", "redis.err"))
names = {owner["name"] for process in (report("loaded") or {"processes": []})["processes"] for owner in process["owners"]}
law("arena:jemalloc" in names, "its allocator is known", names)

before, reloaded, refused = (configuration(step) for step in ("installed", "reloaded", "refused"))
law(reloaded.get("applied") == 1 and reloaded.get("hash") != before.get("hash"), "a reload takes over", reloaded)
law(refused.get("refused") == 1 and refused.get("hash") == reloaded.get("hash"), "a mistake changes nothing", refused)
pids = {step: field(read(step, "show"), "MainPID") for step in ("installed", "refused", "upgraded", "killed")}
law(pids["installed"] == pids["refused"], "a reload keeps the process", pids)

law(read("upgraded", "package").startswith("installed ") and read("upgraded", "package") != read("loaded", "package"),
    "the upgrade is installed", read("upgraded", "package"))
law(read("upgraded", "active") == "active\n" and pids["upgraded"] != pids["refused"], "and runs", pids)
share, known = attributed("refused")
share_after, known_after = attributed("upgraded")
law("checkpoint" in read("upgraded", "run"), "a checkpoint lies in /run/memprov")
told = f"{share_after:.1%} of redis is attributed after the upgrade, {share:.1%} before"
law(share_after >= 0.95 * share and known_after >= 0.95 * known, told, known, known_after)
law(read("killed", "active") == "active\n" and pids["killed"] not in ("0", pids["upgraded"]),
    "when it is killed it is started again", pids)
log = (results / "journal").read_text()
complaints = [line for line in log.splitlines() if re.search(r"WARN|ERROR", line) and "is not taken over" not in line]
law(log and not complaints, "its log has no complaint", complaints)
law(read("removed", "active") != "active\n", "after its removal it does not run", read("removed", "active"))
law(not read("purged", "left"), "a purge leaves nothing", read("purged", "left"))
law("not-installed" in read("purged", "package") or "no packages found" in read("purged", "package"),
    "and dpkg knows nothing of it", read("purged", "package"))
sys.exit(1 if broken else 0)
