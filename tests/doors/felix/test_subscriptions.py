"""Event streams, as a client of either dialect sees them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.felix.peer import NAMES, TENANT, Binary, Peer, Stream, auth, batch, original, publish
from tests.effort import scaled

from penstock.broker.fetch import removal
from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS, AccessPolicy, Grant, Permission
from penstock.doors.felix import subscriptions
from penstock.doors.felix.errors import RequestRefused
from penstock.doors.felix.handlers.subscribe import CursorError, beginning
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.subscriptions import HELD_BYTES, NextRead, Reset, next_read
from penstock.log.engine import Bounds, CommitGroup, partition_id
from penstock.wire.felix.codec.binary import Batch, decode_events, encode_batch
from penstock.wire.felix.codec.dialects import Document, Original
from penstock.wire.felix.messages import From

HERE = (ANONYMOUS, Scope(TENANT, "default"))
SUBSCRIBE = {"type": "subscribe", **NAMES}
READER = "reader"

Calls = list[tuple[Callable[[], None], Callable[[], None]]]


def a_broker(events: int = 0, partitions: int = 1, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(*HERE, "orders", partitions)
    fixture.commit()
    produce(fixture, events)
    return fixture


def produce(fixture: BrokerFixture, count: int = 1, partition: int = 0, size: int = 0, **options: Any) -> None:
    """Events that say their offset."""
    if count:
        first = fixture.engine.next_offset(place(fixture, partition))
        values = [(b"%d" % offset).ljust(size) for offset in range(first, first + count)]
        fixture.broker.produce.append(*HERE, "orders", partition, values, **options)
    fixture.commit()


def place(fixture: BrokerFixture, partition: int = 0) -> Any:
    return partition_id(fixture.broker.topics.describe(*HERE, "orders").topic.id, partition)


def trim(fixture: BrokerFixture, start: int) -> None:
    fixture.engine.trim({place(fixture): start})
    fixture.commit()


class Events:
    """The frames that a client got on an event stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.hello: Any = None
        self.frames: list[list[bytes]] = []
        self.flags: list[int] = []
        self.bases: list[int | None] = []
        self.notices: list[str] = []

    @property
    def payloads(self) -> list[bytes]:
        return [payload for frame in self.frames for payload in frame]

    @property
    def numbers(self) -> list[int]:
        return list(map(int, self.payloads))

    def take(self) -> Events:
        """All that was sent; the stream is not congested after that."""
        for frame in self.stream.drain():
            self._read(frame)
        return self

    def _read(self, frame: dict[str, Any] | Binary) -> None:
        if self.hello is None:
            assert isinstance(frame, dict)
            assert frame["type"] == "event_stream_hello"
            self.hello = frame["subscription_id"]
        elif isinstance(frame, Binary):
            self._read_binary(frame)
        elif frame["type"] == "error":
            self.notices.append(frame["message"])
        else:
            assert {key: frame[key] for key in NAMES} == {**NAMES, "stream": frame["stream"]}
            payloads = [frame["payload"]] if frame["type"] == "event" else frame["payloads"]
            assert frame["type"] == ("event" if len(payloads) == 1 else "event_batch")
            self.frames.append([base64.b64decode(payload) for payload in payloads])
            self.flags.append(0)

    def _read_binary(self, frame: Binary) -> None:
        at = 0
        if frame.flags & 0x02:
            assert struct.unpack_from(">Q", frame.payload) == (self.hello,)
            at = 8
        base = struct.unpack_from(">Q", frame.payload, at)[0] if frame.flags & 0x20 else None
        at += 8 if frame.flags & 0x20 else 0
        (count,) = struct.unpack_from(">I", frame.payload, at)
        at += 4
        payloads = []
        for _ in range(count):
            (length,) = struct.unpack_from(">I", frame.payload, at)
            payloads.append(frame.payload[at + 4 : at + 4 + length])
            at += 4 + length
        assert at == len(frame.payload)
        self.flags.append(frame.flags)
        self.bases.append(base)
        self.frames.append(payloads)


def subscribe(peer: Peer, stream: Stream | None = None, of: str = "orders", **fields: Any) -> Events:
    """The event stream of a new subscription, which was accepted."""
    stream = peer.stream() if stream is None else stream
    before = len(peer.line.opened)
    reply = stream.ask({**SUBSCRIBE, "stream": of, **fields})
    assert reply["type"] in ("ok", "subscribed"), reply
    assert len(peer.line.opened) == before + 1
    events = Events(peer.line.opened[-1])
    assert events.stream.sent, "hello is there with the reply"
    return events


# -- where it begins


BOUNDS = Bounds(10, 20)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, [(0, None)]),
        ("latest", [(0, None)]),
        ("earliest", [(0, 10)]),
        (From(10), [(0, 10)]),
        (From(15), [(0, 15)]),
        (From(20), [(0, 20)]),
        (From(9), CursorError("too_old", 9, 10)),
        (From(0), CursorError("too_old", 0, 10)),
        (From(21), CursorError("in_future", 21, 20)),
        (From(2**64 - 1), CursorError("in_future", 2**64 - 1, 20)),
    ],
)
def test_where_a_subscription_begins(start: Any, expected: Any) -> None:
    assert beginning(start, [(0, BOUNDS)]) == expected


