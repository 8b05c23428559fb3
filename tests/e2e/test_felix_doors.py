"""Felix and the four other doors of the real broker: one log, the same events at the same offsets, also after a kill.

A scenario writes through some doors, watches as a Felix subscriber, and says what every door has to show from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest
from tests.e2e.felix_wire import wired
from tests.e2e.test_blipmq import take
from tests.e2e.test_kimberlite import Peer
from tests.e2e.test_kimberlite_tenants import flight_log, pushed, through_flight
from tests.e2e.test_tables import SMALL as TABLES
from tests.e2e.test_tables import journal_bytes, until
from tests.launcher import BrokerProcess, penstock

from penstock.broker.names import Scope
from penstock.clients.blipmq import Client as BlipMqClient
from penstock.clients.felix import CursorError, FelixClient, ReplyError, StreamNotFound, Subscription
from penstock.clients.flymq import Client as FlyMqClient
from penstock.clients.rustlog import Client as RustLogClient
from penstock.flight.log import TopicPartition
from penstock.wire.felix import messages as fm
from penstock.wire.felix.frames import OFFSETS, SHARED, SKIPPED, TIMESTAMPS
from penstock.wire.kimberlite import messages as m

SETTINGS: Final = {"PENSTOCK_KIMBERLITE__TENANTS": "1=default"}  # where protocols without tenants are
OPEN: Final = ("--listen", "felix=127.0.0.1:0", "--listen", "flight=127.0.0.1:0")
ODD: Final = (b"", b"\x00\xff" * 3, "größer".encode(), b"x" * 70_000)  # none of a kind that any protocol likes best
SECONDS: Final = 20.0

Events = Sequence[tuple[int, bytes]]


class Place(NamedTuple):
    topic: str
    partition: int = 0
    several: bool = False  # partitions of the topic

    @property
    def stream(self) -> str:
        return f"{self.topic}#{self.partition}" if self.several else self.topic


Expected = Mapping[Place, Events]


class Doors(contextlib.ExitStack):
    """A client at each door, all of the default tenant."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self.broker = broker
        self.rustlog = self.enter_context(RustLogClient(*broker.endpoint("rustlog")))
        self.blipmq = self.enter_context(BlipMqClient(*broker.endpoint("blipmq"), key="any"))
        self.flymq = self.enter_context(FlyMqClient(*broker.endpoint("flymq")))
        self.kimberlite = self.enter_context(Peer(broker.endpoint("kimberlite"), tenant=1))
        self.felix = self.at_felix()

    def at_felix(self, **options: Any) -> FelixClient:
        return self.enter_context(FelixClient(self.broker.address("felix"), insecure=True, **options))

    def watch(self, stream: str, start: Any = "latest") -> Subscription:
        """Of which the server knows when this returns."""
        return self.enter_context(self.felix.subscribe(stream, start))

    def stream_id(self, place: Place) -> int:
        return self.kimberlite.create(place.topic) + (place.partition << 32)

    def append(self, place: Place, *events: bytes, at: int) -> None:
        """By Kimberlite."""
        told = self.kimberlite.ask(m.AppendEvents(self.stream_id(place), list(events), at))
        assert told == m.AppendEventsResponse(at, len(events)), told

    def check(self, expected: Expected) -> None:
        """Every door shows this, and nothing else."""
        for place, events in expected.items():
            for door in (_by_rustlog, _by_flymq, _by_kimberlite, _by_flight, _by_felix, _by_offsets):
                assert door(self, place, events) == list(events), (door.__name__, place)
            _by_command(self, place, events)


