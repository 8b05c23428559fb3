from __future__ import annotations

import gzip
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import START, BrokerFixture, later
from tests.doors.flymq.peer import Peer
from tests.doors.rustlog.peer import Peer as RustLogPeer
from tests.effort import scaled

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.flymq.handlers import dead_letters
from penstock.doors.flymq.handlers.table import HANDLERS
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.log.engine import partition_id
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import requests
from penstock.wire.flymq.frames import frame
from penstock.wire.flymq.opcodes import Op
from penstock.wire.rustlog.messages import Fetch, FetchResponse, Produce, ProduceResponse

MS = START // 1000


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture)


def fetch(
    peer: Peer,
    topic: str = "t",
    partition: int = 0,
    offset: int = 0,
    count: int = 100,
    filter: str = "",  # noqa: A002 - that is what it is
) -> m.Fetched:
    reply = peer.ask(m.Fetch(topic, partition, offset, count, filter, bool(filter)))
    assert isinstance(reply, m.Fetched)
    return m.Fetched(reply.records, reply.next_offset)  # whatever its order was


def values(fetched: m.Fetched) -> list[bytes]:
    return [record.value for record in fetched.records]


# -- the document's own examples

EXAMPLE = bytes.fromhex("AF 01 01 01 00 00 00 13 00 04 74 65 73 74 00 00 00 00 00 00 00 05 68 65 6C 6C 6F FF FF FF FF")
REPLY = bytes.fromhex(
    "AF 01 01 01 00 00 00 22 00 04 74 65 73 74 00 00 00 00 00 00 00 00 00 00 00 2A 00 00 01 8D 5A 3B 2C 00 FF FF FF FF"
    "00 00 00 05"
)


@pytest.mark.parametrize("pieces", [1, 3, 31])
def test_the_documents_example_holds_byte_for_byte_and_the_connection_goes_on(
    fixture: BrokerFixture, pieces: int
) -> None:
    peer = Peer(fixture)
    fixture.now = 0x18D5A3B2C00 * 1000
    peer.all(*[m.Produce("test", None, b"x") for _ in range(42)])
    step = -(-len(EXAMPLE) // pieces)
    for at in range(0, len(EXAMPLE), step):
        peer.feed(EXAMPLE[at : at + step])
    fixture.commit()
    assert peer.raw() == REPLY
    assert peer.ask(m.Consume("test", 0, 42)) == m.Consumed(None, b"hello")
    assert peer.ask(m.Produce("test", None, b"again")) == m.RecordMetadata("test", 0, 43, fixture.now // 1000, -1, 5)


# -- every opcode is served


def test_every_opcode_but_replies_has_an_operation() -> None:
    assert set(HANDLERS) == set(Op) - {Op.AUTH_RESPONSE, Op.ERROR}


@pytest.mark.parametrize("opcode", [0x00, 0x1F, 0x71, 0xA0, 0xFE, 0xFF])
def test_an_unknown_opcode_is_told_and_the_connection_goes_on(peer: Peer, opcode: int) -> None:
    assert peer.refused(frame(opcode, b"whatever")) == f"unknown opcode: {opcode}"
    assert peer.ask(m.ListTopics()) == m.TopicList([])


@pytest.mark.parametrize("opcode", sorted(HANDLERS), ids=lambda opcode: Op(opcode).name)
def test_junk_under_every_opcode_is_told_and_the_connection_goes_on(
    fixture: BrokerFixture, peer: Peer, opcode: int
) -> None:
    for payload in (b"", b"\x00", b"\xff" * 40, b"\x00\x04test" + b"\xff" * 30):
        peer.feed(frame(opcode, payload))
        fixture.commit()
        assert len(peer.frames()) == 1
    assert not peer.closed
    assert isinstance(peer.ask(m.ListTopics()), m.TopicList)


@pytest.mark.parametrize(
    "data",
    [b"\xae\x01\x01\x01\0\0\0\0", b"\xaf\x02\x01\x01\0\0\0\0", b"\xaf\x01\x01\x01\x02\x00\x00\x01"],
    ids=["magic", "version", "length"],
)
def test_what_is_no_frame_closes_without_a_word_after_what_came_before(fixture: BrokerFixture, data: bytes) -> None:
    peer = Peer(fixture)
    peer.feed(m.Produce("t", None, b"v"), data, m.ListTopics())
    assert not peer.closed
    fixture.commit()
    assert [frame.opcode for frame in peer.frames()] == [Op.PRODUCE]
    assert peer.closed


# -- records


def test_records_get_their_place_and_come_out_again(peer: Peer) -> None:
    assert peer.ask(m.CreateTopic("t", 3)) == m.Done()
    placed = peer.all(m.Produce("t", b"k", b"one"), m.Produce("t", None, b"two"), m.Produce("t", None, b"three", 2))
    first, second, third = placed
    assert isinstance(first, m.RecordMetadata) and first.key_size == 1 and first.timestamp_ms == MS
    assert isinstance(second, m.RecordMetadata) and (second.partition, second.offset) == (0, second.offset)
    assert isinstance(third, m.RecordMetadata) and third.partition == 2
    for record, value in ((first, b"one"), (second, b"two"), (third, b"three")):
        consumed = peer.ask(m.Consume("t", record.partition, record.offset))
        assert isinstance(consumed, m.Consumed) and consumed.value == value


def test_the_same_key_goes_to_the_same_partition(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 6))
    placed = [peer.ask(m.Produce("t", b"key", b"v")) for _ in range(5)]
    partitions = {record.partition for record in placed if isinstance(record, m.RecordMetadata)}
    number = 2166136261  # FNV-1a of 32 bits
    for byte in b"key":
        number = (number ^ byte) * 16777619 % 2**32
    assert partitions == {number % 6}


def test_without_a_key_records_go_round(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 3))
    placed = peer.all(*[m.Produce("t", None, b"v") for _ in range(6)])
    assert [record.partition for record in placed if isinstance(record, m.RecordMetadata)] == [0, 1, 2, 0, 1, 2]