def test_where_a_subscription_to_several_partitions_begins() -> None:
    partitions = [(0, BOUNDS), (1, Bounds(3, 3))]
    assert beginning(None, partitions) == [(0, None), (1, None)]
    assert beginning("earliest", partitions) == [(0, 10), (1, 3)]
    with pytest.raises(RequestRefused, match="2 partitions"):
        beginning(From(12), partitions)


def test_in_the_documents_dialect() -> None:
    fixture = a_broker(3)
    peer = Peer(fixture)
    stream = peer.stream()
    assert stream.ask({**SUBSCRIBE, "request_id": "r1"}) == {"type": "ok", "request_id": "r1", "subscription_id": "1"}
    events = Events(peer.line.opened[0]).take()
    assert (events.hello, events.frames) == ("1", [])
    produce(fixture)
    produce(fixture, 2)
    events.take()
    assert events.frames == [[b"3"], [b"4", b"5"]]
    assert stream.ask(publish(b"6")) == {"type": "ok"}, "the stream it was asked on goes on"
    assert events.take().numbers == [3, 4, 5, 6]


def test_in_the_originals_dialect() -> None:
    fixture = a_broker(3)
    peer = Peer(fixture)
    stream = original(peer)
    assert stream.ask(SUBSCRIBE) == {"type": "subscribed", "subscription_id": 1}
    events = Events(peer.line.opened[0]).take()
    assert events.hello == 1
    produce(fixture, 2)
    events.take()
    assert (events.flags, events.bases, events.frames) == ([0x24], [3], [[b"3", b"4"]])


@pytest.mark.parametrize(("client_flags", "flags", "bases"), [(63, 0x24, [0]), (7, 0x04, [None]), (None, 0x02, [None])])
def test_events_are_of_the_kind_that_a_client_said_it_reads(
    client_flags: int | None, flags: int, bases: list[int | None]
) -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer, original(peer, client_flags=client_flags))
    produce(fixture, 2)
    events.take()
    assert (events.flags, events.bases, events.numbers) == ([flags], bases, [0, 1])


def test_times_of_events_are_told_where_asked() -> None:
    """Of those that are read, and of those that are delivered as they come."""
    fixture = a_broker()
    produce(fixture, 1)
    peer = Peer(fixture)
    asked = subscribe(peer, original(peer, client_flags=0x4024), start="earliest")
    plain = subscribe(peer, original(peer, client_flags=0x24), start="earliest")
    fixture.now += 5_000_000
    produce(fixture, 2)
    found = [
        decode_events(frame.flags, frame.payload) for frame in asked.stream.drain() if isinstance(frame, Binary)
    ]  # fmt: skip
    log = fixture.broker.fetch.plan(ADMINISTRATOR, Scope(TENANT, "default"), "orders", 0, 0, 1 << 20, 100).run()
    times = [time for part in log for time in part.timestamps()]
    assert [time for events in found for time in events.timestamps or []] == times
    assert times[1] - times[0] >= 5_000_000
    assert plain.take().flags == [0x24, 0x24]


def test_offsets_that_hold_no_event_are_counted_where_asked() -> None:
    """Also across frames, and not for who did not ask."""
    fixture = a_broker()
    soon = fixture.now + 1
    produce(fixture, 12, expires=[soon, 0, soon, 0, 0, soon, soon, soon, soon, soon, 0, soon])
    fixture.now += 2
    peer = Peer(fixture, FelixSettings(batch_events=2))
    asked = subscribe(peer, original(peer, client_flags=0x0824), start="earliest")
    plain = subscribe(peer, original(peer, client_flags=0x0024), start="earliest")
    produce(fixture, 1)
    told = [
        (events.base_offset, len(events.payloads), events.skipped or 0)
        for frame in asked.stream.drain()
        if isinstance(frame, Binary)
        for events in [decode_events(frame.flags, frame.payload)]
    ]
    behind = 0
    for base, count, skipped in told:
        assert base is not None
        assert base - skipped == behind
        behind = base + count
    assert [(base, skipped) for base, _, skipped in told if skipped] == [(1, 1), (3, 1), (10, 5), (12, 1)]
    assert set(plain.take().flags) == {0x24}


def test_a_shard_of_a_subscription_is_the_partition_or_is_refused() -> None:
    fixture = a_broker(partitions=3)
    produce(fixture, 2, partition=1)
    peer = Peer(fixture)
    for stream in (peer.stream(), original(peer)):
        assert subscribe(peer, stream, start={"offset": 0}, shard=1).take().numbers == [0, 1]
        refused = stream.ask({**SUBSCRIBE, "shard": 3})
        assert "has 3 partitions" in refused["message"]
        assert "partition 1" in stream.ask({**SUBSCRIBE, "stream": "orders#1", "shard": 2})["message"]


