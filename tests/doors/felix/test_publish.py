"""Publishing: forms and acknowledgements, runs, refusals, names, and what a failing disk does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import (
    TENANT,
    Binary,
    Peer,
    Stream,
    ack,
    auth,
    b64,
    batch,
    frame,
    original,
    publish,
    publish_batch,
    values,
)

from penstock.broker.errors import QuotaReached, ShuttingDown, TooFast
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.felix.errors import advice
from penstock.doors.felix.produce_batch import BATCH_BYTES
from penstock.doors.felix.request_context import FelixSettings
from penstock.log.errors import CommitFailed, LogFull, LogReadOnly
from penstock.wire.felix.errors import OUTCOME_UNKNOWN

OK = {"type": "ok"}
HERE = Scope(TENANT, "default")


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture)


def both(peer: Peer) -> list[Stream]:
    return [peer.stream(), original(peer)]


def said(reply: Any) -> str:
    """The text of an error in any encoding."""
    if isinstance(reply, Binary):
        assert (reply.flags, reply.payload[0]) == (0x0010, 1)
        return reply.payload[11:].decode()
    assert reply["type"] in ("error", "publish_error"), reply
    text: str = reply["message"]
    return text


def appends(fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records of each append from now on."""
    counts: list[int] = []
    append, append_record = fixture.engine.append, fixture.engine.append_record

    def counted(records: Any, *rest: Any) -> Any:
        counts.append(sum(len(each.values) for each in records))
        return append(records, *rest)

    def counted_record(*record: Any) -> Any:
        counts.append(1)
        return append_record(*record)

    monkeypatch.setattr(fixture.engine, "append", counted)
    monkeypatch.setattr(fixture.engine, "append_record", counted_record)
    return counts


# -- forms (rows 3, 18, 20, 21)


def test_each_form_in_the_documents_dialect(peer: Peer) -> None:
    stream = peer.stream()
    replies = stream.all(
        publish(b"1", ack="per_message"),
        publish_batch([b"2", b"3"], ack="per_batch"),
        publish_batch([b"4"], "id", ack="per_message"),
        batch(b"5", b"6"),
        publish(b"7", ack="none"),
    )
    assert replies == [OK, OK, {**OK, "request_id": "id"}]
    assert values(peer.fixture) == [b"%d" % number for number in range(1, 8)]


def test_each_form_in_the_originals_dialect(peer: Peer) -> None:
    stream = original(peer)
    replies = stream.all(
        publish(b"1", 1, ack="per_message"),
        publish_batch([b"2", b"3"], 2, ack="per_batch"),
        publish_batch([b"4"], 3, ack="per_message"),
        batch(b"5", b"6"),
        batch(b"7", request_id=4),
        publish(b"8", 5, ack="none"),
        publish(b"9", 6),
    )
    ok = [{"type": "publish_ok", "request_id": number} for number in (1, 2, 3, 6)]
    assert replies == [*ok[:3], ack(4), ok[3]]
    assert values(peer.fixture) == [b"%d" % number for number in range(1, 10)]


# -- keys, partitions, offsets, codes: each for clients that ask for it

NEW = 0x5E7F  # flags of the newest clients


def records(fixture: BrokerFixture, partition: int = 0) -> list[tuple[bytes | None, bytes]]:
    read = fixture.broker.fetch.plan(ADMINISTRATOR, HERE, "orders", partition, 0, 1 << 30, 1 << 30)
    return [pair for part in read.run() for pair in zip(part.keys(), part.values(), strict=True)]


def test_a_key_reaches_the_record_in_each_form(peer: Peer) -> None:
    stream = original(peer, client_flags=0x7F)
    replies = stream.all(
        batch(b"1", b"2", key=b"none"), batch(b"3", key=b"acked", request_id=1),
        publish(b"4", 2, key=b64(b"json")), publish_batch([b"5"], 3, key=b64(b"")), publish(b"6", 4),
        publish(b"7", 5, ack="none", key=b64(b"none")),
    )  # fmt: skip
    ok = [{"type": "publish_ok", "request_id": number} for number in (2, 3, 4)]
    assert replies == [ack(1), *ok]
    assert records(peer.fixture) == [
        (b"none", b"1"), (b"none", b"2"), (b"acked", b"3"), (b"json", b"4"), (b"", b"5"), (None, b"6"), (b"none", b"7"),
    ]  # fmt: skip
    assert peer.stream().ask(publish(b"8", key=b64(b"document"))) == OK
    assert records(peer.fixture)[-1] == (b"document", b"8")