def test_a_partition_that_is_not_there(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 2))
    assert peer.refused(m.Produce("t", None, b"v", 2)) == "partition 2 not found"
    assert peer.refused(m.Consume("t", -1, 0)) == "partition -1 out of range"
    assert peer.refused(m.Fetch("t", -1, 0, 10)) == "partition -1 not found"
    assert peer.refused(m.Subscribe("t", "g", -1, "earliest")) == "partition -1 not found"
    assert peer.refused(m.CreateTopic("u", -1)).startswith("Invalid partition count")
    assert peer.refused(m.Consume("nope", 0, 0)) == "topic not found"
    assert peer.refused(m.Fetch("nope", 0, 0, 10)) == "topic not found: nope"
    assert peer.refused(m.Consume("t", 0, 0)) == "EOF"


def test_what_is_refused_brings_no_topic_into_being() -> None:
    peer = Peer(BrokerFixture(limits=Limits(record_bytes=100)))
    assert peer.refused(m.Produce("t", None, b"v", 1)) == "partition 1 not found"
    assert "larger than the limit" in peer.refused(m.Produce("t", None, b"x" * 101))
    assert peer.ask(m.ListTopics()) == m.TopicList([])


def test_one_bad_record_in_a_run_is_refused_alone_and_in_its_place() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=100))
    peer = Peer(fixture)
    found = peer.all(
        m.Produce("t", None, b"a"),
        m.Produce("t", None, b"x" * 101),
        m.Produce("t", None, b"b"),
        m.Produce("t", None, b"c"),
    )
    assert [type(reply) for reply in found] == [m.RecordMetadata, m.Failure, m.RecordMetadata, m.RecordMetadata]
    assert values(fetch(peer)) == [b"a", b"b", b"c"]


def test_a_run_costs_one_append(fixture: BrokerFixture, peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 1))
    peer.feed(*[m.Produce("t", None, b"v") for _ in range(500)])
    assert fixture.engine.gathered == 1
    fixture.commit()
    assert len(peer.replies()) == len(values(fetch(peer, count=500))) == 500


def test_no_reply_before_the_commit(fixture: BrokerFixture, peer: Peer) -> None:
    peer.feed(m.Produce("t", None, b"v"), m.Fetch("t", 0, 0, 10))
    assert peer.sent == []
    fixture.commit()
    produced, fetched = peer.replies()
    assert isinstance(produced, m.RecordMetadata)
    assert isinstance(fetched, m.Fetched) and values(fetched) == [b"v"]


def test_a_failed_commit_is_told_to_each(fixture: BrokerFixture, peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 1))
    fault = fixture.fill_disk()
    found = peer.all(m.Produce("t", None, b"a"), m.Produce("t", None, b"b"))
    assert [type(reply) for reply in found] == [m.Failure, m.Failure]
    fixture.free_disk(fault)
    assert isinstance(peer.ask(m.Produce("t", None, b"c")), m.RecordMetadata)
    assert values(fetch(peer)) == [b"c"]


def test_a_batch_of_a_producer_counts_once(peer: Peer) -> None:
    """Also with records that the broker deals out, and with another batch in between."""
    peer.ask(m.CreateTopic("t", 3))
    first = m.ProduceRecords("t", "loader", 0, 4, [None, b"k", None], [b"a", b"b", b"c"], [-1, -1, 2], [])
    second = m.ProduceRecords("t", "loader", 0, 5, [None], [b"d"], [-1], [])
    stored, next_one = peer.ask(first), peer.ask(second)
    assert isinstance(stored, m.ProducedBatch)
    assert stored.partitions[0] == 4 % 3
    assert stored.partitions[2] == 2
    assert peer.ask(first) == stored
    assert peer.ask(second) == next_one
    found = [value for number in range(3) for value in values(fetch(peer, partition=number))]
    assert sorted(found) == [b"a", b"b", b"c", b"d"]


def test_a_producers_batches_have_no_gap_and_a_higher_epoch_ends_lower_ones(peer: Peer) -> None:
    def batch(epoch: int, sequence: int, producer: str = "loader", topic: str = "t") -> m.ProduceRecords:
        return m.ProduceRecords(topic, producer, epoch, sequence, [None], [b"%d" % sequence], [-1], [])

    peer.ask(batch(0, 0))
    assert peer.refused(batch(0, 2)) == "out of order: sequence 2 does not follow 0"
    peer.ask(batch(1, 9))
    assert peer.refused(batch(0, 1)) == "producer fenced: epoch 0 was replaced by epoch 1"
    peer.ask(batch(0, 1, producer="another"))
    peer.ask(batch(0, 5, topic="u"))
    assert values(fetch(peer)) == [b"0", b"9", b"1"]
    assert peer.refused(m.ProduceRecords("t", "loader", 1, 10, [None], [b"x"], [7], [])) == "partition 7 not found"
    peer.ask(batch(1, 10))  # what was refused has not taken its number


def test_a_repeated_number_with_other_records_is_refused(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 2))
    peer.ask(m.ProduceRecords("t", "p", 0, 0, [None, None], [b"a", b"b"], [0, 1], []))
    refusal = peer.refused(m.ProduceRecords("t", "p", 0, 0, [None], [b"a"], [0], []))
    assert refusal == "Batch 0 of this producer was another one"


def test_records_come_with_their_times_and_headers(peer: Peer) -> None:
    peer.ask(m.ProduceRecords("t", "", 0, 0, [b"k", None], [b"a", b""], [0, 0], [[("trace", b"\0")], []]))
    found = peer.ask(m.FetchRecords("t", 0, 0, 10))
    assert isinstance(found, m.FetchedRecords)
    assert [(each.key, each.value, each.headers) for each in found.records] == [
        (b"k", b"a", (("trace", b"\0"),)),
        (None, b"", ()),
    ]
    assert {each.timestamp_us // 1000 for each in found.records} == {MS}
    one = peer.ask(m.FetchRecords("t", 0, 0, 1))
    assert isinstance(one, m.FetchedRecords)
    assert (one.next_offset, len(one.records)) == (1, 1)
    assert peer.refused(m.FetchRecords("nowhere", 0, 0, 1)) == "topic not found: nowhere"


def test_a_batch_is_stored_as_one(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 2))
    reply = peer.ask(m.ProduceBatch("t", [None, b"k", None], [b"a", b"b", b"c"], [0, 1, 0]))
    assert reply == m.ProducedBatch("t", MS, [0, 1, 0], [0, 0, 1])
    assert values(fetch(peer, partition=0)) == [b"a", b"c"]
    assert peer.refused(m.ProduceBatch("t", [None, None], [b"a", b"b"], [0, 9])) == "partition 9 not found"
    assert values(fetch(peer, partition=0)) == [b"a", b"c"]