def test_clients_that_know_of_partitions_get_the_first_if_they_name_none() -> None:
    """As those of the original, which then subscribe to the others too."""
    fixture = a_broker(partitions=3)
    for partition in range(3):
        produce(fixture, 2, partition=partition)
    peer = Peer(fixture)
    stream = peer.stream()
    assert stream.ask(auth() | {"client_features": 0x20})["server_features"] == 0x20
    assert stream.ask({"type": "stream_shards", **NAMES, "request_id": 4}) == {
        "type": "stream_shards_view", "shards": 3, "request_id": 4,
    }  # fmt: skip
    missing = {"type": "stream_shards", **NAMES, "stream": "nothing", "request_id": 5}
    assert stream.ask(missing)["shards"] == 0
    events = subscribe(peer, stream, start={"offset": 1}).take()
    assert (events.flags, events.bases) == ([0x24], [1])


def test_an_id_that_the_client_chose_is_echoed() -> None:
    peer = Peer(a_broker())
    stream = original(peer, client_flags=None)
    assert stream.ask({**SUBSCRIBE, "subscription_id": 2**64 - 1})["subscription_id"] == 2**64 - 1
    assert Events(peer.line.opened[0]).take().hello == 2**64 - 1
    produce(peer.fixture)
    assert Events(peer.line.opened[0]).stream.sent


def test_ids_are_not_used_twice_at_any_connection() -> None:
    peer = Peer(a_broker())
    other = Peer(peer.fixture, door=peer.door)
    numbers = [subscribe(each).take().hello for each in (peer, other, peer)]
    assert numbers == ["1", "2", "3"]


@pytest.mark.parametrize("start", ["earliest", {"offset": 0}])
def test_from_the_first_event(start: object) -> None:
    fixture = a_broker(200)
    peer = Peer(fixture, FelixSettings(batch_events=64))
    events = subscribe(peer, original(peer), start=start).take()
    assert events.numbers == list(range(200))
    assert events.bases == [0, 64, 128, 192]
    produce(fixture)
    assert events.take().numbers == list(range(201))


def test_from_an_offset_and_from_the_end() -> None:
    fixture = a_broker(10)
    peer = Peer(fixture)
    events = [subscribe(peer, original(peer), start={"offset": offset}) for offset in (7, 10)]
    produce(fixture)
    assert [each.take().numbers for each in events] == [[7, 8, 9, 10], [10]]


def test_cursors_that_are_out_of_range() -> None:
    fixture = a_broker(10)
    trim(fixture, 4)
    peer = Peer(fixture)
    stream = original(peer)
    for offset, reason, available in ((3, "too_old", 4), (11, "in_future", 10)):
        reply = stream.ask({**SUBSCRIBE, "start": {"offset": offset}})
        expected = {"reason": reason, "requested": offset, "available": available}
        assert reply == {"type": "subscribe_cursor_error", **expected}
    reply = peer.stream().ask({**SUBSCRIBE, "start": {"offset": 3}, "request_id": 5})
    assert (reply["type"], reply["request_id"]) == ("error", 5)
    assert "4" in reply["message"]
    assert peer.line.opened == []
    assert not peer.host.subscriptions


def test_what_the_stream_published_before_is_not_delivered_and_what_comes_after_is() -> None:
    peer = Peer(a_broker())
    stream = peer.stream()
    stream.feed(publish(b"0"), SUBSCRIBE, publish(b"1"))
    peer.fixture.commit()
    assert [reply.get("subscription_id") for reply in stream.replies() if isinstance(reply, dict)] == [None, "1", None]
    assert Events(peer.line.opened[0]).take().numbers == [1]