def test_a_key_chooses_the_partition_by_the_originals_hash(peer: Peer) -> None:
    peer.fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 8)
    stream = original(peer, client_flags=NEW)
    keys = {b"customer-0": 0, b"customer-4": 2, b"customer-1": 3, b"customer-6": 4, b"customer-2": 6}
    replies = stream.all(
        *[batch(b"a", b"b", key=key, request_id=number) for number, key in enumerate(keys)],
        *[batch(b"c", key=key) for key in keys], batch(b"no key", request_id=9),
        batch(b"named", stream="orders#7", key=b"customer-0", request_id=10),
    )  # fmt: skip
    for key, partition in keys.items():
        assert records(peer.fixture, partition)[:3] == [(key, b"a"), (key, b"b"), (key, b"c")]
    assert records(peer.fixture, 0)[3:] == [(None, b"no key")]
    assert records(peer.fixture, 7) == [(b"customer-0", b"named")]
    assert [reply.flags for reply in replies if isinstance(reply, Binary)] == [0x1010] * 7
    assert [int.from_bytes(reply.payload[-8:]) for reply in replies if isinstance(reply, Binary)] == [
        0, 0, 0, 0, 0, 3, 0,
    ]  # fmt: skip


def test_a_shard_is_the_partition_or_is_refused(peer: Peer) -> None:
    peer.fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 3)
    for stream in both(peer):
        stream.all(publish(b"x", 1, shard=2, key=b64(b"customer-0")), publish_batch([b"y"], 2, shard=1))
        refused = said(stream.ask(publish(b"z", 3, shard=3)))
        assert refused.startswith("stream not found")
        assert "has 3 partitions" in refused
        contradiction = stream.ask(publish(b"z", 4, shard=2) | {"stream": "orders#1"})
        assert said(contradiction) == "shard 2 of a stream that is partition 1"
        assert "shard" in said(stream.ask(publish(b"z", 5, shard=-1)))
    assert [values(peer.fixture, partition=number) for number in range(3)] == [[], [b"y"] * 2, [b"x"] * 2]


def test_too_long_a_key_is_refused(peer: Peer) -> None:
    for stream in both(peer):
        assert stream.ask(publish(b"x", 1, key=b64(bytes(65535))))["type"] in ("ok", "publish_ok")
        assert said(stream.ask(publish(b"x", 1, key=b64(bytes(65536))))) == (
            "field 'key': a key of 65536 bytes; the most is 65535"
        )


def test_acknowledgements_carry_the_offset_where_asked(peer: Peer) -> None:
    asked, not_asked = original(peer, client_flags=NEW), original(peer, client_flags=NEW & ~0x1000)
    for stream, first in ((asked, 0), (not_asked, 6)):
        replies = stream.all(
            publish(b"a", 1), batch(b"b", b"c", request_id=2), batch(b"d"), publish_batch([b"e"], 3, key=b64(b"k")),
            publish_batch([], 4), batch(b"f", request_id=5),
        )  # fmt: skip
        one, two, three, four, five = replies
        assert four == {"type": "publish_ok", "request_id": 4}
        if stream is not_asked:
            assert one == {"type": "publish_ok", "request_id": 1}
            assert (two, five) == (ack(2), ack(5))
            continue
        assert one == {"type": "publish_ok", "request_id": 1, "offset": first}
        assert three == {"type": "publish_ok", "request_id": 3, "offset": first + 4}
        assert two == Binary(0x1010, ack(2).payload + (first + 1).to_bytes(8))
        assert five == Binary(0x1010, ack(5).payload + (first + 5).to_bytes(8))