def test_gzip_requests(peer: Peer) -> None:
    payload = requests.encode(m.Produce("t", None, b"v" * 1000))[8:]
    assert isinstance(peer.ask(frame(Op.PRODUCE, gzip.compress(payload), 0x03)), m.RecordMetadata)
    assert values(fetch(peer)) == [b"v" * 1000]
    assert peer.refused(frame(Op.PRODUCE, b"not gzip", 0x03)) == "invalid gzip data"
    bomb = gzip.compress(b"\0" * (40 << 20))
    assert "too large" in peer.refused(frame(Op.PRODUCE, bomb, 0x03))
    assert "zstd" in peer.refused(frame(Op.PRODUCE, payload, 0x07))


# -- fetching


def test_fetch_has_the_order_that_the_request_asks_for(peer: Peer) -> None:
    peer.ask(m.Produce("t", b"k", b"v"))
    peer.feed(m.Fetch("t", 0, 0, 10), m.Fetch("t", 0, 0, 10, "", code_order=True))
    spec, code = peer.frames()
    one, key, value, zero, next_offset = b"\0\0\0\x01", b"\0\0\0\x01k", b"\0\0\0\x01v", b"\0" * 8, b"\0" * 7 + b"\x01"
    assert spec.payload == one + key + value + zero + next_offset
    assert code.payload == one + next_offset + zero + key + value


def test_fetch_ends_where_the_log_ends(peer: Peer) -> None:
    peer.all(*[m.Produce("t", None, b"%d" % number) for number in range(25)])
    assert len(fetch(peer, count=0).records) == 10
    assert [record.offset for record in fetch(peer, offset=20).records] == [20, 21, 22, 23, 24]
    assert fetch(peer, offset=20).next_offset == 25
    assert fetch(peer, offset=25) == m.Fetched([], 25)
    assert fetch(peer, offset=1000) == m.Fetched([], 1000)


def test_a_reply_never_outgrows_a_frame(peer: Peer) -> None:
    big = b"x" * (3 << 20)
    for _ in range(12):
        peer.ask(m.Produce("t", None, big))
    offset, count = 0, 0
    while (found := fetch(peer, offset=offset, count=1000)).records:
        assert sum(map(len, values(found))) < 32 << 20
        offset, count = found.next_offset, count + len(found.records)
    assert count == 12


def test_a_filter_reads_on_until_it_finds(peer: Peer) -> None:
    wanted = 4321
    records = [m.Produce("t", None, b'{"a": {"b": 1}}' if number == wanted else b"{}") for number in range(5000)]
    peer.all(*records)
    for text in ("$.a.b", '"B": 1', r"b.: \d"):
        found = fetch(peer, filter=text)
        assert [record.offset for record in found.records] == [wanted], text
        assert found.next_offset == 5000
    assert fetch(peer, filter="nothing like it") == m.Fetched([], 5000)


def test_a_filter_takes_no_more_than_wanted(peer: Peer) -> None:
    peer.all(*[m.Produce("t", None, b"yes" if number % 2 else b"no") for number in range(100)])
    first = fetch(peer, filter="yes", count=3)
    assert [record.offset for record in first.records] == [1, 3, 5]
    second = fetch(peer, filter="yes", count=3, offset=first.next_offset)
    assert [record.offset for record in second.records] == [7, 9, 11]


# -- records that fit no frame


def unsendable(*values: bytes, topic: str = "t") -> BrokerFixture:
    fixture = BrokerFixture(limits=Limits(record_bytes=60 << 20))
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1)
    if topic != "t":
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, topic, 1)
    for value in values:
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, topic, 0, [value])
    fixture.commit()
    return fixture


@pytest.mark.parametrize("where", ["in memory", "on disk"])
@pytest.mark.parametrize("filter", ["", "a"])
def test_a_fetch_of_a_record_that_fits_no_frame_is_answered(where: str, filter: str) -> None:  # noqa: A002
    fixture = unsendable(b"a0", b"a" * (33 << 20), b"a2")
    if where == "on disk":
        fixture.restart()
    peer = Peer(fixture)
    first = fetch(peer, filter=filter)
    assert (values(first), first.next_offset) == ([b"a0"], 1)
    for request in (m.Fetch("t", 0, 1, 9, filter, bool(filter)), m.FetchBinary("t", 0, 1, 9), m.Consume("t", 0, 1)):
        text = peer.refused(request)
        assert text.startswith("the record at offset 1 has 34603008 bytes") and text.endswith("at offset 2"), request
    assert values(fetch(peer, offset=2, filter=filter)) == [b"a2"]
    assert fixture.broker.metrics.records_unsendable == 3
    peer.session.stop()
    assert peer.closed, "nothing holds the shutdown up"


def test_what_a_filter_finds_never_outgrows_a_frame() -> None:
    fixture = unsendable(b"a" * (7 << 20), b"b", b"a" * (30 << 20), b"a")
    peer = Peer(fixture)
    first = fetch(peer, filter="a")
    assert (list(map(len, values(first))), first.next_offset) == ([7 << 20], 2)
    second = fetch(peer, filter="a", offset=2)
    assert list(map(len, values(second))) == [30 << 20]
    assert values(fetch(peer, filter="a", offset=second.next_offset)) == [b"a"]


def test_a_record_that_is_too_large_for_a_filter_is_named_and_those_before_it_come_once() -> None:
    fixture = unsendable(b"xyc", b"z" * 80_000, b"xyc")
    peer = Peer(fixture)
    expression = "(a|b.|c..){250}|x.c"
    first = fetch(peer, filter=expression)
    assert (values(first), first.next_offset) == ([b"xyc"], 1)
    text = peer.refused(m.Fetch("t", 0, 1, 9, expression, True))
    assert text.startswith("filter is too complex for a record of 80000 bytes") and text.endswith("the next one at 2")
    assert values(fetch(peer, offset=2, filter=expression)) == [b"xyc"]


def test_a_dead_letter_that_fits_no_frame_is_listed_without_its_value() -> None:
    fixture = unsendable(bytes(33 << 20), b"small", topic="t.dlq")
    peer = Peer(fixture)
    (letter,) = letters(peer)
    assert letter.value == b"" and letter.error.startswith("left out here, the record at offset 0 has 34603008 bytes")
    assert peer.ask(m.ReplayDlq("t", letter.message_id)) == m.Done()
    assert [letter.value for letter in letters(peer)] == [b"small"], "those behind it can be seen"