def _by_rustlog(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:  # noqa: ARG001
    found: list[tuple[int, bytes]] = []
    while records := doors.rustlog.fetch(place.topic, place.partition, found[-1][0] + 1 if found else 0).records:
        found += [(record.offset, record.payload) for record in records]
    return found


def _by_flymq(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:  # noqa: ARG001
    found, at = [], 0
    while (fetched := doors.flymq.fetch(place.topic, place.partition, at)).next_offset > at:
        found += [(record.offset, record.value) for record in fetched.records]
        at = fetched.next_offset
    return found


def _by_kimberlite(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:
    with Peer(doors.broker.endpoint("kimberlite"), tenant=1) as peer:
        subscribed = peer.ask(m.Subscribe(doors.stream_id(place), 0, 1000))
        assert isinstance(subscribed, m.SubscribeResponse), subscribed
        return pushed(peer, len(events))


def _by_flight(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:
    return through_flight(doors.broker, place.topic, place.partition, events[-1][0] + 1)


def _by_felix(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:
    with doors.felix.subscribe(place.stream, "earliest") as subscription:
        return taken(subscription, len(events))


def _by_offsets(doors: Doors, place: Place, events: Events) -> list[tuple[int, bytes]]:
    """A replay from each offset begins with what is there, or with what is next."""
    for at in range(min(events[-1][0] + 1, 6)):
        with doors.felix.subscribe(place.stream, at) as subscription:
            assert taken(subscription, 1)[0] == next(event for event in events if event[0] >= at)
    with pytest.raises(CursorError) as refused, doors.felix.subscribe(place.stream, 1 << 40):
        pass
    assert refused.value.available >= events[-1][0] + 1
    return list(events)


def _by_command(doors: Doors, place: Place, events: Events) -> None:
    if all(value.isalnum() and len(value) < 100 for _, value in events):
        command = ("consume", place.topic, "--partition", str(place.partition), "--format", "%o\t%v\\n")
        done = penstock(*command, PENSTOCK_SERVER=doors.broker.address("rustlog"))
        assert done.stdout == "".join(f"{offset}\t{value.decode()}\n" for offset, value in events)


def taken(subscription: Subscription, count: int) -> list[tuple[int, bytes]]:
    """So many events, and whatever came with them; offsets must be told."""
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        batch = subscription.next_batch(SECONDS)
        assert batch is not None, f"{len(found)} of {count} events came: {found[-3:]}"
        assert batch.offset is not None
        found += enumerate(batch.payloads, batch.offset)
    return found


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


# -- scenarios


def felix_writes(doors: Doors) -> Expected:
    """JSON and binary, single and in batches, acknowledged and not, in both dialects."""
    queue, live = doors.blipmq.subscribe("written"), doors.watch("written")
    as_json, as_document = doors.at_felix(encoding="json"), doors.at_felix(dialect="document")
    values = [*ODD, *(b"event%d" % number for number in range(200))]
    as_json.publish("written", values[0])
    as_json.publish_many("written", values[1:4])
    as_document.publish("written", values[4])
    as_document.publish_many("written", values[5:10])
    doors.felix.publish("written", values[10])
    doors.felix.publish_many("written", values[11:100])
    doors.felix.publish_nowait("written", *values[100:190])
    doors.felix.publish_many("written", values[190:])  # on the same stream, so behind the one before
    events = list(enumerate(values))
    assert taken(live, len(events)) == events
    assert [message.value for message in take(queue, len(values))] == values
    return {Place("written"): events}


def others_write(doors: Doors) -> Expected:
    """All four, and Flight, into one partition; keys and headers are not Felix's to show, and disturb nothing."""
    doors.rustlog.create_topic("mixed", 1)
    place, live = Place("mixed"), doors.watch("mixed")
    assert doors.rustlog.produce("mixed", 0, [b"rust0", b"rust1"]).base_offset == 0
    with RustLogClient(*doors.broker.endpoint("rustlog"), dialect="binary") as binary:
        assert binary.produce("mixed", 0, [b"rust2"]).base_offset == 2
    assert doors.flymq.produce("mixed", b"fly3", b"a key").offset == 3
    assert doors.flymq.produce_batch("mixed", [b"fly4", b"fly5"], [b"k", None], 0).offsets == [4, 5]
    doors.blipmq.publish_many("mixed", [b"blip6", b"blip7"])
    doors.blipmq.flush()
    doors.append(place, b"kim8", b"kim9", at=8)
    doors.felix.publish("mixed", b"felix10")
    _put_with_headers(doors, "mixed", b"flight11", b"flight12")
    assert doors.flymq.produce("mixed", b"fly13").offset == 13
    names = "rust0 rust1 rust2 fly3 fly4 fly5 blip6 blip7 kim8 kim9 felix10 flight11 flight12 fly13"
    events = [(offset, name.encode()) for offset, name in enumerate(names.split())]
    assert taken(live, len(events)) == events
    return {place: events}


def _put_with_headers(doors: Doors, topic: str, *values: bytes) -> None:
    log, header = flight_log(doors.broker), pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "trace", "value": b"%d" % at}] for at in range(len(values))], pa.list_(header))
    keys = pa.array([b"key"] * len(values), pa.binary())
    batch = pa.record_batch([keys, pa.array(values, pa.binary()), headers], ["key", "value", "headers"])
    log.publish(topic, 0, [log.stage(topic, 0, "task", topic, iter([batch]), batch.schema).ref])


def partitions(doors: Doors) -> Expected:
    """`wide#N` is a partition, `wide` are all of them, and a publish there goes to the first."""
    doors.rustlog.create_topic("wide", 3)
    places = [Place("wide", number, several=True) for number in range(3)]
    together, lives = doors.watch("wide"), [doors.watch(place.stream) for place in places]
    expected: dict[Place, Events] = {}
    for place, live in zip(places, lives, strict=True):
        values = [b"%s%d" % (door, place.partition) for door in (b"rust", b"fly", b"kim", b"felix")]
        assert doors.rustlog.produce("wide", place.partition, values[:1]).base_offset == 0
        assert doors.flymq.produce("wide", values[1], b"key", place.partition).offset == 1
        doors.append(place, values[2], at=2)
        doors.felix.publish(place.stream, values[3])
        expected[place] = list(enumerate(values))
        assert taken(live, 4) == expected[place]
    doors.felix.publish("wide", b"first")
    expected[places[0]] = [*expected[places[0]], (4, b"first")]
    assert taken(lives[0], 1) == [(4, b"first")]
    for subscription in (together, doors.watch("wide", "earliest")):
        found = [subscription.next(SECONDS) for _ in range(13)]
        assert {event and event.offset for event in found} == {None}
        for events in expected.values():
            values = [value for _, value in events]
            assert [event.payload for event in found if event and event.payload in values] == values
    with pytest.raises(ReplyError, match="3 partitions, each with its own offsets"), doors.felix.subscribe("wide", 1):
        pass
    with pytest.raises(StreamNotFound, match=r"wide#3.*has 3 partitions"):
        doors.felix.publish("wide#3", b"nowhere")
    return expected


def transactions(doors: Doors) -> Expected:
    """Nothing of a transaction is seen before it is committed, and nothing ever of one that is not."""
    lives = [doors.watch(topic) for topic in ("debit", "credit")]
    doors.felix.publish("debit", b"before")
    with doors.flymq.transaction() as kept:
        kept.produce("debit", b"minus1")
        kept.produce("credit", b"plus1")
        doors.felix.publish("debit", b"between")  # has its place before the transaction does
        kept.produce("debit", b"minus2")
    with pytest.raises(ZeroDivisionError), doors.flymq.transaction() as dropped:
        dropped.produce("debit", b"never")
        raise ZeroDivisionError
    doors.felix.publish("credit", b"after")
    debit = list(enumerate([b"before", b"between", b"minus1", b"minus2"]))
    credit = list(enumerate([b"plus1", b"after"]))
    assert [taken(live, len(events)) for live, events in zip(lives, (debit, credit), strict=True)] == [debit, credit]
    return {Place("debit"): debit, Place("credit"): credit}


def expired(doors: Doors) -> Expected:
    """A record that is over leaves a gap, behind which a new frame begins."""
    live = doors.watch("mortal")
    values = [b"kept0", b"kept1", b"over2", b"kept3", b"over4", b"over5", b"kept6"]
    for value in values:
        if value.startswith(b"over"):
            doors.flymq.produce_with_ttl("mortal", value, 400)
        else:
            doors.felix.publish("mortal", value)
    events = [event for event in enumerate(values) if event[1].startswith(b"kept")]
    end = time.monotonic() + SECONDS
    while _by_rustlog(doors, Place("mortal"), []) != events:
        assert time.monotonic() < end, "they do not expire"
        time.sleep(0.05)
    seen: list[tuple[int, bytes]] = []
    while not seen or seen[-1][0] < 6:
        seen += taken(live, 1)
    assert set(events) <= set(seen) <= set(enumerate(values)) and seen == sorted(seen)

    async def frames() -> None:
        async with wired(doors.broker.endpoint("felix")) as wire:
            inbox = await wire.subscribe("mortal", "earliest")
            await wire.until(lambda: len(inbox.events) >= len(events))
            assert inbox.events == events  # whose offsets are counted within each frame: none goes over a gap
            plain = SHARED | OFFSETS | TIMESTAMPS
            assert {flags for flags, _, _ in inbox.batches} == {plain, plain | SKIPPED}

    run(frames())
    return {Place("mortal"): events}


def delayed(doors: Doors) -> Expected:
    """A record that is to appear later has its offset, and reaches subscribers, when it does."""
    live = doors.watch("later")
    doors.felix.publish("later", b"now")
    doors.flymq.produce_delayed("later", b"delayed", 300)
    doors.felix.publish("later", b"soon")
    events = [(0, b"now"), (1, b"soon"), (2, b"delayed")]
    assert taken(live, 3) == events
    return {Place("later"): events}


def recreated(doors: Doors) -> Expected:
    """A deleted topic of the same name is not seen again."""
    doors.felix.publish_many("anew", [b"old0", b"old1", b"old2"])
    doors.flymq.delete_topic("anew")
    doors.rustlog.create_topic("anew", 1)
    live = doors.watch("anew")
    doors.felix.publish("anew", b"new0")
    doors.append(Place("anew"), b"new1", at=1)
    events = [(0, b"new0"), (1, b"new1")]
    assert taken(live, 2) == events
    return {Place("anew"): events}


def letters(doors: Doors) -> Expected:
    """A record that does not match the topic's schema is refused or becomes a dead letter, whichever door sent it."""
    found = re.search(r"^  data +(\S+)$", doors.broker.block, re.MULTILINE)
    assert found is not None
    change = ("topic", "set", "orders", "--data-dir", found[1])
    doors.rustlog.create_topic("orders", 1)
    doors.flymq.register_schema("order", "json", b'{"type": "object", "required": ["id"]}')
    assert penstock(*change, "--schema", "order").returncode == 0
    good, bad = [b'{"id": %d}' % at for at in range(4)], [b"bad%d" % at for at in range(3)]
    live = doors.watch("orders")
    doors.felix.publish("orders", good[0])
    with pytest.raises(ReplyError, match="schema"):
        doors.felix.publish_many("orders", [good[1], bad[0]])
    assert penstock(*change, "--rejected", "dead-letter").returncode == 0
    doors.felix.publish_many("orders", [good[1], bad[0], good[2]])
    doors.felix.publish_batches("orders", [[bad[1]], [good[3]]])
    doors.flymq.produce("orders", bad[2])
    assert taken(live, 4) == list(enumerate(good))
    return {Place("orders"): list(enumerate(good)), Place("orders.dlq"): list(enumerate(bad))}


SCENARIOS: Final[tuple[Callable[[Doors], Expected], ...]] = (
    felix_writes, others_write, partitions, transactions, expired, delayed, recreated, letters,
)  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that only need one; each has topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("doors") / "data", *OPEN, **SETTINGS) as broker:
        yield broker.ready()


