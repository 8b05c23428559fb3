"""The long crash run, for `make crash`: many kills of a real broker and many schedules on the simulated disk.

`python -m tests.crash.long` runs both and ends with 1 if anything was lost; `--schedule SEED` repeats one schedule.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback

from tests.crash import felix_killer, flymq_killer, killer, kimberlite_killer, queue_killer, schedule

FLYMQ_COUNTS = {
    "store": "transactions and batches",
    "delay": "delayed records",
    "commit": "offsets",
    "change": "changes of users, roles, access lists and schemas",
    "replay": "replays",
    "mortal": "records that expire",
}

KIMBERLITE_COUNTS = {
    "retry": "repeated appends",
    "insert": "inserts",
    "look": "looks at the past",
    "settle": "credits of groups",
    "make": "tenants, streams, tables and keys",
    "enter": "keys tried",
}


FELIX_COUNTS = {
    "put": "puts",
    "delete": "deletions",
    "swap": "swaps",
    "add": "additions",
    "count": "counts",
    "mortal": "values with a time",
}


def schedules(first: int, count: int) -> int:
    """Run schedules by seed; returns how many failed."""
    failures = crashes = 0
    begin = last = time.monotonic()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            crashes += schedule.run(seed).crashes
        except Exception:  # noqa: BLE001 - any error of the log is a finding; go on with the next
            failures += 1
            traceback.print_exc()
            print(f"schedule {seed} failed; to repeat it: python -m tests.crash.long --schedule {seed}", flush=True)
        if time.monotonic() - last > 10 or done == count:
            last = time.monotonic()
            print(
                f"schedules: {done} of {count}, {crashes} crashes, {failures} failed, {last - begin:.0f} s", flush=True
            )
    return failures


def kills(cycles: int, seed: int, durability: str) -> int:
    """Kill a broker again and again; returns how many violations were found."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = killer.Campaign(directory, cycles, seed, durability)
        outcomes = killer.run(campaign, lambda text: print(f"kills at {durability}: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    print(
        f"kills at {durability}: {outcomes.kills}, {outcomes.acknowledged} records acknowledged, "
        f"{len(outcomes.violations)} violations, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def queue_kills(cycles: int, seed: int, durability: str, ttl: float = 0.0) -> int:
    """Kill a broker under the load of queues; returns how many violations were found."""
    begin = time.monotonic()
    name = f"queues at {durability}" + (f" that keep messages for {ttl:g} s" if ttl else "")
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = queue_killer.Campaign(directory, cycles, seed, durability, ttl=ttl)
        outcomes = queue_killer.run(campaign, lambda text: print(f"{name}: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    print(
        f"{name}: {outcomes.kills} kills, {len(outcomes.contents.messages)} messages, {outcomes.count('deliver')} "
        f"deliveries, {len(outcomes.contents.letters)} dead letters, {len(outcomes.violations)} violations, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def flymq_kills(cycles: int, seed: int, durability: str) -> int:
    """Kill a broker under the load of FlyMQ's stateful features; returns how many violations were found."""
    begin = time.monotonic()
    name = f"FlyMQ at {durability}"
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = flymq_killer.Campaign(directory, cycles, seed, durability)
        outcomes = flymq_killer.run(campaign, lambda text: print(f"{name}: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    counts = ", ".join(f"{outcomes.count(kind)} {what}" for kind, what in FLYMQ_COUNTS.items())
    print(
        f"{name}: {outcomes.kills} kills, {counts}, {len(outcomes.violations)} violations, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def kimberlite_kills(cycles: int, seed: int, durability: str) -> int:
    """Kill a broker under the load of Kimberlite's clients; returns how many violations were found."""
    begin = time.monotonic()
    name = f"Kimberlite at {durability}"
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = kimberlite_killer.Campaign(directory, cycles, seed, durability)
        outcomes = kimberlite_killer.run(campaign, lambda text: print(f"{name}: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    counts = ", ".join(f"{outcomes.count(kind)} {what}" for kind, what in KIMBERLITE_COUNTS.items())
    print(
        f"{name}: {outcomes.kills} kills, {outcomes.events()} events, {outcomes.refused()} appends too late for their "
        f"offset, {counts}, {len(outcomes.violations)} violations, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def felix_kills(cycles: int, seed: int, durability: str) -> int:
    """Kill a broker under the load of Felix's clients; returns how many violations were found."""
    begin = time.monotonic()
    name = f"Felix at {durability}"
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = felix_killer.Campaign(directory, cycles, seed, durability)
        outcomes = felix_killer.run(campaign, lambda text: print(f"{name}: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    counts = ", ".join(f"{outcomes.count(kind)} {what}" for kind, what in FELIX_COUNTS.items())
    print(
        f"{name}: {outcomes.kills} kills, {outcomes.events()} events, and {outcomes.unasked()} not acknowledged, "
        f"{counts}, {len(outcomes.violations)} violations, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def spark_kills(cycles: int, seed: int) -> int:
    """Kill a pipeline, its workers, the broker and its children; returns how many violations were found."""
    from tests.crash import spark_killer  # Spark need not be there for the rest

    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = spark_killer.Campaign(directory, cycles, seed)
        outcomes = spark_killer.run(campaign, lambda text: print(f"Spark: {text}", flush=True))
    for violation in outcomes.violations[:20]:
        print(f"violation: {violation}")
    victims = ", ".join(f"{count} of the {victim}" for victim, count in outcomes.kills.items())
    print(
        f"Spark: {sum(outcomes.kills.values())} kills ({victims}), {outcomes.inputs} inputs, "
        f"{len(outcomes.violations)} violations, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.long", description=__doc__)
    parser.add_argument("--schedules", type=int, default=20_000, help="how many schedules on the simulated disk")
    parser.add_argument("--kills", type=int, default=200, help="how many kills of a real broker at level synced")
    parser.add_argument("--flymq-kills", type=int, help="how many of them under FlyMQ's load; half of --kills")
    parser.add_argument("--kimberlite-kills", type=int, help="the same under Kimberlite's; a quarter of --kills")
    parser.add_argument("--felix-kills", type=int, help="the same under Felix's; a quarter of --kills")
    parser.add_argument("--spark-kills", type=int, default=30, help="how many kills around a pipeline on Spark")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule, and the seed of the kills")
    parser.add_argument("--schedule", type=int, metavar="SEED", help="repeat this one schedule and nothing else")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the simulated disks fail on purpose, all the time
    if arguments.schedule is not None:
        return 1 if schedules(arguments.schedule, 1) else 0
    found = 0
    if arguments.kills:
        found += kills(arguments.kills, arguments.seed, "synced")
        found += kills(max(1, arguments.kills // 5), arguments.seed, "written")
        found += queue_kills(max(1, arguments.kills // 2), arguments.seed, "synced")
        found += queue_kills(max(1, arguments.kills // 10), arguments.seed, "written")
        found += queue_kills(max(1, arguments.kills // 10), arguments.seed, "synced", ttl=0.3)
    flymq = arguments.kills // 2 if arguments.flymq_kills is None else arguments.flymq_kills
    if flymq:
        found += flymq_kills(flymq, arguments.seed, "synced")
        found += flymq_kills(max(1, flymq // 5), arguments.seed, "written")
    kimberlite = arguments.kills // 4 if arguments.kimberlite_kills is None else arguments.kimberlite_kills
    if kimberlite:
        found += kimberlite_kills(kimberlite, arguments.seed, "synced")
        found += kimberlite_kills(max(1, kimberlite // 5), arguments.seed, "written")
    felix = arguments.kills // 4 if arguments.felix_kills is None else arguments.felix_kills
    if felix:
        found += felix_kills(felix, arguments.seed, "synced")
        found += felix_kills(max(1, felix // 5), arguments.seed, "written")
    if arguments.spark_kills:
        found += spark_kills(arguments.spark_kills, arguments.seed)
    if arguments.schedules:
        found += schedules(arguments.seed, arguments.schedules)
    print("nothing was lost" if not found else f"{found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