def test_hello_and_the_reply_are_there_before_anything_is_replayed() -> None:
    calls: Calls = []
    fixture = a_broker(10, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = Peer(fixture)
    events = subscribe(peer, start="earliest")
    assert len(events.stream.sent) == 1, "only the hello"
    run(calls)
    assert events.take().numbers == list(range(10))


def run(calls: Calls) -> None:
    while calls:
        work, done = calls.pop(0)
        work()
        done()


# -- topics


def test_a_stream_that_is_missing_comes_into_being() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    events = subscribe(peer)
    peer.stream().ask(publish(b"0"))
    assert events.take().numbers == [0]


def test_or_does_not() -> None:
    peer = Peer(BrokerFixture(auto_create_topics=False))
    reply = peer.stream().ask(SUBSCRIBE)
    assert reply == {"type": "error", "message": "stream not found: tenant=t1 namespace=default stream=orders"}
    assert peer.line.opened == []


def test_if_it_could_not_be_kept_there_is_no_subscription(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    stream = peer.stream()
    fault = fixture.fill_disk()
    assert stream.ask(SUBSCRIBE)["type"] == "error"
    (opened,) = peer.line.opened
    assert (opened.sent, opened.reset_with) == ([], Reset.FAILED)
    assert not peer.host.subscriptions
    fixture.free_disk(fault)
    assert subscribe(peer, stream).take().hello
    assert "Traceback" not in caplog.text


def test_all_partitions_are_followed_and_offsets_are_not_told() -> None:
    fixture = a_broker(partitions=3)
    for partition in range(3):
        produce(fixture, 100, partition)
    peer = Peer(fixture)
    events = subscribe(peer, original(peer), start="earliest").take()
    assert sorted(events.numbers) == sorted([*range(100)] * 3)
    assert set(events.flags) == {0x04}
    assert len({len(frame) for frame in events.frames[:3]}) == 1, "in turn"
    produce(fixture, 1, 2)
    assert events.take().numbers[300:] == [100]


def test_an_offset_of_several_partitions_is_refused() -> None:
    peer = Peer(a_broker(partitions=2))
    reply = original(peer).ask({**SUBSCRIBE, "start": {"offset": 0}})
    assert reply["type"] == "error"
    assert "NAME#0" in reply["message"]


def test_one_partition_of_a_topic() -> None:
    fixture = a_broker(partitions=2)
    produce(fixture, 5, 0)
    produce(fixture, 3, 1)
    peer = Peer(fixture)
    events = subscribe(peer, original(peer), of="orders#1", start={"offset": 1}).take()
    assert (events.flags, events.bases, events.numbers) == ([0x24], [1], [1, 2])
    document = subscribe(peer, of="orders#1", start="earliest")
    names = {frame["stream"] for frame in document.stream.replies()[1:] if isinstance(frame, dict)}
    assert names == {"orders#1"}, "as the client calls it"
    assert "stream not found" in peer.stream().ask({**SUBSCRIBE, "stream": "orders#2"})["message"]


# -- limits


def test_a_connection_has_only_so_many_subscriptions() -> None:
    peer = Peer(a_broker(), FelixSettings(subscriptions=2))
    stream = peer.stream()
    first = subscribe(peer, stream)
    subscribe(peer, stream)
    expected = {"type": "error", "message": "max subscriptions per connection exceeded"}
    assert stream.ask(SUBSCRIBE) == expected
    first.stream.session.refused(0)
    subscribe(peer, stream)
    assert stream.ask(SUBSCRIBE) == expected


def test_a_client_that_allows_no_more_streams_is_told() -> None:
    peer = Peer(a_broker(), streams=1)
    stream = peer.stream()
    subscribe(peer, stream)
    assert "no more streams" in stream.ask(SUBSCRIBE)["message"]
    assert len(peer.host.subscriptions) == 1
    assert peer.fixture.broker.fanout.figures().subscribers == 1


# -- frames


def test_a_frame_has_so_many_events_and_bytes() -> None:
    fixture = a_broker(10)
    peer = Peer(fixture, FelixSettings(batch_events=4))
    assert [len(frame) for frame in subscribe(peer, start="earliest").take().frames] == [4, 4, 2]
    peer = Peer(fixture, FelixSettings(batch_bytes=1024))
    produce(fixture, 5, size=400)
    assert [len(frame) for frame in subscribe(peer, start={"offset": 10}).take().frames] == [2, 2, 1]


def test_a_gap_begins_a_new_frame() -> None:
    fixture = a_broker()
    produce(fixture, 5, expires=[0, 0, fixture.now + 1, 0, 0])
    fixture.pass_time(1)
    peer = Peer(fixture)
    events = subscribe(peer, original(peer), start="earliest").take()
    assert events.frames == [[b"0", b"1"], [b"3", b"4"]]
    assert events.bases == [0, 3]


@pytest.mark.parametrize("dialect", ["document", "original"])
def test_what_does_not_fit_one_frame_is_in_several(dialect: str) -> None:
    fixture = a_broker()
    produce(fixture, 3000, size=4)
    peer = Peer(fixture, FelixSettings(max_frame=8192, batch_events=5000, batch_bytes=1 << 20))
    events = subscribe(peer, peer.stream() if dialect == "document" else original(peer), start="earliest")
    assert max(len(data) for data in frame_sizes(events.stream)) <= 8192
    assert events.take().numbers == list(range(3000))
    assert len(events.frames) > 1
    assert events.bases in ([], [int(frame[0]) for frame in events.frames])


def test_what_is_before_and_behind_an_event_that_fits_no_frame_is_delivered() -> None:
    fixture = a_broker()
    fixture.broker.produce.append(*HERE, "orders", 0, [b"0", b"1", bytes(70_000), b"3"])
    fixture.commit()
    peer = Peer(fixture, FelixSettings(max_frame=64 << 10, batch_bytes=1 << 20))
    events = subscribe(peer, original(peer), start="earliest")
    assert events.take().payloads == [b"0", b"1", b"3"]
    assert events.bases == [0, 3], "the client sees which one is missing"
    assert events.stream.reset_with is None


def test_a_stream_that_is_lost_before_it_is_broken_off_is_left_alone() -> None:
    calls: Calls = []
    fixture = a_broker(2, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = Peer(fixture)
    events = subscribe(peer, original(peer), start="earliest")
    trim(fixture, 1)
    calls.pop(0)[1]()
    peer.stop()
    assert not events.stream.finished
    events.stream.session.refused(5)
    run(calls)
    assert events.stream.reset_with == 5


def frame_sizes(stream: Stream) -> list[bytes]:
    data, found = b"".join(stream.sent), []
    while data:
        (length,) = struct.unpack_from(">I", data, 8)
        found.append(data[12 : 12 + length])
        data = data[12 + length :]
    return found


@pytest.mark.parametrize("dialect", ["document", "original"])
def test_an_event_that_fits_no_frame_is_left_out(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    fixture = a_broker()
    limit = 100_000
    peer = Peer(fixture, FelixSettings(max_frame=limit))
    events = subscribe(peer, peer.stream() if dialect == "document" else original(peer))
    names, flags = (TENANT, NAMES["namespace"], "orders"), 0x3F
    kind: Any = Document() if dialect == "document" else Original()
    fits = kind.largest_event(names, flags, limit, offsets=True)
    produce(fixture)
    produce(fixture, size=fits)
    assert limit - 4 < max(map(len, frame_sizes(events.stream))) <= limit
    assert events.take().numbers == [0, 1]
    produce(fixture, size=fits + 1)
    produce(fixture)
    assert events.take().numbers == [0, 1, 3]
    assert events.stream.reset_with is None
    text = f"the record at offset 2 has {fits + 1} bytes, and a frame carries {fits} at most"
    assert text in caplog.text
    assert [text in notice for notice in events.notices] == [True] * (dialect == "document")
    assert fixture.broker.metrics.records_unsendable == 1
    assert fixture.broker.metrics.messages_fetched == 3


@pytest.mark.parametrize("dialect", ["document", "original"])
def test_a_legal_publish_is_left_out_for_those_whose_frames_are_too_small_and_for_nobody_else(dialect: str) -> None:
    """13 MiB fit a frame of 16 MiB in binary, and not in Base64."""
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer, peer.stream() if dialect == "document" else original(peer))
    sender = original(peer)
    big = encode_batch(Batch(TENANT, NAMES["namespace"], "orders", [bytes(13 << 20)], 1))
    small = encode_batch(Batch(TENANT, NAMES["namespace"], "orders", [b"1"], 2))
    sender.feed(big + small)
    fixture.commit()
    assert [len(payload) for payload in events.take().payloads] == [13 << 20, 1][dialect == "document" :]
    assert len(events.notices) == (dialect == "document")
    assert events.stream.reset_with is None


# -- fan-out


def test_events_are_encoded_once_for_each_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count(dialect: Any) -> None:
        plain = dialect.events

        def events(self: Any, *arguments: Any) -> Any:
            made.append(self.name)
            return plain(self, *arguments)

        monkeypatch.setattr(dialect, "events", events)

    count(Document)
    count(Original)
    fixture = a_broker()
    peers = [Peer(fixture, port=port) for port in range(50000, 50010)]
    subscribers = [subscribe(peer) for peer in peers for _ in range(10)]
    subscribers += [subscribe(peer, original(peer)) for peer in peers for _ in range(10)]
    for _ in range(3):
        produce(fixture, 5)
    assert sorted(made) == ["document"] * 3 + ["original"] * 3
    assert all(events.take().numbers == list(range(15)) for events in subscribers)
    assert fixture.broker.metrics.messages_fetched == 15 * 200


def test_a_thousand_subscribers() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    stream = original(peer)
    subscribers = [subscribe(peer, stream) for _ in range(1000)]
    produce(fixture, 3)
    assert all(events.take().numbers == [0, 1, 2] for events in subscribers)
    assert fixture.broker.fanout.figures().subscribers == 1000
    peer.line.lose()
    assert fixture.broker.fanout.figures().subscribers == 0
    assert fixture.broker.fanout.budget.used == 0
    assert not peer.host.subscriptions


def test_one_that_stops_reading_holds_little_and_loses_nothing_and_others_go_on() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    stuck, fine = subscribe(peer, original(peer)), subscribe(peer, original(peer))
    stuck.stream.limit = 1000
    for _ in range(200):
        produce(fixture, 50, size=100)
    assert fine.take().numbers == list(range(10_000))
    held = sum(map(len, stuck.stream.sent)) + stuck.stream.session.held_bytes
    assert held < 1000 + 2 * (64 << 10)
    assert fixture.broker.fanout.figures().lag > 9000
    while len(stuck.payloads) < 10_000:
        before = len(stuck.payloads)
        stuck.take()
        assert len(stuck.payloads) > before
    assert stuck.numbers == list(range(10_000))
    assert stuck.bases == sorted(base for base in stuck.bases if base is not None)


def test_a_replay_lets_others_have_a_turn() -> None:
    calls: Calls = []
    fixture = a_broker(20_000, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = Peer(fixture)
    first, second = subscribe(peer, start="earliest"), subscribe(peer, start="earliest")
    seen: list[tuple[int, int]] = []
    while calls:
        work, done = calls.pop(0)
        work()
        done()
        seen.append((len(first.take().payloads), len(second.take().payloads)))
    assert seen[-1] == (20_000, 20_000)
    stretch = subscriptions.MAX_PER_TURN + 64
    assert all(abs(one - other) <= 2 * stretch for one, other in seen), "neither waits for all of the other"


def test_a_replay_of_very_much_does_not_go_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = a_broker()
    monkeypatch.setattr(subscriptions, "MAX_PER_TURN", 1)
    produce(fixture, 3_000)
    events = subscribe(Peer(fixture, FelixSettings(batch_events=1)), start="earliest")
    assert events.take().numbers == list(range(3_000))


# -- slow ones


@pytest.mark.parametrize(
    ("slow", "position", "head", "full", "expected"),
    [
        ("keep", 0, 1_000, None, NextRead(0)),
        ("drop_old", 0, 10, None, NextRead(0)),
        ("drop_old", 0, 11, None, NextRead(1)),
        ("drop_old", 5, 100, None, NextRead(90)),
        ("drop_old", 100, 100, None, NextRead(100)),
        ("drop_new", 0, 10, None, NextRead(0)),
        ("drop_new", 0, 11, None, NextRead(0, 10)),
        ("drop_new", 5, 100, 10, NextRead(5, 10)),
        ("drop_new", 10, 100, 10, NextRead(100)),
        ("drop_new", 100, 100, None, NextRead(100)),
        ("drop_new", 90, 100, None, NextRead(90)),
    ],
)
def test_the_course_of_a_subscription(
    slow: str, position: int, head: int, full: int | None, expected: NextRead
) -> None:
    assert next_read(slow, position, head, 10, full) == expected


@pytest.mark.parametrize(
    ("slow", "got"),
    [
        ("keep", [*range(101)]),
        ("drop_old", [0, *range(90, 101)]),
        ("drop_new", [*range(11), 100]),
    ],
)
def test_what_a_slow_subscriber_loses(slow: str, got: list[int]) -> None:
    fixture = a_broker()
    peer = Peer(fixture, FelixSettings(slow=slow, queue_events=10, batch_events=4))
    events, other = subscribe(peer).take(), subscribe(peer)
    events.stream.limit = 0
    produce(fixture)  # is on its way, and congests the stream
    other.take()
    for _ in range(33):
        produce(fixture, 3)
        other.take()
    assert events.take().numbers == [0]
    while True:
        before = len(events.payloads)
        if len(events.take().payloads) == before:
            break
    if slow != "keep":
        assert events.numbers == [number for number in got if number < 100]
    produce(fixture)
    for _ in range(30):
        events.take()
    assert events.numbers == got
    assert fixture.broker.metrics.broadcast_dropped == 101 - len(got)
    assert other.take().numbers == list(range(101))


@pytest.mark.parametrize("slow", ["drop_old", "drop_new"])
def test_what_was_asked_for_is_not_dropped(slow: str) -> None:
    fixture = a_broker(1000)
    peer = Peer(fixture, FelixSettings(slow=slow, queue_events=10))
    assert subscribe(peer, start="earliest").take().numbers == list(range(1000))
    assert fixture.broker.metrics.broadcast_dropped == 0


# -- how it ends


def followers(fixture: BrokerFixture) -> int:
    return fixture.broker.fanout.figures().subscribers


def test_a_client_that_wants_no_more_gets_no_more() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events, other = subscribe(peer), subscribe(peer)
    events.stream.session.refused(0)
    assert events.stream.reset_with == 0
    produce(fixture)
    assert events.stream.session.held_bytes == 0
    assert followers(fixture) == 1
    assert other.take().numbers == [0]


def test_a_stream_that_is_lost_is_forgotten() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer)
    events.stream.session.lost()
    produce(fixture)
    assert len(events.stream.sent) == 1
    assert (followers(fixture), len(peer.host.subscriptions)) == (0, 0)


def test_a_stream_that_is_lost_during_a_read_is_forgotten() -> None:
    calls: Calls = []
    fixture = a_broker(10, executor=later(calls), scheduler=LaterScheduler(calls))
    events = subscribe(Peer(fixture), start="earliest")
    events.stream.session.lost()
    run(calls)
    assert len(events.stream.sent) == 1


def test_when_the_topic_is_deleted_the_stream_ends_behind_what_was_sent() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events, idle = subscribe(peer), subscribe(peer)
    produce(fixture, 2)
    idle.take()
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.sweep(fixture.now)
    assert not events.stream.finished, "it is not certain yet"
    fixture.commit()
    for each in (events, idle):
        assert each.stream.finished
        assert each.stream.reset_with is None
    assert Events(events.stream).take().numbers == [0, 1]
    assert not peer.host.subscriptions


def test_when_the_topic_is_not_deleted_after_all_the_stream_does_not_end_as_if_it_were() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer)
    fault = fixture.fill_disk()
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert not events.stream.finished
    assert events.stream.reset_with == Reset.FAILED
    fixture.free_disk(fault)
    assert fixture.broker.topics.exists(HERE[1], "orders")


def test_at_shutdown_the_stream_is_left_without_an_end_so_that_clients_go_on_elsewhere() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer)
    produce(fixture, 2)
    fixture.broker.topics.create(*HERE, "another", 1)  # so that there is something unsettled
    peer.stop()
    assert not events.stream.left
    fixture.commit()
    assert events.stream.left and not events.stream.finished
    assert events.stream.reset_with is None
    assert events.take().numbers == [0, 1]
    assert followers(fixture) == 0


def test_a_stream_that_was_ending_ends_also_at_shutdown() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer)
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.sweep(fixture.now)
    peer.stop()
    fixture.commit()
    assert events.stream.finished and not events.stream.left