def test_dead_letters_never_outgrow_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(unsendable(b"0" * 10, b"1" * 10, b"2" * 10, topic="t.dlq"))
    monkeypatch.setattr(dead_letters, "MAX_DLQ_MESSAGES", 2 * 25)
    assert [letter.value[:1] for letter in letters(peer)] == [b"0", b"1"]


def test_dead_letters_can_be_continued_where_a_reply_had_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(unsendable(b"0" * 10, b"1" * 10, b"2" * 10, topic="t.dlq"))
    monkeypatch.setattr(dead_letters, "MAX_DLQ_MESSAGES", 2 * 25)
    page = peer.ask(m.FetchDlq("t", 10))
    assert isinstance(page, m.DlqMessages) and page.next_offset == 2
    rest = peer.ask(m.FetchDlq("t", 10, page.next_offset))
    assert isinstance(rest, m.DlqMessages) and [letter.value[:1] for letter in rest.messages] == [b"2"]
    assert rest.next_offset is None


def test_dead_letters_can_be_continued_by_count(peer: Peer) -> None:
    peer.all(*[m.Produce("t.dlq", None, b"%d" % number) for number in range(5)])
    seen, at = [], None
    for _ in range(3):
        page = peer.ask(m.FetchDlq("t", 2, at))
        assert isinstance(page, m.DlqMessages)
        seen += [letter.value for letter in page.messages]
        at = page.next_offset
    assert seen == [b"0", b"1", b"2", b"3", b"4"] and at is None
    assert peer.ask(m.FetchDlq("t", 2, 2**64 - 1)) == m.DlqMessages([])
    peer.feed(m.FetchDlq("t", 5))
    (frame,) = peer.frames()
    assert frame.payload.endswith(b"\0\0\0\0"), "and nothing behind the last letter, whose attempts are 0"


REFUSED: list[m.Request] = [
    m.Produce("t", None, b"v", -2),
    m.Produce("t", b"k", b"v", -(2**31)),
    m.ProduceRecords("t", "p", 0, 0, [None], [b"v"], [-2], []),
    m.ProduceBatch("t", [None, None], [b"v", b"w"], [0, -2]),
    m.ProduceDelayed("t", b"v", 1000, None, -2),
    m.ProduceWithTtl("t", b"v", 1000, None, -2),
]


@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_a_partition_of_minus_two_or_less_is_refused(peer: Peer, partitions: int) -> None:
    if partitions:
        peer.ask(m.CreateTopic("t", partitions))
    begun = peer.ask(m.BeginTransaction())
    assert isinstance(begun, m.TransactionState)
    for request in (*REFUSED, m.ProduceInTransaction(begun.transaction_id, "t", b"v", None, -2)):
        assert peer.refused(request) in ("partition -2 not found", "partition -2147483648 not found"), request
    assert peer.ask(m.CommitTransaction(begun.transaction_id)) == m.TransactionState(begun.transaction_id)
    if partitions:
        assert fetch(peer).records == []
    else:
        assert peer.ask(m.ListTopics()) == m.TopicList([]), "no topic comes into being for it"


def test_of_records_sent_at_once_only_that_with_a_partition_below_minus_one_is_refused(peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 1))
    first, second, third = peer.all(*[m.Produce("t", None, b"v", wanted) for wanted in (-1, -2, 0)])
    assert isinstance(first, m.RecordMetadata) and isinstance(third, m.RecordMetadata)
    assert second == m.Failure("partition -2 not found") and (first.offset, third.offset) == (0, 1)


def test_a_fetch_waits_for_a_record(fixture: BrokerFixture) -> None:
    reader, writer = Peer(fixture, settings=FlyMqSettings(fetch_wait=5_000_000)), Peer(fixture)
    writer.ask(m.CreateTopic("t", 1))
    reader.feed(m.Fetch("t", 0, 0, 10), m.ListTopics())
    fixture.pass_time(1)
    fixture.broker.sweep(fixture.now)
    assert reader.sent == []
    writer.ask(m.Produce("t", None, b"v"))
    found, topics = reader.replies()
    assert isinstance(found, m.Fetched) and values(found) == [b"v"]
    assert topics == m.TopicList(["t"])


def test_a_fetch_waits_no_longer_than_it_may(fixture: BrokerFixture) -> None:
    reader = Peer(fixture, settings=FlyMqSettings(fetch_wait=5_000_000))
    reader.ask(m.CreateTopic("t", 1))
    reader.feed(m.Fetch("t", 0, 0, 10))
    fixture.pass_time(4.9)
    fixture.broker.sweep(fixture.now)
    assert reader.raw() == b""
    fixture.pass_time(0.2)
    fixture.broker.sweep(fixture.now)
    assert reader.replies() == [m.Fetched([], 0)]


def test_a_topics_own_wait_counts_more(fixture: BrokerFixture) -> None:
    reader = Peer(fixture)
    reader.ask(m.CreateTopic("t", 1))
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "t", TopicSettings(fetch_wait_seconds=2))
    fixture.commit()
    reader.feed(m.Fetch("t", 0, 0, 10))
    assert reader.sent[1:] == []
    fixture.pass_time(3)
    fixture.broker.sweep(fixture.now)
    assert reader.replies()[-1] == m.Fetched([], 0)


def test_what_comes_while_a_filter_looks_is_found_without_waiting() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls))
    reader, writer = Peer(fixture, settings=FlyMqSettings(fetch_wait=5_000_000)), Peer(fixture)
    writer.ask(m.CreateTopic("t", 1))
    reader.feed(m.Fetch("t", 0, 0, 10, "yes", code_order=True))
    writer.ask(m.Produce("t", None, b"yes"))  # behind what the filter was planned to look at
    while calls:
        work, done = calls.pop(0)
        work()
        done()
    (found,) = reader.replies(m.Fetch("t", 0, 0, 10, "yes", code_order=True))
    assert isinstance(found, m.Fetched) and values(found) == [b"yes"]