def test_errors_have_a_code_and_advice_where_asked() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=100))
    peer = Peer(fixture, FelixSettings(auto_create_tenants=False))
    stream = peer.stream()
    stream.ask(auth(client_flags=NEW) | {"client_features": 0xFFFF_FFFF})
    missing = stream.ask(publish(b"x", 1))
    assert (missing["type"], missing["code"], missing["retry"]) == ("publish_error", "not_found", "fatal")
    assert stream.ask(batch(b"x", request_id=2)).flags == 0x0610
    fixture.broker.tenants.ensure(ADMINISTRATOR, TENANT, "default")
    large = stream.ask(publish(bytes(101), 3))
    assert (large["code"], large["retry"]) == ("limit_exceeded", "fatal")
    other = stream.ask(publish(b"x", 4) | {"tenant_id": "other"})
    assert (other["code"], other["retry"]) == ("forbidden", "fatal")
    assert "code" not in original(peer).ask(publish(bytes(101), 5))


@pytest.mark.parametrize(
    ("error", "code", "retry"),
    [
        (TooFast("t"), "OVERLOADED", "RETRY_AFTER"),
        (QuotaReached("t"), "LIMIT_EXCEEDED", "FATAL"),
        (ShuttingDown("t"), "DRAINING", "RETRY"),
        (LogFull("t"), "STORAGE", "RETRY_AFTER"),
        (LogReadOnly("t"), "STORAGE", "RETRY_AFTER"),
        (CommitFailed("t"), "STORAGE", "OUTCOME_UNKNOWN"),
        (ValueError("t"), "INTERNAL", "OUTCOME_UNKNOWN"),
    ],
)
def test_to_send_again_is_advised_only_where_nothing_was_stored(error: Exception, code: str, retry: str) -> None:
    found = advice(error)
    assert (found.code and found.code.name, found.retry.name) == (code, retry)
    assert (found.retry_after_ms is not None) is (retry == "RETRY_AFTER")


def test_an_acknowledgement_waits_for_the_commit(peer: Peer) -> None:
    for stream in both(peer):
        stream.feed(publish(b"x", 1))
        assert stream.replies() == []
        peer.fixture.commit()
        assert len(stream.replies()) == 1


