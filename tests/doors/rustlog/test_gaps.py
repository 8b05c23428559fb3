"""Fetch where records have expired or were removed: what is live comes with its true offset, and readers get past the
rest. The binary dialect tells no offset of a record but the next one, so that its replies end at a gap."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later
from tests.doors.rustlog.peer import Peer

from penstock.broker.fetch.visible_read import MAX_CHECKED_PER_STEP
from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Records, partition_id
from penstock.log.file_engine import LogSettings
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect
from penstock.wire.rustlog.codec.json_dialect import MAX_RECORD
from penstock.wire.rustlog.frames import MAX_FRAME
from penstock.wire.rustlog.messages import Error, Fetch, FetchResponse, Ping, Pong, Response

BIG = 1 << 30
SECOND = 1_000_000
both = pytest.mark.parametrize("dialect", [JSON, BINARY], ids=["json", "binary"])
ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)


@pytest.fixture(params=[None, ON_DISK], ids=["memory", "disk"])
def fixture(request: pytest.FixtureRequest) -> BrokerFixture:
    fixture = BrokerFixture(request.param)
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.commit()
    return fixture


def store(fixture: BrokerFixture, count: int, *, expire: bool = False, start: int = 0) -> None:
    values = [b"%d" % number for number in range(start, start + count)]
    expires = [fixture.now + SECOND] * count if expire else None
    fixture.broker.produce.append(ME, HERE, "t", 0, values, expires=expires)
    fixture.commit()


def take_out(fixture: BrokerFixture, *offsets: int) -> None:
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, list(offsets)),))
    fixture.commit()


def told(response: Response) -> tuple[list[tuple[int, bytes]], int]:
    assert isinstance(response, FetchResponse), response
    return [(record.offset, record.payload) for record in response.records], response.next_offset


def read_all(peer: Peer, max_bytes: int = BIG) -> list[tuple[int, bytes]]:
    """As a client does it that goes on from the next offset until that does not move."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        records, following = told(peer.ask(Fetch("t", 0, offset, max_bytes)))
        found += records
        if following == offset:
            return found
        offset = following


@both
@pytest.mark.parametrize("max_bytes", [1, 30, BIG])
def test_what_is_live_comes_with_its_true_offsets(fixture: BrokerFixture, dialect: Dialect, max_bytes: int) -> None:
    store(fixture, 4)
    store(fixture, 3, expire=True, start=4)
    store(fixture, 5, start=7)
    store(fixture, 2, expire=True, start=12)
    take_out(fixture, 0, 9)
    fixture.pass_time(2)
    assert read_all(Peer(fixture, dialect), max_bytes) == [(n, b"%d" % n) for n in (1, 2, 3, 7, 8, 10, 11)]


def test_json_tells_all_that_is_live_at_once(fixture: BrokerFixture) -> None:
    store(fixture, 6)
    take_out(fixture, 0, 3, 5)
    assert told(Peer(fixture).ask(Fetch("t", 0, 0, BIG))) == ([(1, b"1"), (2, b"2"), (4, b"4")], 6)


def test_binary_ends_at_the_gap(fixture: BrokerFixture) -> None:
    store(fixture, 6)
    take_out(fixture, 0, 3, 5)
    peer = Peer(fixture, BINARY)
    assert told(peer.ask(Fetch("t", 0, 0, BIG))) == ([(1, b"1"), (2, b"2")], 3)
    assert told(peer.ask(Fetch("t", 0, 3, BIG))) == ([(4, b"4")], 5)
    assert told(peer.ask(Fetch("t", 0, 5, BIG))) == ([], 6)


@both
def test_a_topic_whose_records_have_all_expired(fixture: BrokerFixture, dialect: Dialect) -> None:
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(expiry_seconds=1))
    store(fixture, 5)
    fixture.pass_time(1)
    assert told(Peer(fixture, dialect).ask(Fetch("t", 0, 0, BIG))) == ([], 5)


@both
def test_only_what_is_delivered_counts(fixture: BrokerFixture, dialect: Dialect) -> None:
    store(fixture, 2)
    store(fixture, 5, expire=True, start=2)
    store(fixture, 3, start=7)
    fixture.pass_time(2)
    read_all(Peer(fixture, dialect))
    assert fixture.broker.metrics.messages_fetched == 5
    assert fixture.broker.metrics.bytes_out == 5


@both
def test_many_expired_records_are_passed_aside_while_others_are_served(dialect: Dialect) -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(LogSettings(file_bytes=1 << 20), executor=later(calls))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    for start in range(0, 4 * MAX_CHECKED_PER_STEP, MAX_CHECKED_PER_STEP):
        store(fixture, MAX_CHECKED_PER_STEP, expire=True, start=start)
    store(fixture, 1, start=4 * MAX_CHECKED_PER_STEP)
    fixture.pass_time(2)
    peer, other = Peer(fixture, dialect), Peer(fixture, dialect)
    peer.send_requests(Fetch("t", 0, 0, 100), Ping())
    assert peer.replies() == []
    assert other.ask(Ping()) == Pong()
    steps = 0
    while calls:
        work, done = calls.pop(0)
        work()
        done()
        steps += 1
    assert steps >= 4
    fetched, pong = peer.replies()
    assert told(fetched) == (
        [(4 * MAX_CHECKED_PER_STEP, b"%d" % (4 * MAX_CHECKED_PER_STEP))],
        4 * MAX_CHECKED_PER_STEP + 1,
    )
    assert pong == Pong()


def test_a_client_that_leaves_ends_the_search() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(LogSettings(file_bytes=1 << 20), executor=later(calls))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    for _ in range(3):
        store(fixture, MAX_CHECKED_PER_STEP, expire=True)
    fixture.pass_time(2)
    peer = Peer(fixture)
    peer.send_requests(Fetch("t", 0, 0, 100))
    work, done = calls.pop(0)
    work()
    peer.session.lost()
    done()
    assert calls == []


def test_a_reply_that_depends_on_a_removal_waits_until_that_is_kept() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(ON_DISK, executor=later(calls))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.commit()
    store(fixture, 2)
    peer = Peer(fixture)
    fault = fixture.fill_disk()
    for outcome in ("failed", "committed"):
        fixture.broker.state_log.commit((RecordsRemoved(1, 0, [0]),))
        peer.send_requests(Fetch("t", 0, 0, 100))
        work, done = calls.pop(0)
        work()
        done()
        assert peer.replies() == []
        fixture.commit()
        (reply,) = peer.replies()
        if outcome == "failed":
            assert isinstance(reply, Error), reply
            fixture.free_disk(fault)
            calls.clear()  # the broker's own care may be among them
        else:
            assert told(reply) == ([(1, b"1")], 2)


def test_a_json_reply_has_room_for_its_next_offset_however_far_that_is() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 20))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.engine.append([Records(partition_id(1, 0), [b"x" * MAX_RECORD])])
    fixture.commit()
    slices = fixture.broker.fetch.plan(ME, HERE, "t", 0, 0, BIG, 1).run()
    far = 10 ** (MAX_FRAME - len(JSON.encode_fetch(slices, 1)) + 1)  # one digit more than there is room for
    payload = JSON.encode_fetch(slices, far)
    assert len(payload) <= MAX_FRAME
    assert JSON.next_offset(payload) == 1