def test_retention_that_overtakes_a_subscriber_breaks_the_stream_off(caplog: pytest.LogCaptureFixture) -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer, original(peer)).take()
    events.stream.limit = 10
    for _ in range(3):
        produce(fixture, 100)
    sent = 100  # with the first commit
    trim(fixture, 250)
    events.take()
    assert events.stream.reset_with == Reset.OVERTAKEN
    assert events.numbers == list(range(sent))
    assert fixture.broker.metrics.broadcast_dropped == 250 - sent
    assert "is broken off: offset 100 out of range" in caplog.text
    assert not peer.host.subscriptions


def test_who_may_not_read_any_more_gets_no_more() -> None:
    grants = {"anonymous": [Grant("anonymous", frozenset({Permission.ADMIN}))]}
    fixture = BrokerFixture(access=AccessPolicy(enforced=True))
    fixture.broker.access.grants_of = lambda identity: grants.get(identity.name)
    fixture.broker.topics.create(*HERE, "orders", 1)
    fixture.commit()
    peer = Peer(fixture, identity=ANONYMOUS._replace(name=READER))
    reply = peer.stream().ask(SUBSCRIBE)
    assert reply["type"] == "error"
    assert "unauthorized" in reply["message"]
    grants[READER] = [Grant(READER, frozenset({Permission.READ}))]
    events = subscribe(peer)
    produce(fixture)
    assert events.take().numbers == [0]
    grants[READER] = []
    produce(fixture)
    assert events.stream.reset_with == Reset.DENIED
    assert events.stream.replies() == []