@pytest.fixture
def doors(broker: BrokerProcess) -> Iterator[Doors]:
    with Doors(broker) as doors:
        yield doors


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_one_log_behind_all_doors(doors: Doors, scenario: Callable[[Doors], Expected]) -> None:
    doors.check(scenario(doors))


def test_one_log_after_a_kill(tmp_path: Path) -> None:
    """And it goes on where it was, whoever writes next."""
    expected: dict[Place, Events] = {}
    with BrokerProcess(tmp_path, *OPEN, **SETTINGS) as first:
        with Doors(first.ready()) as doors:
            for scenario in SCENARIOS:
                expected |= scenario(doors)
        first.signal(signal.SIGKILL)
        assert first.finish()[0] == -signal.SIGKILL
    with BrokerProcess(tmp_path, *OPEN, **SETTINGS) as second, Doors(second.ready()) as doors:
        doors.check(expected)
        for place, events in expected.items():
            live, end = doors.watch(place.stream), events[-1][0] + 1
            more = [(end, b'{"id": "felix"}'), (end + 1, b'{"id": "rust"}')]
            doors.felix.publish(place.stream, more[0][1])
            assert doors.rustlog.produce(place.topic, place.partition, [more[1][1]]).base_offset == end + 1
            assert taken(live, 2) == more