def test_a_topic_that_goes_while_a_filter_looks() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls))
    reader, writer = Peer(fixture, settings=FlyMqSettings(fetch_wait=5_000_000)), Peer(fixture)
    writer.ask(m.CreateTopic("t", 1))
    reader.feed(m.Fetch("t", 0, 0, 10, "yes", code_order=True))
    writer.ask(m.DeleteTopic("t"))
    work, done = calls.pop(0)
    work()
    done()
    assert reader.replies() == [m.Failure("topic not found: t")]


def test_who_leaves_while_waiting_is_forgotten(fixture: BrokerFixture) -> None:
    reader, writer = Peer(fixture, settings=FlyMqSettings(fetch_wait=5_000_000)), Peer(fixture)
    writer.ask(m.CreateTopic("t", 1))
    reader.feed(m.Fetch("t", 0, 0, 10))
    reader.session.lost()
    writer.ask(m.Produce("t", None, b"v"))
    fixture.pass_time(10)
    fixture.broker.sweep(fixture.now)
    assert reader.sent == []


def test_a_fetch_below_the_start_goes_on_at_the_start(fixture: BrokerFixture, peer: Peer) -> None:
    peer.all(*[m.Produce("t", None, b"%d" % number) for number in range(10)])
    topic = fixture.broker.topics.ensure(ANONYMOUS, DEFAULT_SCOPE, "t")
    fixture.engine.trim({partition_id(topic.id, 0): 4})
    fixture.commit()
    assert [record.offset for record in fetch(peer).records] == [4, 5, 6, 7, 8, 9]


def test_a_read_from_disk_holds_up_this_connection_only() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls))
    writer = Peer(fixture)
    writer.all(*[m.Produce("t", None, b"v" * 1000) for _ in range(100)])
    fixture.restart()
    reader, other = Peer(fixture), Peer(fixture)
    reader.feed(m.Fetch("t", 0, 0, 10), m.ListTopics())
    assert reader.sent == [] and len(calls) == 1
    assert other.ask(m.ListTopics()) == m.TopicList(["t"])
    work, done = calls.pop()
    work()
    done()
    found, topics = reader.replies()
    assert isinstance(found, m.Fetched) and len(found.records) == 10
    assert topics == m.TopicList(["t"])


# -- topics and groups


def test_topics(peer: Peer) -> None:
    assert peer.ask(m.CreateTopic("b", 0)) == m.Done()
    assert peer.ask(m.CreateTopic("b", 7)) == m.Done(message="topic exists")
    assert peer.ask(m.CreateTopic("a/x", 2)) == m.Done()
    assert peer.ask(m.ListTopics()) == m.TopicList(["a/x", "b"])
    peer.ask(m.Produce("a/x", None, b"v", 1))
    expected = [m.PartitionMetadata(0, 0, 0, 0), m.PartitionMetadata(1, 0, 0, 1)]
    assert peer.ask(m.Metadata("a/x")) == m.TopicMetadata("a/x", expected)
    assert peer.ask(m.DeleteTopic("b")) == m.Done()
    assert peer.ask(m.DeleteTopic("b")) == m.Done(message="no such topic")
    assert peer.ask(m.ListTopics()) == m.TopicList(["a/x"])


@pytest.mark.parametrize("name", ["", "../x", "a/../b", "/abs", "a\\b", "a\0b", "a\nb", "x" * 257, "__mine"])
def test_names_that_no_topic_may_have(peer: Peer, name: str) -> None:
    for request in (m.CreateTopic(name, 1), m.Produce(name, None, b"v")):
        assert peer.refused(request)
    assert peer.ask(m.ListTopics()) == m.TopicList([])


def test_groups(fixture: BrokerFixture, peer: Peer) -> None:
    peer.ask(m.CreateTopic("t", 2))
    assert peer.ask(m.Subscribe("t", "g", 0, "latest")) == m.Position(0)
    assert peer.ask(m.Subscribe("t", "", 0, "")) == m.Position(0)
    assert peer.ask(m.Subscribe("t", "g", 0, "commit")) == m.Position(0)
    assert peer.refused(m.Subscribe("t", "g", 0, "sideways")) == "unknown subscribe mode: sideways"
    peer.all(*[m.Produce("t", None, b"v", 0) for _ in range(5)])
    assert peer.ask(m.Subscribe("t", "g", 0, "latest")) == m.Position(5)
    assert peer.ask(m.GetLag("t", "g", 0)) == m.Lag(0, 0, 5, 5)
    assert peer.ask(m.GetLag("t", "g", 1)) == m.Lag(0, 0, 0, 0)
    assert peer.ask(m.Commit("t", "g", 0, 3)) == m.Done()
    assert peer.ask(m.GetOffset("t", "g", 0)) == m.Position(3)
    assert peer.ask(m.GetOffset("t", "g", 1)) == m.Position(0)
    assert peer.ask(m.GetLag("t", "g", 0)) == m.Lag(3, 3, 5, 2)
    assert peer.ask(m.Subscribe("t", "g", 0, "commit")) == m.Position(3)
    info = m.GroupInfo("t", "g", 1, [m.PartitionOffset(0, 3)])
    assert peer.ask(m.ListGroups()) == m.GroupList([info])
    assert peer.ask(m.DescribeGroup("t", "g")) == info
    assert peer.ask(m.DescribeGroup("", "g")) == info
    for mode, offset in (("earliest", 0), ("latest", 5)):
        assert peer.ask(m.ResetOffset("t", "g", 0, mode)) == m.Done()
        assert peer.ask(m.GetOffset("t", "g", 0)) == m.Position(offset)
    assert peer.ask(m.ResetOffset("t", "g", 0, "offset", 2)) == m.Done()
    assert peer.refused(m.ResetOffset("t", "g", 0, "sideways")) == "unknown reset mode: sideways"
    fixture.restart()
    peer = Peer(fixture)
    assert peer.ask(m.GetOffset("t", "g", 0)) == m.Position(2)
    assert peer.ask(m.DescribeGroup("t", "g")) == m.GroupInfo("t", "g", 0, [m.PartitionOffset(0, 2)])
    assert peer.ask(m.DeleteGroup("t", "g")) == m.Done()
    assert peer.refused(m.DeleteGroup("t", "g")) == "consumer group not found: t:g"
    assert peer.refused(m.GetOffset("t", "g", 0)) == "consumer group not found: t:g"
    assert peer.refused(m.GetLag("t", "g", 0)) == "consumer group not found: t:g"


