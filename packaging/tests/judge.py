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


def resident(step, name="redis"):
    """Resident bytes of redis by owner, and those that nobody has who is known."""
    told = report(step, name)
    rows = told["processes"][0]["owners"] if told and told["processes"] else []
    known, unknown = {}, 0
    for row in rows:
        size = row["resident"]["bytes"] or 0
        if row["kind"] in ("preexisting", "unattributed"):
            unknown += size
        else:
            known[row["id"]] = known.get(row["id"], 0) + size
    return known, unknown


def attributed(known, unknown):
    """Share of resident bytes whose owner is known."""
    total = sum(known.values()) + unknown
    return sum(known.values()) / total if total else 0.0


def kept(before, after):
    """Share of the bytes of owners before that the same owners have after."""
    total = sum(before.values())
    return sum(min(size, after.get(owner, 0)) for owner, size in before.items()) / total if total else 0.0


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

share = attributed(*resident("loaded"))
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
law("checkpoint" in read("upgraded", "run"), "a checkpoint lies in /run/memprov")
# What redis maps while no daemon runs has no call site: only what was attributed before can be kept, and no more may be
# unknown than came since. A redis that rests has nothing new, so that all of it is judged.
(before, unknown), (after, unknown_after) = resident("refused"), resident("upgraded")
came = sum(after.values()) + unknown_after - sum(before.values()) - unknown
share = kept(before, after)
law(share >= 0.95 and unknown_after - unknown <= max(came, 0),
    f"{share:.1%} of what owners of redis had under load they have after the upgrade",
    f"{came} bytes more, unknown {unknown} before and {unknown_after} after")
(before, unknown), (after, unknown_after) = resident("refused", "still"), resident("upgraded", "still")
share = attributed(after, unknown_after)
law(share >= 0.95 * attributed(before, unknown) > 0, f"{share:.1%} of a redis at rest is attributed after the upgrade",
    sum(before.values()), unknown, sum(after.values()), unknown_after)
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