# -- tenants


def test_a_tenant_of_kimberlite_is_one_of_felix(broker: BrokerProcess) -> None:
    """Its name is its number. Doors without tenants see nothing of it."""
    with Doors(broker) as doors, Peer(broker.endpoint("kimberlite"), tenant=7) as seven:
        of_seven = doors.at_felix(tenant="7")
        of_seven.publish("apart", b"felix0")
        stream = seven.create("apart")
        assert seven.ask(m.AppendEvents(stream, [b"kim1"], 1)) == m.AppendEventsResponse(1, 1)
        of_seven.publish_many("apart", [b"felix2"])
        events = [b"felix0", b"kim1", b"felix2"]
        assert seven.ask(m.ReadEvents(stream, 0, 1000)) == m.ReadEventsResponse(events, None)
        with of_seven.subscribe("apart", "earliest") as subscription:
            assert taken(subscription, 3) == list(enumerate(events))
        place, scope = TopicPartition("apart", 0), Scope("7", "default")
        (batch,) = flight_log(broker, scope=scope).read(place, 0, 3, ["value"])
        assert batch.column("value").to_pylist() == events
        of_seven.publish("apart", b"of another namespace", namespace="other")
        doors.felix.publish("apart", b"of the default tenant")
        assert doors.rustlog.fetch("apart", 0, 0).records[0].payload == b"of the default tenant"
        for client, namespace, value in (
            (of_seven, "other", b"of another namespace"),
            (doors.felix, "default", b"of the default tenant"),
        ):
            with client.subscribe("apart", "earliest", namespace=namespace) as subscription:
                assert taken(subscription, 1) == [(0, value)]
        assert seven.ask(m.StreamInfo(stream)) == m.StreamInfoResponse(3)