def test_members_leave_with_their_connection(fixture: BrokerFixture) -> None:
    first, second = Peer(fixture, port=1), Peer(fixture, port=2)
    first.ask(m.CreateTopic("t", 1))
    for member in (first, second):
        member.ask(m.Subscribe("t", "g", 0, "earliest"))
        member.ask(m.Subscribe("t", "h", 0, "earliest"))
    assert second.ask(m.DescribeGroup("t", "g")) == m.GroupInfo("t", "g", 2, [])
    first.session.lost()
    assert second.ask(m.ListGroups()) == m.GroupList([m.GroupInfo("t", "g", 1, []), m.GroupInfo("t", "h", 1, [])])
    second.session.end_of_input()
    assert Peer(fixture).ask(m.ListGroups()) == m.GroupList([])


def test_seek_to_timestamp(fixture: BrokerFixture, peer: Peer) -> None:
    for _ in range(3):
        peer.ask(m.Produce("t", None, b"v"))
        fixture.pass_time(10)
    assert peer.ask(m.SeekToTimestamp("t", "", 0, MS)) == m.Position(0)
    assert peer.ask(m.SeekToTimestamp("t", "", 0, MS + 1)) == m.Position(1)
    assert peer.ask(m.SeekToTimestamp("t", "g", 0, MS + 20_000)) == m.Position(2)
    assert peer.ask(m.GetOffset("t", "g", 0)) == m.Position(2)
    assert peer.ask(m.SeekToTimestamp("t", "g", 0, MS + 90_000)) == m.Position(3)


# -- the features behind


SCHEMA = b'{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'


def test_schemas(fixture: BrokerFixture, peer: Peer) -> None:
    assert peer.ask(m.RegisterSchema("s", "json", SCHEMA)) == m.SchemaSummary("s", "json", 1)
    assert peer.ask(m.ListSchemas()) == m.SchemaList([m.SchemaSummary("s", "json", 1)])
    assert peer.ask(m.GetSchema("s", 0)) == m.SchemaInfo("s", "json", 1, "s-v1", SCHEMA, "backward")
    assert peer.ask(m.ValidateSchema("s", b'{"a": 1}')) == m.SchemaVerdict(True, [])
    assert peer.ask(m.ValidateSchema("s", b"{}")) == m.SchemaVerdict(False, ["missing required field: a"])
    assert isinstance(peer.ask(m.ProduceWithSchema("t", "s", b'{"a": 1}')), m.RecordMetadata)
    refused = peer.refused(m.ProduceWithSchema("t", "s", b"{}"))
    assert refused == "schema validation failed: [missing required field: a]"
    stricter = SCHEMA.replace(b'["a"]', b'["a", "b"]')
    assert "schema compatibility check failed" in peer.refused(m.RegisterSchema("s", "json", stricter))
    assert peer.ask(m.SetCompatibility("s", "none")) == m.Done()
    fixture.restart()
    peer = Peer(fixture)
    assert peer.ask(m.RegisterSchema("s", "json", stricter)) == m.SchemaSummary("s", "json", 2)
    assert peer.ask(m.DeleteSchema("s", 2)) == m.Done()
    assert peer.refused(m.GetSchema("s", 2)) == "schema not found: s v2"
    assert peer.ask(m.GetSchema("s", 0)) == m.SchemaInfo("s", "json", 1, "s-v1", SCHEMA, "none")
    assert peer.refused(m.RegisterSchema("s", "xml", b"<x/>")) == "unsupported schema type: xml"
    assert "invalid schema definition" in peer.refused(m.RegisterSchema("s", "json", b"{"))
    assert peer.ask(m.DeleteSchema("s", 0)) == m.Done()
    assert peer.refused(m.GetSchema("s", 0)) == "no schema found for topic: s"


@pytest.mark.parametrize("rejected", ["error", "dead-letter"])
def test_a_topics_schema_counts_at_every_door(fixture: BrokerFixture, peer: Peer, rejected: Any) -> None:
    peer.ask(m.RegisterSchema("s", "json", SCHEMA))
    peer.ask(m.CreateTopic("t", 1))
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "t", TopicSettings(schema="s", rejected=rejected))
    fixture.commit()
    found = peer.all(m.Produce("t", None, b'{"a": 1}'), m.Produce("t", None, b"{}"), m.Produce("t", None, b'{"a": 2}'))
    assert values(fetch(peer)) == [b'{"a": 1}', b'{"a": 2}']
    if rejected == "error":
        assert found[1] == m.Failure("schema validation failed: [missing required field: a]")
    else:
        assert found[1] == m.RecordMetadata("t.dlq", 0, 0, MS, -1, 2)
        (letter,) = letters(peer)
        assert letter.value == b"{}" and "missing required field: a" in letter.error


def letters(peer: Peer, topic: str = "t") -> list[m.DlqMessage]:
    reply = peer.ask(m.FetchDlq(topic, 100))
    assert isinstance(reply, m.DlqMessages)
    return reply.messages


def test_dead_letters(fixture: BrokerFixture, peer: Peer) -> None:
    assert letters(peer) == []
    peer.ask(m.RegisterSchema("s", "json", SCHEMA))
    peer.ask(m.CreateTopic("t", 1))
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "t", TopicSettings(schema="s", rejected="dead-letter"))
    fixture.commit()
    peer.all(*[m.Produce("t", b"k%d" % number, b"bad %d" % number) for number in range(3)])
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "t", TopicSettings())
    fixture.commit()
    first, second, third = letters(peer)
    assert peer.ask(m.ReplayDlq("t", second.message_id)) == m.Done()
    assert "not found" in peer.refused(m.ReplayDlq("t", second.message_id))
    assert [letter.value for letter in letters(peer)] == [b"bad 0", b"bad 2"]
    fixture.restart()
    peer = Peer(fixture)
    assert [letter.value for letter in letters(peer)] == [b"bad 0", b"bad 2"]
    assert peer.ask(m.ReplayDlq("t", None, 0)) == m.Done()
    assert "not found" in peer.refused(m.ReplayDlq("t", first.message_id))
    assert [record.key for record in fetch(peer).records] == [b"k1", b"k0"]
    assert peer.ask(m.PurgeDlq("t")) == m.Done()
    assert letters(peer) == []
    assert "not found" in peer.refused(m.ReplayDlq("t", third.message_id))