def test_who_may_not_read_makes_nothing_come_into_being() -> None:
    writer = Grant(READER, frozenset({Permission.WRITE, Permission.CREATE, Permission.DESCRIBE}))
    fixture = BrokerFixture(access=AccessPolicy(enforced=True, grants=[writer]))
    peer = Peer(fixture, identity=ANONYMOUS._replace(name=READER))
    assert "unauthorized" in peer.stream().ask(SUBSCRIBE)["message"]
    assert not fixture.broker.topics.exists(HERE[1], "orders")


def test_what_depended_on_a_change_that_failed_is_not_sent() -> None:
    fixture = a_broker(4)
    peer = Peer(fixture)
    stream = peer.stream()
    fault = fixture.fill_disk()
    fixture.broker.topics.create(*HERE, "another", 1)  # so that there is something unsettled
    stream.feed({**SUBSCRIBE, "start": "earliest"})
    (opened,) = peer.line.opened
    assert opened.sent == []
    fixture.commit()
    assert (opened.sent, opened.reset_with) == ([], Reset.FAILED)
    fixture.free_disk(fault)


def test_what_depends_on_a_change_waits_for_it() -> None:
    fixture = a_broker(4)
    peer = Peer(fixture)
    stream = peer.stream()
    fixture.broker.topics.create(*HERE, "another", 1)
    stream.feed({**SUBSCRIBE, "start": "earliest"})
    (opened,) = peer.line.opened
    assert opened.sent == []
    fixture.commit()
    assert Events(opened).take().numbers == [0, 1, 2, 3]