# -- how event streams end


def test_a_topic_that_another_door_deletes_ends_its_event_streams(broker: BrokerProcess) -> None:
    async def main() -> None:
        with Doors(broker) as doors:
            doors.felix.publish_many("doomed", [b"one", b"two"])
            doors.felix.publish("spared", b"one")
            async with wired(broker.endpoint("felix")) as wire:
                behind = await wire.subscribe("doomed", "earliest")
                at_end, other = await wire.subscribe("doomed"), await wire.subscribe("spared")
                await wire.until(lambda: len(behind.events) == 2)
                doors.flymq.delete_topic("doomed")
                await wire.until(lambda: behind.over and at_end.over)
                assert (behind.reset_code, at_end.reset_code) == (None, None)  # a FIN, behind all that there was
                assert behind.events == [(0, b"one"), (1, b"two")] and at_end.events == []
                doors.felix.publish("spared", b"two")
                await wire.until(lambda: other.events)
                assert not other.over
                doors.rustlog.create_topic("doomed", 1)  # another, of the same name
                assert doors.rustlog.produce("doomed", 0, [b"new"]).base_offset == 0
                again = await wire.subscribe("doomed", "earliest")
                await wire.until(lambda: again.events)
                assert again.events == [(0, b"new")]

    run(main())


SMALL: Final = {
    "PENSTOCK_LOG__FILE_BYTES": "256KiB",
    "PENSTOCK_LOG__ENTRY_BYTES": "256KiB",
    "PENSTOCK_LOG__GROUP_BYTES": "256KiB",
    "PENSTOCK_LIMITS__RECORD_BYTES": "128KiB",
    "PENSTOCK_TOPICS__RETENTION_BYTES": "300000",
}


