"""Queues through the BlipMQ door, version 1, QoS 1: publishing, taking one at a time and many, and many subscriptions.

Each rate stands beside its ratio to a server that parses and keeps nothing, driven by the same client in the same
rounds. Messages are stored before the clock of a drain runs, and are read from the broker's memory.
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from benchmarks import blip_load as load
from benchmarks import blip_wire as wire
from benchmarks import machine
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, Sample, latency, merged, percentile, ratios
from benchmarks.settings import Run

TITLE: Final = "BlipMQ queues, QoS 1, one connection"
TOPIC: Final = "bench"
SIZES: Final = (64, 1024)
PIECE: Final = 1 << 17  # bytes of PUBLISH frames in one write
SUBSCRIPTIONS: Final = 10_000
MESSAGES: Final = 1_000_000
PAIRS: Final = 15  # rounds of publishing to one and to many: two equal brokers differ by a third in a single one
KIB, MIB = 1 << 10, 1 << 20

SETTINGS: Final = {
    "QUEUES__CAPACITY": "10000000",  # the defaults drop what is beyond 1,024 messages, or older than a minute
    "QUEUES__TTL_SECONDS": "1h",
    "QUEUES__BACKOFF_SECONDS": "1m",  # a client that waits for a processor gets nothing twice
}


class Taking(NamedTuple):
    """How messages are taken, and at least how many a second, by their size."""

    name: str
    durability: str
    messages: dict[int, int]  # by size: in one round at most; they fit the memory tail of 32 MiB
    in_flight: int = 1
    two_writes: bool = False
    looks: bool = False  # the client, for a moment, before it sleeps
    target: float | None = None  # at both sizes
    target_of_64: float | None = None


TAKINGS: Final = (
    Taking("round trip, ACK + POLL in one write", "written", {64: 20_000, 1024: 20_000}, target=15_000),
    Taking("round trip, client looks", "written", {64: 20_000, 1024: 20_000}, looks=True, target=15_000),
    Taking(
        "round trip, ACK, then POLL, no TCP_NODELAY",
        "written",
        {64: 20_000, 1024: 20_000},
        two_writes=True,
        target=10_000,
    ),
    Taking(
        "round trip, ACK, then POLL, client looks",
        "written",
        {64: 20_000, 1024: 20_000},
        two_writes=True,
        looks=True,
        target=10_000,
    ),
    Taking("64 polls in flight", "written", {64: 100_000, 1024: 24_000}, 64, target_of_64=150_000),
    Taking("round trip, ACK + POLL in one write", "synced", {64: 2_000, 1024: 2_000}),
)
PUBLISH_TARGET: Final = 500_000.0  # of 64 B


def rounds(run: Run) -> int:
    return 3 if run.quick else 5


def seconds(run: Run) -> float:
    """Of one measurement, at most."""
    return run.seconds / 2


def about(run: Run) -> str:
    return f"{rounds(run)} rounds of at most {seconds(run):g} s, interleaved; " + ", ".join(
        f"{name.lower().replace('__', '.')}={value}" for name, value in SETTINGS.items()
    )


def measure(run: Run, report: Report) -> None:
    for size in SIZES:
        _publish(run, report, size)
    for taking in TAKINGS:
        for size in SIZES:
            _take(run, report, taking, size)
    _many_subscriptions(run, report)


def _piece(size: int) -> tuple[bytes, int]:
    """PUBLISH frames for one write, and how many they are."""
    count = PIECE // len(wire.publish(TOPIC, bytes(size)))
    return b"".join([wire.publish(TOPIC, os.urandom(size)) for _ in range(count)]), count


def _publish(run: Run, report: Report, size: int) -> None:
    piece, count = _piece(size)
    bare = load.BareServer(b"")
    found, bound = [], []
    with run.broker("written", SETTINGS) as broker:
        broker.create_topic(TOPIC)
        job = partial(load.Publish, piece=piece, messages=count, seconds=seconds(run), watch=broker.cpu_seconds)
        found.append(load.run(job(broker.blipmq_port)))
        for _ in range(rounds(run)):
            found.append(load.run(job(broker.blipmq_port)))
            bound.append(load.run(job(bare.port)).sample)
        broker.expect(TOPIC, sum(outcome.sample.count for outcome in found))
    bare.close()
    target = PUBLISH_TARGET if size == 64 else None
    _show(report, f"written, {size} B, publish, pipelined", found[1:], bound, "messages/s", target)


def _take(run: Run, report: Report, taking: Taking, size: int) -> None:
    piece, count = _piece(size)
    delivery = wire.publish(TOPIC, bytes(size), 1)
    pieces = -(-taking.messages[size] // count)
    bare = load.BareServer(delivery)
    found, bound = [], []
    with run.broker(taking.durability, SETTINGS) as broker:
        broker.create_topic(TOPIC)
        fill = partial(_fill, load.Publish(broker.blipmq_port, piece, count, 60, pieces))
        job = partial(
            load.Drain, topic=TOPIC, delivery=delivery, messages=taking.messages[size], seconds=seconds(run),
            in_flight=taking.in_flight, two_writes=taking.two_writes, looks=taking.looks, watch=broker.cpu_seconds,
            groups=partial(_groups, broker) if taking.durability == "synced" else int,
        )  # fmt: skip
        load.run(job(broker.blipmq_port, fill=fill))
        for _ in range(rounds(run)):
            found.append(load.run(job(broker.blipmq_port, fill=fill)))
            bound.append(load.run(job(bare.port, fill=_nothing)).sample)
        name = f"{taking.durability}, {size} B, {taking.name}"
        target = taking.target or (taking.target_of_64 if size == 64 else None)
        _show(report, name, found, bound, "deliveries/s", target)
        if taking.durability == "synced":
            _show_disk(run, report, found)
    bare.close()


def _fill(publish: load.Publish) -> None:
    publish.run()


def _groups(broker: BrokerProcess) -> int:
    return broker.journal().groups


def _nothing() -> None:
    """A bare server has as many messages as it is asked for."""


def _show(
    report: Report, name: str, found: list[load.Outcome], bound: list[Sample], unit: str, target: float | None
) -> None:
    samples = [outcome.sample for outcome in found]
    whole, used = merged(samples), sum(outcome.used for outcome in found)
    rates = [sample.rate for sample in samples]
    note = f"{1e6 * used / whole.count:.2f} µs each of the broker, {used / whole.seconds:.2f} cores"
    if whole.latencies:
        note += f"; {latency(whole)}; bare {latency(merged(bound))}"
    report.add(name, median(rates), unit, target=target, note=note)
    report.add("  ratio to a bare server", ratios(rates, [sample.rate for sample in bound]))


def _show_disk(run: Run, report: Report, found: list[load.Outcome]) -> None:
    """What bounds it: every delivery waits until it, and the ACK before it, are on disk."""
    raw = machine.RawFile(run.directory, 16 << 20)
    sync = raw.synced(256, seconds(run))
    raw.close()
    trips = merged([outcome.sample for outcome in found])
    groups = sum(outcome.groups for outcome in found) / trips.count
    report.add("  groups of the journal synced for a delivery", groups)
    share = percentile(sync.latencies, 0.5) / percentile(trips.latencies, 0.5)
    report.add("  share of one raw write + fdatasync in a round trip (p50)", share, note=f"raw {latency(sync)}")


# -- many subscriptions


def _many_subscriptions(run: Run, report: Report) -> None:
    """The same messages to a broker with one subscription and to one with many, none of which polls meanwhile.

    Memory of subscriptions is measured before there are many messages: these leave free memory behind, which new
    subscriptions would take without any growth to be seen.
    """
    piece, count = _piece(SIZES[0])
    messages = MESSAGES // 10 if run.quick else MESSAGES
    pieces = -(-messages // (PAIRS * count))
    rates: list[list[float]] = [[], []]
    with run.broker("written") as few, run.broker("written") as many:
        brokers = (few, many)
        for broker in brokers:
            broker.create_topic(TOPIC)
            load.run(load.Subscribe(broker.blipmq_port, TOPIC, 1))
        _show_subscriptions(report, many, piece, count)
        before = [_resident(broker) for broker in brokers]
        for number in range(PAIRS + 1):
            for which in (0, 1) if number % 2 else (1, 0):
                job = load.Publish(brokers[which].blipmq_port, piece, count, 60, pieces)
                rates[which].append(load.run(job).sample.rate)
        growth = [_resident(broker) - at for broker, at in zip(brokers, before, strict=True)]
    one, all_ = rates[0][1:], rates[1][1:]  # the first round warms up
    total = pieces * count * (PAIRS + 1)
    note = f"{total:,} messages added {growth[1] / MIB:.1f} MiB, with one subscription {growth[0] / MIB:.1f} MiB"
    each = (growth[1] - growth[0]) / total
    report.add("  memory of a message beyond that with one", each, "B", target=64, at_most=True, note=note)
    note = f"{median(all_):,.0f}/s, with one subscription {median(one):,.0f}/s; {PAIRS} pairs of rounds"
    report.add("  publishing, ratio to one subscription", ratios(all_, one), target=0.8, note=note)


def _show_subscriptions(report: Report, broker: BrokerProcess, piece: bytes, count: int) -> None:
    start = _resident(broker)
    started = load.run(load.Subscribe(broker.blipmq_port, TOPIC, SUBSCRIPTIONS))
    new = (_resident(broker) - start) / SUBSCRIPTIONS / KIB
    name = f"{SUBSCRIPTIONS:,} subscriptions: memory of one"
    note = f"started at {started.sample.rate:,.0f}/s"
    report.add(name, new, "KiB", target=2, at_most=True, note=note)
    load.run(load.Publish(broker.blipmq_port, piece, count, 60, 1))
    start = _resident(broker)
    took = load.run(load.TakeOneEach(broker.blipmq_port, started.ids, wire.publish(TOPIC, bytes(SIZES[0]), 1)))
    used = new + (_resident(broker) - start) / SUBSCRIPTIONS / KIB
    note = f"each took and acknowledged one message, at {took.sample.rate:,.0f}/s"
    report.add("  of one that was used and is idle again", used, "KiB", target=2, at_most=True, note=note)


def _resident(broker: BrokerProcess) -> int:
    return broker.memory()[1]