def test_only_so_much_is_made_that_waits_for_a_change() -> None:
    fixture = a_broker()
    fixture.broker.produce.append(*HERE, "orders", 0, [b"%d" % number + bytes(10_000) for number in range(200)])
    fixture.commit()
    peer = Peer(fixture)
    stream = peer.stream()
    fixture.broker.topics.create(*HERE, "another", 1)
    stream.feed({**SUBSCRIBE, "start": "earliest"})
    (opened,) = peer.line.opened
    assert opened.session.held_bytes < HELD_BYTES + 200_000
    fixture.commit()
    assert len(Events(opened).take().payloads) == 200


def remove(fixture: BrokerFixture, offset: int) -> CommitGroup:
    """Take a record out of the midst of the log, as the broker does by itself at times."""
    state_log, partition = fixture.broker.state_log, place(fixture)
    removed, limits = state_log.state.removed, fixture.broker.limits
    event = removal.remove(removed, limits, partition, [offset], 0, "default", lambda _: True)
    return state_log.commit((event,))


def test_events_around_one_that_is_being_removed_wait_until_it_is() -> None:
    fixture = a_broker()
    peer = Peer(fixture)
    events = subscribe(peer).take()
    events.stream.limit = 0
    produce(fixture)  # congests it
    produce(fixture, 3)
    remove(fixture, 2)
    assert events.take().numbers == [0]
    assert events.stream.sent == []
    assert events.stream.session.held_bytes > 0
    fixture.commit()
    assert events.take().frames == [[b"0"], [b"1"], [b"3"]]