def test_who_is_overtaken_by_retention_is_told(tmp_path: Path) -> None:
    """A subscriber that stops reading while what it has not got is removed: its stream is reset, and not ended."""

    async def main(broker: BrokerProcess, doors: Doors) -> None:
        window = 64 << 10
        async with wired(broker.endpoint("felix"), connection_window=window, stream_window=window) as wire:
            slow = await wire.subscribe("short", "earliest")
            wire.link.pause()
            last = 0
            for number in range(60):
                values = [b"%06d" % (64 * number + at) + bytes(2000) for at in range(64)]
                doors.felix.publish_many("short", values)
                last = 64 * (number + 1)
            end = time.monotonic() + SECONDS
            while (start := doors.rustlog.describe_partition("short", 0).log_start_offset or 0) < last - 500:
                assert time.monotonic() < end, f"retention does not begin: {start}"
                await asyncio.sleep(0.1)
            wire.link.resume()
            await wire.until(lambda: slow.over)
            assert slow.reset_code == 0x11 and not slow.ended  # `Reset.OVERTAKEN`
            offsets = [offset for offset, _ in slow.events]
            assert offsets == list(range(len(offsets))) and len(offsets) < start
            assert all(int(value[:6]) == offset for offset, value in slow.events)
            behind = await wire.subscribe("short", fm.From(start))
            await wire.until(lambda: behind.events)
            assert behind.events[0][0] == start

    flags = ("--durability", "written", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(tmp_path, *flags, **SETTINGS, **SMALL) as broker:
        with Doors(broker.ready()) as doors:
            run(main(broker, doors))
        broker.signal(signal.SIGKILL)
        assert broker.finish()[0] == -signal.SIGKILL
    with BrokerProcess(tmp_path, *flags, **SETTINGS, **SMALL) as broker, Doors(broker.ready()) as doors:
        with doors.felix.subscribe("short", "earliest") as subscription:
            first = subscription.next(SECONDS)
            assert first is not None and first.offset is not None and int(first.payload[:6]) == first.offset
        with pytest.raises(CursorError, match="too old"), doors.felix.subscribe("short", 0):
            pass


# -- the past


def test_the_past_comes_from_a_table_and_the_seam_does_not_show(tmp_path: Path) -> None:
    """Also for one who was in the middle of it."""
    flags, data = ("--listen", "felix=127.0.0.1:0"), tmp_path / "data"
    # What is before the record that expires is more than the client's window, what the broker keeps unsent of a stream
    # (256 KiB) and a chunk together: or else the record could be on its way before it has expired.
    values = [b"%06d" % number + b"." * 2_000 for number in range(600)]
    events = [event for event in enumerate(values) if event[0] != 300]

    async def follow(broker: BrokerProcess, doors: Doors) -> None:
        window = 64 << 10
        async with wired(broker.endpoint("felix"), connection_window=window, stream_window=window) as wire:
            halted = await wire.subscribe("old", "earliest")
            wire.link.pause()
            doors.felix.publish_batches("old", [values[at : at + 20] for at in range(0, 300, 20)])
            doors.flymq.produce_with_ttl("old", values[300], 1)
            doors.felix.publish_batches("old", [values[at : at + 20] for at in range(301, 600, 20)])
            await asyncio.to_thread(until, lambda: 0 < journal_bytes(data) < sum(map(len, values)))
            wire.link.resume()
            await wire.until(lambda: halted.over or len(halted.events) >= len(events))
            assert halted.events == events

    with BrokerProcess(data, *flags, **SETTINGS, **TABLES) as broker, Doors(broker.ready()) as doors:
        run(follow(broker, doors))
        for at in (0, 299, 300, 301):
            expected = [event for event in events if event[0] >= at]
            with doors.felix.subscribe("old", at) as subscription:
                assert taken(subscription, len(expected)) == expected
        assert any((data / "tables").rglob("*.parquet"))