def test_a_dead_letter_that_does_not_fit_the_topics_schema_is_not_replayed(fixture: BrokerFixture, peer: Peer) -> None:
    peer.ask(m.RegisterSchema("s", "json", SCHEMA))
    peer.ask(m.CreateTopic("t", 1))
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "t", TopicSettings(schema="s", rejected="dead-letter"))
    fixture.commit()
    peer.all(m.Produce("t", None, b"{}"), m.Produce("t", None, b'{"a": 1}'))
    assert "missing required field: a" in peer.refused(m.ReplayDlq("t", None, 0))
    assert values(fetch(peer)) == [b'{"a": 1}']
    assert [letter.value for letter in letters(peer)] == [b"{}"]


def test_of_two_clients_that_replay_a_dead_letter_at_the_same_time_one_is_told_that_it_is_not_there() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls))
    Peer(fixture).all(m.CreateTopic("t", 1), *[m.Produce("t.dlq", None, b"%d" % number) for number in range(3)])
    fixture.restart()  # so that letters are read from the disk
    clients = [Peer(fixture), Peer(fixture)]
    for client in clients:
        client.feed(m.ReplayDlq("t", None, 1))
    assert len(calls) == 2
    for work, _ in calls:
        work()
    for _, done in calls:
        done()
    fixture.commit()
    (first,), (second,) = (client.replies() for client in clients)
    assert first == m.Done()
    assert isinstance(second, m.Failure) and "not found" in second.message
    assert values(fetch(clients[0])) == [b"1"]


def test_delayed_records(fixture: BrokerFixture, peer: Peer) -> None:
    first = peer.ask(m.ProduceDelayed("t", b"late", 5000))
    second = peer.ask(m.ProduceDelayed("t", b"early", 2000, b"k", 0))
    third = peer.ask(m.ProduceDelayed("t", b"never", 3000))
    assert isinstance(first, m.RecordMetadata) and isinstance(third, m.RecordMetadata)
    assert isinstance(second, m.RecordMetadata) and second.key_size == 1
    assert peer.ask(m.CancelDelayed(str(third.offset))) == m.Done()
    assert "not found" in peer.refused(m.CancelDelayed(str(third.offset)))
    assert "not found" in peer.refused(m.CancelDelayed("x"))
    for seconds, expected in ((1.9, []), (0.2, [b"early"]), (2.8, [b"early"]), (0.2, [b"early", b"late"])):
        fixture.pass_time(seconds)
        fixture.broker.sweep(fixture.now)
        fixture.commit()
        assert values(fetch(peer)) == expected
    assert "exceeds maximum allowed delay" in peer.refused(m.ProduceDelayed("t", b"v", 25 * 3_600_000))
    assert peer.refused(m.ProduceDelayed("t", b"v", -1))


def test_records_that_expire(fixture: BrokerFixture, peer: Peer) -> None:
    peer.all(m.Produce("t", None, b"a"), m.ProduceWithTtl("t", b"short", 1000), m.ProduceWithTtl("t", b"b", 0))
    assert values(fetch(peer)) == [b"a", b"short", b"b"]
    assert peer.ask(m.Consume("t", 0, 1)) == m.Consumed(None, b"short")
    fixture.pass_time(1.1)
    assert [(record.offset, record.value) for record in fetch(peer).records] == [(0, b"a"), (2, b"b")]
    assert peer.refused(m.Consume("t", 0, 1)) == "EOF"
    assert peer.refused(m.ProduceWithTtl("t", b"v", -5))


def test_transactions(fixture: BrokerFixture) -> None:
    peer, reader = Peer(fixture), Peer(fixture)
    begun = peer.ask(m.BeginTransaction())
    assert isinstance(begun, m.TransactionState) and begun.success
    txn = begun.transaction_id
    for topic, value in (("t", b"a"), ("u", b"b"), ("t", b"c")):
        placed = peer.ask(m.ProduceInTransaction(txn, topic, value))
        assert isinstance(placed, m.RecordMetadata) and placed.offset == 0
    assert reader.refused(m.Fetch("t", 0, 0, 10)) == "topic not found: t"
    assert peer.ask(m.CommitTransaction(txn)) == m.TransactionState(txn)
    assert peer.ask(m.CommitTransaction(txn)) == m.TransactionState(txn)
    assert values(fetch(reader)) == [b"a", b"c"] and values(fetch(reader, "u")) == [b"b"]
    fixture.restart()
    peer = Peer(fixture)
    assert peer.ask(m.CommitTransaction(txn)) == m.TransactionState(txn)
    assert values(fetch(peer)) == [b"a", b"c"]
    assert "transaction not found" in peer.refused(m.CommitTransaction("txn-nope"))


@pytest.mark.parametrize("how", ["rollback", "lost", "end_of_input", "timeout", "restart"])
def test_a_transaction_that_is_not_committed_leaves_nothing(fixture: BrokerFixture, how: str) -> None:
    peer = Peer(fixture)
    peer.ask(m.CreateTopic("t", 1))
    begun = peer.ask(m.BeginTransaction())
    assert isinstance(begun, m.TransactionState)
    txn = begun.transaction_id
    peer.ask(m.ProduceInTransaction(txn, "t", b"v"))
    if how == "rollback":
        assert peer.ask(m.RollbackTransaction(txn)) == m.TransactionState(txn)
    elif how == "timeout":
        fixture.pass_time(61)
        fixture.broker.sweep(fixture.now)
    elif how == "restart":
        fixture.restart()
    else:
        getattr(peer.session, how)()
    after = Peer(fixture)
    assert "transaction" in after.refused(m.CommitTransaction(txn))
    assert values(fetch(after)) == []


def test_the_cluster_is_this_node(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, settings=FlyMqSettings(address="localhost:9092"))
    peer.ask(m.CreateTopic("t", 2))
    node = m.ClusterNode("penstock", "localhost:9092", "online", True)
    assert peer.ask(m.GetClusterStatus()) == m.ClusterStatus("standalone", "penstock", [node])
    placed = [
        m.PartitionPlacement(number, "penstock", "localhost:9092", 1, "online", ["penstock"], ["penstock"])
        for number in range(2)
    ]
    expected = m.ClusterMetadata("standalone", [m.TopicPlacement("t", placed)])
    assert peer.ask(m.GetClusterMetadata()) == peer.ask(m.GetClusterMetadata("t")) == expected
    assert peer.refused(m.GetClusterMetadata("u")) == "topic not found: u"
    assert "standalone" in peer.refused(m.JoinCluster("other:9093"))