def test_an_empty_batch_is_acknowledged_at_once(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = appends(peer.fixture, monkeypatch)
    stream = original(peer)
    stream.feed(publish_batch([], 1))
    assert stream.replies() == [{"type": "publish_ok", "request_id": 1}]
    stream.feed(batch(request_id=2), batch())
    assert stream.replies() == [ack(2)]
    assert peer.stream().ask(publish_batch([])) == OK
    assert counts == []
    assert not peer.fixture.broker.topics.exists(HERE, "orders")


def test_empty_payloads_are_records(peer: Peer) -> None:
    assert peer.stream().ask(publish_batch([b"", b""])) == OK
    assert values(peer.fixture) == [b"", b""]


@pytest.mark.parametrize("form", ["json", "binary", "acked"])
def test_a_batch_of_too_many_payloads_is_refused_and_the_most_is_held(peer: Peer, form: str) -> None:
    """However small they are: each is a step during which nobody else is served."""
    stream = peer.stream() if form != "acked" else original(peer)

    def some(count: int) -> Any:
        payloads = [b""] * count
        return publish_batch(payloads, 1) if form == "json" else batch(*payloads, request_id=form == "acked" or None)

    assert "a batch of 100001 payloads; the most is 100000: send several" in said(stream.ask(some(100_001)))
    (refused,) = stream.all(batch(stream="orders"), some(100_001))
    assert "the most is 100000" in said(refused)
    assert not peer.fixture.broker.topics.exists(HERE, "orders")
    stream.feed(some(100_000))
    assert stream.session.held_bytes > 1 << 20
    peer.fixture.commit()
    assert len(values(peer.fixture)) == 100_000
    assert stream.session.held_bytes == 0


# -- runs


def test_what_came_at_once_is_appended_as_one(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.stream().ask(publish(b"first"))
    counts = appends(peer.fixture, monkeypatch)
    for stream in both(peer):
        replies: Any = stream.all(
            *[publish(b"%d" % number, number) for number in range(100)], batch(b"x", b"y"), publish(b"z", 100)
        )
        assert [reply["request_id"] for reply in replies] == list(range(101))
    assert counts == [103, 103]


def test_a_run_ends_where_the_stream_changes(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = peer.stream()
    stream.all(publish(b""), publish(b"", stream="other"))
    counts = appends(peer.fixture, monkeypatch)
    parts = [publish(b"%d" % at, at, stream="orders" if at % 4 < 3 else "other") for at in range(12)]
    replies: Any = stream.all(*parts)
    assert [reply["request_id"] for reply in replies] == list(range(12))
    assert counts == [3, 1] * 3
    assert values(peer.fixture, "other") == [b"", b"3", b"7", b"11"]


def test_a_run_ends_where_something_else_comes(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = peer.stream()
    stream.ask(publish(b""))
    counts = appends(peer.fixture, monkeypatch)
    replies: Any = stream.all(publish(b"a", 1), publish(b"b", 2), frame(b"{"), publish(b"c", 3))
    assert [reply.get("request_id") for reply in replies] == [1, 2, None, 3]
    assert counts == [2, 1]


def test_a_run_is_bounded_in_bytes(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = peer.stream()
    stream.ask(publish(b""))
    counts = appends(peer.fixture, monkeypatch)
    third = BATCH_BYTES // 3 + 1
    stream.all(*[batch(b"x" * third)] * 7)
    assert counts == [3, 3, 1]


@pytest.mark.parametrize("form", ["json", "binary"])
def test_one_that_is_too_large_does_not_hurt_its_neighbours(form: str) -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    stream = original(Peer(fixture))

    def one(number: int, value: bytes) -> bytes:
        return frame(publish(value, number)) if form == "json" else batch(value, request_id=number)

    replies = stream.all(one(1, b"a"), one(2, b"b" * 11), one(3, b"c"))
    assert "larger than the limit of 10 bytes" in said(replies[1])
    if form == "json":
        assert [replies[0], replies[2]] == [{"type": "publish_ok", "request_id": number} for number in (1, 3)]
    else:
        assert [replies[0], replies[2]] == [ack(1), ack(3)]
    assert values(fixture) == [b"a", b"c"]
    assert not stream.finished


def test_a_batch_is_stored_whole_or_not_at_all() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    stream = Peer(fixture).stream()
    assert "larger than" in said(stream.ask(publish_batch([b"a", b"b" * 11, b"c"])))
    assert not fixture.broker.topics.exists(HERE, "orders") or values(fixture) == []


def schema(fixture: BrokerFixture, rejected: str) -> None:
    fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 1)
    work = fixture.broker.schemas.register(ADMINISTRATOR, HERE, "orders", SchemaKind.JSON, b'{"type": "integer"}')
    work.run()
    work.finish()
    settings = TopicSettings(schema="orders", rejected=rejected)  # type: ignore[arg-type]
    fixture.broker.topics.change(ADMINISTRATOR, HERE, "orders", settings)
    fixture.commit()


def test_each_record_gets_its_own_verdict_by_a_schema(fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    schema(fixture, "error")
    stream = original(Peer(fixture))
    counts = appends(fixture, monkeypatch)
    replies: Any = stream.all(*[publish(value, at) for at, value in enumerate([b"1", b"no", b"3"])])
    assert [reply["type"] for reply in replies] == ["publish_ok", "publish_error", "publish_ok"]
    assert "does not fit its schema" in said(replies[1])
    assert values(fixture) == [b"1", b"3"]
    assert counts == [1, 1]
    assert fixture.broker.metrics.records_rejected == 1


def test_dead_letters_of_a_run_are_those_of_its_members(fixture: BrokerFixture) -> None:
    schema(fixture, "dead-letter")
    stream = original(Peer(fixture))
    replies: Any = stream.all(*[publish(value, at) for at, value in enumerate([b"1", b"no", b"3"])])
    assert [reply["type"] for reply in replies] == ["publish_ok"] * 3
    assert values(fixture) == [b"1", b"3"]
    assert values(fixture, "orders.dlq") == [b"no"]


# -- names


def test_a_stream_is_the_topic_of_its_name(peer: Peer) -> None:
    peer.stream().ask(publish(b"x", stream="a/b c"))
    (topic,) = peer.fixture.broker.topics.list(ANONYMOUS, HERE)
    assert (topic.name, topic.partitions) == ("a/b c", 1)
    assert peer.fixture.broker.tenants.exists(TENANT)


def test_publications_go_to_partition_0_and_others_have_names(peer: Peer) -> None:
    peer.fixture.broker.topics.create(ANONYMOUS, HERE, "orders", 3)
    stream = peer.stream()
    assert stream.all(publish(b"0"), publish(b"2", stream="orders#2"), batch(b"22", stream="orders#2")) == [OK, OK]
    assert [values(peer.fixture, partition=at) for at in range(3)] == [[b"0"], [], [b"2", b"22"]]
    refused = said(stream.ask(publish(b"3", stream="orders#3")))
    assert refused == (
        "stream not found: tenant=t1 namespace=default stream=orders#3 (topic 'orders' has 3 partitions)"
    )


@pytest.mark.parametrize("name", ["a#", "#1", "a#01", "a#-1", "a#1x", "a#9999999999", "orders#2#x"])
def test_other_names_with_that_sign_are_names(peer: Peer, name: str) -> None:
    peer.fixture.broker.topics.create(ANONYMOUS, HERE, "a", 3)
    assert peer.stream().ask(publish(b"x", stream=name)) == OK
    assert values(peer.fixture, name) == [b"x"]


def test_a_topic_of_the_full_name_comes_first(peer: Peer) -> None:
    broker = peer.fixture.broker
    broker.topics.create(ANONYMOUS, HERE, "orders#1", 1)
    broker.topics.create(ANONYMOUS, HERE, "orders", 2)
    peer.stream().ask(publish(b"x", stream="orders#1"))
    assert values(peer.fixture, "orders#1") == [b"x"]
    assert values(peer.fixture, partition=1) == []


def test_where_there_is_neither_it_is_a_name_like_any_other(peer: Peer) -> None:
    assert peer.stream().ask(publish(b"x", stream="room#7")) == OK
    assert values(peer.fixture, "room#7") == [b"x"]
    assert not peer.fixture.broker.topics.exists(HERE, "room")


NOT_FOUND = "stream not found: tenant=t1 namespace=default stream=orders"


def test_nothing_comes_into_being_where_it_may_not() -> None:
    fixture = BrokerFixture(auto_create_topics=False)
    peer = Peer(fixture)
    document, real, uni = peer.stream(), original(peer), peer.stream(uni=True)
    assert document.ask(publish(b"x", "a")) == {"type": "error", "request_id": "a", "message": NOT_FOUND}
    assert document.ask(batch(b"x")) == {"type": "error", "message": NOT_FOUND}
    assert document.ask(publish(b"x", ack="none")) == {"type": "error", "message": NOT_FOUND}
    assert real.ask(publish(b"x", 1)) == {"type": "publish_error", "request_id": 1, "message": NOT_FOUND}
    assert real.ask(batch(b"x", request_id=2)) == ack(2, NOT_FOUND)
    assert real.all(batch(b"x"), publish(b"x", 3, ack="none")) == []  # row 21
    uni.feed(batch(b"x"))
    assert uni.refused_with is None
    assert not (document.finished or real.finished or uni.finished)
    assert not fixture.broker.tenants.exists(TENANT)


def test_a_tenant_comes_into_being_only_where_it_may(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, FelixSettings(auto_create_tenants=False))
    assert said(peer.stream().ask(publish(b"x"))) == NOT_FOUND
    assert not fixture.broker.topics.exists(HERE, "orders")
    fixture.broker.tenants.create(ADMINISTRATOR, TENANT)
    assert peer.stream().ask(publish(b"x")) == OK


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"stream": ""}, "Topic name of 0 characters"),
        ({"stream": "x" * 2000}, "Topic name of 2000 characters"),
        ({"stream": "a//b"}, "empty, '.' or '..' segment"),
        ({"stream": "__audit"}, "the broker's own"),
        ({"namespace": "a b"}, "Namespace name"),
        ({"tenant_id": "../x"}, "Tenant name"),
    ],
)
def test_names_that_nothing_can_have(peer: Peer, fields: dict[str, str], text: str) -> None:
    stream = peer.stream()
    told = said(stream.ask(publish(b"x", **fields)))
    assert text in told or "unauthorized" in told
    assert len(told) <= 1024
    assert stream.ask(publish(b"x")) == OK
    assert not peer.fixture.broker.tenants.exists("../x")


def test_no_tenant_comes_into_being_for_a_stream_that_cannot(peer: Peer) -> None:
    assert said(peer.stream().ask(publish(b"x", stream="a//b")))
    assert not peer.fixture.broker.tenants.exists(TENANT)


def test_a_topic_that_was_deleted_comes_again(peer: Peer) -> None:
    stream = peer.stream()
    stream.ask(publish(b"x"))
    peer.fixture.broker.topics.delete(ANONYMOUS, HERE, "orders")
    assert stream.ask(publish(b"y")) == OK
    assert values(peer.fixture) == [b"y"]


# -- a disk that fails


def test_a_full_disk_is_told_to_each_in_its_form(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    document, real, uni = peer.stream(), original(peer), peer.stream(uni=True)
    peer.stream().ask(publish(b"before"))
    fault = fixture.fill_disk()
    document.feed(publish(b"x", "a"), batch(b"x"), publish(b"y", "b", ack="none"))
    real.feed(publish(b"x", 1), batch(b"x"), batch(b"x", request_id=2), publish(b"x", 3, ack="none"))
    uni.feed(batch(b"x"))
    fixture.commit()
    told: Any = document.replies()
    assert [reply.get("request_id") for reply in told] == ["a", None, "b"]
    assert {said(reply) for reply in told} == {"no space left"}
    assert real.replies() == [
        {"type": "publish_error", "request_id": 1, "message": "no space left"},
        ack(2, "no space left"),
    ]
    assert said(document.ask(publish(b"z"))) == "no space left"
    fixture.free_disk(fault)
    assert document.ask(publish(b"after")) == OK
    assert values(fixture) == [b"before", b"after"]
    assert not (document.finished or real.finished or uni.finished)
    assert uni.session.held_bytes == document.session.held_bytes == real.session.held_bytes == 0


def test_a_disk_that_is_broken_for_good(fixture: BrokerFixture) -> None:
    stream = original(Peer(fixture))
    stream.ask(publish(b"x", 1))
    fixture.break_disk()
    assert said(stream.ask(publish(b"y", 2))) == OUTCOME_UNKNOWN
    assert said(stream.ask(publish(b"z", 3))) == "the log takes no writes"


def test_what_was_acknowledged_is_there_after_a_crash(fixture: BrokerFixture) -> None:
    stream = original(Peer(fixture))
    assert stream.ask(batch(b"a", b"b", request_id=1)) == ack(1)
    stream.feed(publish(b"not acknowledged", 2))
    fixture.restart()
    assert values(fixture)[:2] == [b"a", b"b"]
    assert Peer(fixture).stream().ask(publish(b"c")) == OK


# -- large batches of one length, which are not cut into their values


def many(first: int, length: int = 300, count: int = 64) -> list[bytes]:
    return [bytes([first + number]) * length for number in range(count)]


@pytest.mark.parametrize(
    "requests",
    [
        [many(0)],
        [many(0), many(64), many(128)],
        [many(0), many(64, length=301), many(128)],
        [many(0), [b"small"], many(64)],
        [many(0), many(64, count=9), [b"one", b"other"]],
    ],
    ids=["alone", "of one length", "of two", "around a small one", "before a small one"],
)
def test_large_batches_are_stored_and_delivered_as_they_came(
    fixture: BrokerFixture, peer: Peer, monkeypatch: pytest.MonkeyPatch, requests: list[list[bytes]]
) -> None:
    expected = [value for each in requests for value in each]
    counts = appends(fixture, monkeypatch)
    stream = original(peer)
    replies = stream.all(*[batch(*each, request_id=number) for number, each in enumerate(requests)])
    assert replies == [ack(number) for number in range(len(requests))]
    assert counts == [len(expected)]
    assert values(fixture) == expected


def test_a_large_batch_with_a_key(fixture: BrokerFixture, peer: Peer) -> None:
    stream = original(peer, client_flags=127)
    assert stream.all(batch(*many(0), request_id=1, key=b"k")) == [ack(1)]
    assert values(fixture) == many(0)


def test_each_value_of_a_large_batch_gets_its_verdict_by_a_schema(fixture: BrokerFixture) -> None:
    schema(fixture, "dead-letter")
    right, wrong = b"1".rjust(300), b'"x"'.rjust(300)
    stream = original(Peer(fixture))
    assert stream.all(batch(*[right, wrong] * 10, request_id=1)) == [ack(1)]
    assert values(fixture) == [right] * 10


def test_a_large_batch_of_too_large_values_is_refused() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=299))
    stream = original(Peer(fixture))
    refused, stored = stream.all(batch(*many(0), request_id=1), batch(*many(0, length=299), request_id=2))
    assert "299" in said(refused)
    assert stored == ack(2)
    assert values(fixture) == many(0, length=299)
