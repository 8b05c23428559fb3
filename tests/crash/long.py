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
from collections.abc import Sequence

from tests.crash import kafka_schedule, schedule
from tests.crash.all_doors_adapter import AllDoorsAdapter
from tests.crash.blipmq_adapter import BlipMqAdapter
from tests.crash.campaign import Adapter, Campaign, run
from tests.crash.felix_adapter import FelixAdapter
from tests.crash.flymq_adapter import FlyMqAdapter
from tests.crash.kimberlite_adapter import KimberliteAdapter
from tests.crash.rustlog_adapter import RustLogAdapter
from tests.histories.checker import Violation
from tests.histories.history import History

LONGEST_LIFE = 50  # kills of a broker under the load of all doors, before the next begins with nothing


def schedules(first: int, count: int, *, kafka: bool = False) -> int:
    """Run schedules by seed, of the file engine or of that of a journal on Kafka; returns how many failed."""
    run_one, flag = (kafka_schedule.run, "--kafka-schedule") if kafka else (schedule.run, "--schedule")
    failures = crashes = 0
    begin = last = time.monotonic()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            crashes += run_one(seed).crashes
        except Exception:  # noqa: BLE001 - any error of the log is a finding; go on with the next
            failures += 1
            traceback.print_exc()
            print(f"schedule {seed} failed; to repeat it: python -m tests.crash.long {flag} {seed}", flush=True)
        if time.monotonic() - last > 10 or done == count:
            last = time.monotonic()
            print(
                f"schedules: {done} of {count}, {crashes} crashes, {failures} failed, {last - begin:.0f} s", flush=True
            )
    return failures


def kills(adapter: Adapter, cycles: int, seed: int, durability: str, note: str = "") -> int:
    """Kill a broker again and again under the load of one door's clients; returns how many violations were found."""
    begin = time.monotonic()
    name = f"{adapter.name} at {durability}{note}"
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        campaign = Campaign(directory, cycles, seed, durability)
        try:
            outcomes = run(adapter, campaign, lambda text: print(f"{name}: {text}", flush=True))
        except Exception:
            adapter.history.keep()
            raise
    _tell(outcomes.violations, outcomes.history)
    print(
        f"{name}: {outcomes.kills} kills, {adapter.summary(outcomes)}, {len(outcomes.violations)} violations, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return len(outcomes.violations)


def _tell(violations: Sequence[Violation], history: History) -> None:
    for violation in violations[:20]:
        print(f"violation: {violation}")
    if violations:
        history.keep()


def all_doors(cycles: int, seed: int) -> int:
    """Kill a broker under the load of all doors at once, some dozens of times on each data directory; returns how many
    violations were found."""
    found = 0
    for first in range(0, cycles, LONGEST_LIFE):
        note = f", kills from {first + 1} on"
        found += kills(AllDoorsAdapter(), min(LONGEST_LIFE, cycles - first), seed + first, "synced", note)
    return found


def spark_kills(cycles: int, seed: int, sink: str) -> int:
    """Kill a pipeline into topics or into tables, its workers, the broker and its children; returns how many violations
    were found."""
    from tests.crash import spark_campaign  # Spark need not be there for the rest
    from tests.crash.spark_driver import TABLES, TOPICS

    begin = time.monotonic()
    name = f"Spark into {sink}"
    with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
        queries = {"topics": TOPICS, "tables": TABLES}[sink]
        campaign = spark_campaign.Campaign(directory, cycles, seed, queries=queries)
        outcomes = spark_campaign.run(campaign, lambda text: print(f"{name}: {text}", flush=True))
    _tell(outcomes.violations, outcomes.history)
    victims = ", ".join(f"{count} of the {victim}" for victim, count in outcomes.kills.items())
    for query, found in outcomes.copies.items():
        print(f"{name}: {query}: {found.written} rows written, {found.lost} lost, {found.doubled} doubled")
    print(
        f"{name}: {sum(outcomes.kills.values())} kills ({victims}), {outcomes.inputs} inputs, "
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
    parser.add_argument(
        "--all-doors", type=int, metavar="KILLS", help="only these, under the load of all doors at once"
    )
    parser.add_argument("--spark-kills", type=int, default=30, help="how many kills around a pipeline into topics")
    parser.add_argument("--spark-table-kills", type=int, default=20, help="the same around one into Delta tables")
    parser.add_argument("--only-spark", action="store_true", help="nothing but the kills around pipelines")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule, and the seed of the kills")
    parser.add_argument("--schedule", type=int, metavar="SEED", help="repeat this one schedule and nothing else")
    parser.add_argument("--kafka-schedule", type=int, metavar="SEED", help="the same of a journal on Kafka")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the simulated disks fail on purpose, all the time
    if arguments.schedule is not None:
        return 1 if schedules(arguments.schedule, 1) else 0
    if arguments.kafka_schedule is not None:
        return 1 if schedules(arguments.kafka_schedule, 1, kafka=True) else 0
    found, seed = 0, arguments.seed
    if arguments.all_doors is not None:
        return _report(all_doors(arguments.all_doors, seed))
    if arguments.only_spark:
        arguments.kills = arguments.schedules = 0
    if arguments.kills:
        found += all_doors(max(1, arguments.kills // 4), seed)
        found += kills(RustLogAdapter(), arguments.kills, seed, "synced")
        found += kills(RustLogAdapter(), max(1, arguments.kills // 5), seed, "written")
        found += kills(BlipMqAdapter(), max(1, arguments.kills // 2), seed, "synced")
        found += kills(BlipMqAdapter(), max(1, arguments.kills // 10), seed, "written")
        short = BlipMqAdapter(ttl=0.3)
        found += kills(short, max(1, arguments.kills // 10), seed, "synced", ", messages that live for 0.3 s")
    flymq = arguments.kills // 2 if arguments.flymq_kills is None else arguments.flymq_kills
    if flymq:
        found += kills(FlyMqAdapter(), flymq, seed, "synced")
        found += kills(FlyMqAdapter(), max(1, flymq // 5), seed, "written")
    kimberlite = arguments.kills // 4 if arguments.kimberlite_kills is None else arguments.kimberlite_kills
    if kimberlite:
        found += kills(KimberliteAdapter(seed), kimberlite, seed, "synced")
        found += kills(KimberliteAdapter(seed), max(1, kimberlite // 5), seed, "written")
    felix = arguments.kills // 4 if arguments.felix_kills is None else arguments.felix_kills
    if felix:
        found += kills(FelixAdapter(seed), felix, seed, "synced")
        found += kills(FelixAdapter(seed), max(1, felix // 5), seed, "written")
    if arguments.spark_kills:
        found += spark_kills(arguments.spark_kills, seed, "topics")
    if arguments.spark_table_kills:
        found += spark_kills(arguments.spark_table_kills, seed, "tables")
    if arguments.schedules:
        found += schedules(arguments.seed, arguments.schedules)
        found += schedules(arguments.seed, arguments.schedules // 4, kafka=True)
    return _report(found)


def _report(found: int) -> int:
    print("nothing was lost" if not found else f"{found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