def test_a_single_node_has_no_cluster_to_leave_as_it_has_none_to_join(peer: Peer) -> None:
    assert peer.refused(m.JoinCluster("other:9093")) == "this node is standalone and cannot join 'other:9093'"
    assert peer.refused(m.LeaveCluster()) == "this node is standalone and has no cluster to leave"


def test_with_security_off_logins_and_users_answer_sensibly(peer: Peer) -> None:
    peer.feed(m.Authenticate("anyone", "anything"))
    assert peer.raw() == bytes.fromhex("AF 01 71 01 00 00 00 09 01 00 00 00 00 00 00 00 00")
    who = peer.ask(m.WhoAmI())
    assert isinstance(who, m.CurrentUser)
    created = peer.ask(m.CreateUser("alice", "secret", "", ["producer"]))
    assert isinstance(created, m.UserInfo) and created.permissions == ["write"] and created.enabled
    assert peer.refused(m.CreateUser("alice", "secret", "", [])) == 'user "alice" already exists'
    assert isinstance(peer.ask(m.ListUsers()), m.UserList)
    assert peer.ask(m.SetRole("ops", ["read", "write"], "both")) == m.Done(message="ops")
    assert peer.ask(m.UpdateUser("alice", "", "", ["ops"], True)) == m.Done(message="alice")
    assert isinstance(peer.ask(m.ListRoles()), m.RoleList)
    assert peer.ask(m.SetAcl("t", False, ["alice"], [], True)) == m.Done(message="t")
    assert peer.ask(m.GetAcl("t")) == m.AclInfo("t", True, False, False, ["alice"], [], True)
    assert peer.ask(m.ListAcls()) == m.AclList([m.AclEntry("t", True, False, ["alice"], [])], False)
    assert peer.ask(m.DeleteAcl("t")) == m.Done(message="t")
    assert peer.ask(m.DeleteUser("alice")) == m.Done(message="alice")
    assert peer.refused(m.GetUser("alice")) == 'user "alice" not found'


# -- other doors


def test_an_audit_query_right_behind_a_user_that_could_not_be_made_or_deleted_says_why() -> None:
    """On one connection, without a wait for the replies in between; what was not to be changed is no failure."""
    fixture = BrokerFixture(audit=AuditPolicy(enabled=True))
    peer = Peer(fixture)
    everything = m.AuditQuery(0, 0, [], "", "", "failure", "", 0, 0)
    peer.ask(m.CreateUser("alice", "a word", "", []))
    *_, page = peer.all(
        m.CreateUser("alice", "a word", "", []),
        m.DeleteUser("bob"),
        m.JoinCluster("elsewhere:9092"),
        m.RegisterSchema("s", "yaml", b"x"),
        m.CreateTopic("there", 1),
        m.CreateTopic("there", 1),
        m.DeleteTopic("gone"),
        m.CreateTopic("there", -1),
        everything,
    )
    assert isinstance(page, m.AuditPage)
    found = [(event.event_type, event.resource, event.details[0].value) for event in page.events]
    assert found[::-1] == [
        ("user.create", "alice", "User 'alice' already exists"),
        ("user.delete", "bob", found[3][2]),
        ("cluster.join", "elsewhere:9092", "this node is standalone and cannot join 'elsewhere:9092'"),
        ("schema.register", "s", "unsupported schema type: yaml"),
        ("topic.create", "there", found[0][2]),
    ]


def test_what_goes_in_here_comes_out_of_another_door_at_the_same_offset(fixture: BrokerFixture, peer: Peer) -> None:
    rustlog = RustLogPeer(fixture)
    placed = peer.ask(m.Produce("t", None, b"from flymq"))
    assert isinstance(placed, m.RecordMetadata)
    assert isinstance(rustlog.ask(Produce("t", 0, [b"from rustlog"])), ProduceResponse)
    found = rustlog.ask(Fetch("t", 0, 0, 1 << 20))
    assert isinstance(found, FetchResponse) and len(found.records) == 2
    assert values(fetch(peer)) == [b"from flymq", b"from rustlog"]


# -- the order of things


def test_a_mistake_of_ours_is_told_and_ends_this_connection_only(
    fixture: BrokerFixture, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(fixture.broker.topics, "list", broken)
    with caplog.at_level(logging.ERROR):
        peer.feed(m.ListTopics(), m.WhoAmI())
    assert peer.replies() == [m.Failure("internal error")]
    assert peer.closed and "planted" in caplog.text


def test_end_of_input_answers_what_was_received(fixture: BrokerFixture, peer: Peer) -> None:
    peer.feed(m.Produce("t", None, b"v"))
    peer.session.end_of_input()
    assert not peer.closed
    fixture.commit()
    assert len(peer.frames()) == 1 and peer.closed


def test_a_client_that_does_not_take_its_replies_gets_no_more_made(peer: Peer) -> None:
    peer.all(*[m.Produce("t", None, b"v" * 1000) for _ in range(1000)])
    peer.limit = sum(map(len, peer.sent)) + 100_000
    before = sum(map(len, peer.sent))
    peer.feed(*[m.Fetch("t", 0, 0, 100) for _ in range(50)])
    assert sum(map(len, peer.sent)) - before < 1_000_000
    peer.limit = None
    peer.session.receive(b"")
    assert len(peer.frames()) == 50


@settings(max_examples=scaled(30))
@given(data=st.data())
def test_any_split_gives_the_same_replies(data: st.DataObject) -> None:
    asked: list[m.Request] = [
        m.CreateTopic("t", 2),
        m.Produce("t", b"k", b"v"),
        m.Produce("t", None, b"w"),
        m.Fetch("t", 0, 0, 10),
        m.Commit("t", "g", 0, 1),
        m.GetOffset("t", "g", 0),
        m.ListTopics(),
    ]
    stream = b"".join(map(requests.encode, asked))
    whole = Peer(BrokerFixture())
    whole.feed(stream)
    whole.fixture.commit()
    expected = whole.raw()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    split = Peer(BrokerFixture())
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        split.feed(stream[start:end])
        if data.draw(st.booleans()):
            split.fixture.commit()
    split.fixture.commit()
    assert split.raw() == expected