def test_if_it_is_not_removed_after_all_nothing_behind_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_PER_TURN", 1)
    calls: Calls = []
    fixture = a_broker(4, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = Peer(fixture, FelixSettings(batch_events=1))
    events = subscribe(peer, start="earliest").take()
    fault = fixture.fill_disk()
    remove(fixture, 1).on_done(lambda _: run(calls))  # what is next is looked at before the stream hears of the failure
    calls.pop(0)[1]()
    assert len(calls) == 1, "the first event waits, and others have a turn"
    fixture.commit()
    assert events.stream.reset_with == Reset.FAILED
    assert events.stream.sent == []
    fixture.free_disk(fault)


# -- any order of things


MAX_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 30)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("offload"), st.just(0)),
        st.tuples(st.just("drain"), st.integers(0, 3)),
        st.tuples(st.just("congest"), st.integers(0, 3)),
        st.tuples(st.just("subscribe"), st.integers(0, 3)),
        st.tuples(st.just("state"), st.just(0)),
    ),
    max_size=40,
)


@given(MAX_STEPS, st.integers(1, 9), st.booleans())
@settings(max_examples=scaled(120))
def test_every_subscriber_gets_everything_once_and_in_order(
    steps: list[tuple[str, int]], batch_events: int, small: bool
) -> None:
    calls: Calls = []
    fixture = a_broker(5, executor=later(calls), scheduler=LaterScheduler(calls))
    if small:
        fixture.broker.fanout.budget.limit = 3_000
    peer = Peer(fixture, FelixSettings(batch_events=batch_events))
    streams = [peer.stream(), original(peer), peer.stream(), original(peer)]
    subscribed: list[tuple[Events, int]] = []  # and from where it gets events
    topics = 0
    for what, number in steps:
        if what == "publish":
            first = fixture.engine.next_offset(place(fixture))
            fixture.broker.produce.append(*HERE, "orders", 0, [b"%d" % (first + index) for index in range(number)])
        elif what == "commit":
            fixture.commit()
        elif what == "offload" and calls:
            work, done = calls.pop(0)
            work()
            done()
        elif what == "subscribe" and len(subscribed) < 4:
            start = fixture.engine.bounds(place(fixture)).high_watermark if number < 2 else 0
            streams[len(subscribed)].feed({**SUBSCRIBE, "start": "latest" if number < 2 else "earliest"})
            subscribed.append((Events(peer.line.opened[-1]), start))
        elif what == "state":
            topics += 1
            fixture.broker.topics.create(*HERE, f"topic{topics}", 1)
        elif number < len(subscribed):
            events, _ = subscribed[number]
            if what == "drain":
                events.take()
            else:
                events.stream.limit = None if events.stream.limit else 60
    end = fixture.engine.next_offset(place(fixture))
    for _ in range(1000):
        fixture.commit()
        run(calls)
        if not calls and not any(events.stream.sent for events, _ in subscribed):
            break
        for events, _ in subscribed:
            events.take()
    for events, start in subscribed:
        assert events.numbers == list(range(start, end))
        told = [base for base in events.bases if base is not None]
        assert told == [int(frame[0]) for frame in events.frames][: len(told)]


def test_auth_is_not_forgotten() -> None:
    """The identity of an event stream is that of the stream it was asked on."""
    peer = Peer(a_broker())
    stream = peer.stream()
    stream.ask(auth())
    assert stream.ask({**SUBSCRIBE, "tenant_id": "t2"})["message"] == "tenant mismatch"


# -- large batches of one length, which are not cut into their values


@pytest.mark.parametrize("dialect", ["document", "original"])
@pytest.mark.parametrize("limit", [64 << 10, 1000])
def test_events_of_large_batches_are_delivered_as_they_were_published(dialect: str, limit: int) -> None:
    peer = Peer(a_broker(), FelixSettings(batch_bytes=limit))
    events = subscribe(peer, None if dialect == "document" else original(peer))
    published = [[bytes([first + number]) * 300 for number in range(64)] for first in (0, 64, 128)]
    original(peer).all(*[batch(*each) for each in published])
    events.take()
    assert events.payloads == [value for each in published for value in each]
    assert len(events.frames) == (1 if limit > 1000 else 64)
