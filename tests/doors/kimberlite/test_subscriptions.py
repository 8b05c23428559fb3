from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.kimberlite.peer import TENANT, Peer

from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, ANONYMOUS, AccessPolicy, Permission
from penstock.broker.security.key import KeyTerms
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.session import KimberliteSession
from penstock.doors.kimberlite.subscriptions import (
    CHUNK_BYTES,
    HELD_BYTES,
    MAX_SUBSCRIPTIONS,
    Subscription,
    subscription_id,
)
from penstock.doors.pipeline import FLUSH_BYTES
from penstock.log.engine import partition_id
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.frames import MAX_EVENT

SCOPE = Scope(str(TENANT), "default")
PUSHING = ["v2", "v3", "v4", "5a", "5b"]
ALONE = ["v0.4", "seed"]  # version 1, which has no pushes
MANY = 1_000_000

Calls = list[tuple[Callable[[], None], Callable[[], None]]]


def run(calls: Calls) -> None:
    """Reads that were submitted to the executor complete."""
    while calls:
        work, done = calls.pop(0)
        work()
        done()


def subscribe(peer: Peer, stream: int, offset: int = 0, credit: int = MANY, group: str | None = None) -> int:
    reply = peer.ask(m.Subscribe(stream, offset, credit, group))
    assert isinstance(reply, m.SubscribeResponse), reply
    assert reply.credits == credit
    return reply.subscription_id


def credit(peer: Peer, subscription: int, additional: int) -> int:
    """The balance afterwards."""
    reply = peer.ask(m.SubscribeCredit(subscription, additional))
    assert isinstance(reply, m.SubscriptionAck), reply
    assert reply.subscription_id == subscription
    return reply.credits_remaining


def pushed(peer: Peer) -> list[m.Message]:
    """The pushes since the last call."""
    peer.responses()
    found, peer.pushed = peer.pushed, []
    return found


def subscription(peer: Peer, number: int) -> Subscription:
    session = peer.session
    assert isinstance(session, KimberliteSession)
    return session._subscriptions._open[number]


def events(peer: Peer) -> list[tuple[int, bytes]]:
    """Offset and event of what was pushed since the last time: nothing but events."""
    return list(_events(pushed(peer)))


def _events(found: list[m.Message]) -> Iterator[tuple[int, bytes]]:
    for push in found:
        assert isinstance(push, m.SubscriptionEvents), push
        yield from enumerate(push.events, push.start_offset)


def offsets(peer: Peer) -> list[int]:
    return [offset for offset, _ in events(peer)]


def position(fixture: BrokerFixture, group: str = "g", topic: str = "events") -> int | None:
    return fixture.broker.groups.committed(ANONYMOUS, SCOPE, group, topic, 0)


class Scene:
    """A stream with some events, and one who appends to it."""

    def __init__(self, count: int = 0, **options: Any) -> None:
        self.fixture = BrokerFixture(**options)
        self.author = Peer(self.fixture, port=1)
        self.stream = self.author.create()
        self.append(count)

    def peer(self, dialect: str = "5b", **options: Any) -> Peer:
        return Peer(self.fixture, dialect, **options)

    def append(self, count: int) -> None:
        if count:
            end = self.author.length(self.stream)
            self.author.append(self.stream, *[b"e%d" % (end + number) for number in range(count)])

    def secure(self) -> None:
        """The same broker, started with security on."""
        self.fixture.options["access"] = AccessPolicy(True, [ADMINISTRATION])
        self.fixture.restart()
        self.author, _ = self.keyed(Permission.WRITE, Permission.READ)

    def keyed(self, *permissions: Permission, topics: Sequence[str] = ("*",)) -> tuple[Peer, int]:
        """A client with a key, and the key's number."""
        new, _ = self.fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", SCOPE.tenant, permissions, topics))
        self.fixture.commit()
        return self.peer(token=new.secret), new.key.id


# -- delivery


@pytest.mark.parametrize("dialect", PUSHING)
def test_events_are_pushed_from_the_offset_on_and_as_they_come(dialect: str) -> None:
    scene = Scene(3)
    peer = scene.peer(dialect)
    subscribe(peer, scene.stream, 1)
    assert events(peer) == [(1, b"e1"), (2, b"e2")]
    scene.append(2)
    assert events(peer) == [(3, b"e3"), (4, b"e4")]


def test_the_reply_comes_before_the_first_push() -> None:
    scene = Scene(2)
    peer = scene.peer()
    peer.feed(m.Subscribe(scene.stream, 0, MANY))
    scene.fixture.commit()
    peer.wire.feed(peer.raw())
    kinds = []
    while (message := peer.wire.next()) is not None:
        kinds.append(type(message.payload))
    assert kinds == [m.SubscribeResponse, m.SubscriptionEvents, m.SubscriptionEvents]


def test_one_event_goes_in_a_frame_unless_the_settings_say_otherwise() -> None:
    scene = Scene(5)
    one, more = scene.peer(), scene.peer(settings=KimberliteSettings(push_events=3))
    number = subscribe(one, scene.stream, credit=10)
    assert pushed(one) == [m.SubscriptionEvents(number, n, [b"e%d" % n], 9 - n) for n in range(5)]
    subscribe(more, scene.stream, credit=10)
    assert pushed(more) == [
        m.SubscriptionEvents(number, 0, [b"e0", b"e1", b"e2"], 7),
        m.SubscriptionEvents(number, 3, [b"e3", b"e4"], 5),
    ]


def test_events_in_a_frame_are_without_gaps() -> None:
    scene = Scene()
    for number in range(6):
        expires = [scene.fixture.now + 1] if number in (2, 3) else None
        scene.fixture.broker.produce.append(ANONYMOUS, SCOPE, "events", 0, [b"e%d" % number], expires=expires)
    scene.fixture.commit()
    scene.fixture.pass_time(1)
    peer = scene.peer(settings=KimberliteSettings(push_events=100))
    number = subscribe(peer, scene.stream, credit=10)
    found = pushed(peer)
    assert list(_events(found)) == [(0, b"e0"), (1, b"e1"), (4, b"e4"), (5, b"e5")]
    assert found[-1] == m.SubscriptionEvents(number, 4, [b"e4", b"e5"], 6)  # what is not there costs no credit


def test_neighbours_from_different_appends_go_in_one_frame() -> None:
    scene = Scene()
    for _ in range(4):
        scene.append(2)
    peer = scene.peer(settings=KimberliteSettings(push_events=5))
    number = subscribe(peer, scene.stream, credit=8)
    first, second = pushed(peer)
    assert first == m.SubscriptionEvents(number, 0, [b"e%d" % n for n in range(5)], 3)
    assert second == m.SubscriptionEvents(number, 5, [b"e5", b"e6", b"e7"], 0)


def test_what_is_committed_together_leaves_in_one_piece() -> None:
    scene = Scene()
    peer = scene.peer()
    subscribe(peer, scene.stream)
    before = len(peer.sent)
    scene.append(1000)
    assert len(peer.sent) == before + 1
    assert offsets(peer) == list(range(1000))


def test_an_offset_beyond_the_end_is_waited_for() -> None:
    scene = Scene(1)
    peer = scene.peer()
    reply = peer.ask(m.Subscribe(scene.stream, 3, MANY))
    assert isinstance(reply, m.SubscribeResponse) and reply.start_offset == 3
    scene.append(2)
    assert offsets(peer) == []
    scene.append(2)
    assert offsets(peer) == [3, 4]


def test_a_partition_of_a_topic_with_several_is_a_stream_of_its_own() -> None:
    scene = Scene()
    topic, _ = scene.fixture.broker.topics.create(ANONYMOUS, SCOPE, "wide", 3)
    peer = scene.peer()
    subscribe(peer, topic.id + (2 << 32))
    for partition in range(3):
        scene.fixture.broker.produce.append(ANONYMOUS, SCOPE, "wide", partition, [b"p%d" % partition])
    scene.fixture.commit()
    assert events(peer) == [(0, b"p2")]


def test_a_record_that_no_frame_can_hold_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(2)
    peer = scene.peer()
    subscribe(peer, scene.stream)
    scene.fixture.broker.produce.append(ANONYMOUS, SCOPE, "events", 0, [b"2", bytes(MAX_EVENT + 1), bytes(16 << 20)])
    scene.fixture.broker.produce.append(ANONYMOUS, SCOPE, "events", 0, [bytes(MAX_EVENT), b"6"])
    scene.fixture.commit()
    found = pushed(peer)
    assert [offset for offset, _ in _events(found)] == [0, 1, 2, 5, 6]
    assert not [each for each in found if isinstance(each, m.SubscriptionClosed)]
    assert scene.fixture.broker.metrics.records_unsendable == 2
    assert caplog.text.count("does not get a record of 'events': the record at offset 3 has") == 1


def test_a_group_goes_on_behind_a_record_that_no_frame_can_hold() -> None:
    scene = Scene()
    produce = scene.fixture.broker.produce
    produce.append(ANONYMOUS, SCOPE, "events", 0, [b"0", bytes(16 << 20), b"2"])
    scene.fixture.commit()
    peer = scene.peer()
    number = subscribe(peer, scene.stream, group="g", credit=10)
    assert offsets(peer) == [0, 2]
    peer.ask(m.SubscribeCredit(number, 2))
    scene.fixture.commit()
    assert scene.fixture.broker.groups.committed(ANONYMOUS, SCOPE, "g", "events", 0) == 3


# -- credits


def test_a_credit_is_an_event() -> None:
    scene = Scene(5)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=2)
    found = pushed(peer)
    assert [push.credits_remaining for push in found if isinstance(push, m.SubscriptionEvents)] == [1, 0]
    scene.append(1)
    assert pushed(peer) == []
    assert credit(peer, number, 3) == 3
    assert offsets(peer) == [2, 3, 4]
    assert credit(peer, number, 10) == 10
    assert offsets(peer) == [5]
    assert credit(peer, number, 0) == 9


def test_without_credit_nothing_is_pushed() -> None:
    scene = Scene(3)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0)
    scene.append(1)
    assert pushed(peer) == []
    credit(peer, number, 1)
    assert offsets(peer) == [0]


def test_credits_stop_at_what_the_field_can_hold() -> None:
    scene = Scene()
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=2**32 - 2)
    assert credit(peer, number, 1) == 2**32 - 1
    assert credit(peer, number, 2**32 - 1) == 2**32 - 1


def test_who_does_not_take_what_is_pushed_falls_behind_and_loses_nothing() -> None:
    scene = Scene()
    peer = scene.peer()
    subscribe(peer, scene.stream)
    peer.limit = 0
    for _ in range(5):
        scene.append(3)
    assert peer.session.held_bytes < HELD_BYTES
    taken = offsets(peer)
    assert len(taken) <= 3
    peer.limit = None
    peer.session.receive(b"")
    assert taken + offsets(peer) == list(range(15))


def test_pushes_that_wait_behind_a_reply_are_bounded_and_go_on_when_it_has_left() -> None:
    scene = Scene()
    scene.author.append(scene.stream, *[bytes(FLUSH_BYTES // 8) for _ in range(100)])
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0)
    created = m.CreateStream("other", m.DataClass.PUBLIC, m.Everywhere())
    peer.feed(created)  # its reply waits for the commit, and so does all behind it
    subscription(peer, number).credits = 1000
    subscription(peer, number).slot.resume()
    assert HELD_BYTES < peer.session.held_bytes < 2 * HELD_BYTES
    assert peer.raw() == b""
    scene.fixture.commit()
    assert offsets(peer) == list(range(100))


def test_reading_from_the_disk_is_done_off_the_loop_and_holds_up_no_request(caplog: pytest.LogCaptureFixture) -> None:
    calls: Calls = []
    scene = Scene(2, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0)
    subscription(peer, number).slot.skip_expired = True  # so that its next read is made off the loop
    assert credit(peer, number, 5) == 5
    assert pushed(peer) == [] and len(calls) == 1
    assert credit(peer, number, 1) == 6
    scene.append(1)
    assert pushed(peer) == []
    run(calls)
    assert offsets(peer) == [0, 1, 2]
    scene.append(1)
    assert offsets(peer) == [3]
    assert not caplog.records  # nobody who watches the stream has failed


def test_a_hundred_subscriptions_that_read_from_the_disk_at_once_hold_no_more_than_one() -> None:
    """Each might begin before anything is held, and all of them come back to a client that takes nothing any more."""
    calls: Calls = []
    scene = Scene(executor=later(calls), scheduler=LaterScheduler(calls))
    peer = scene.peer()
    for number in [subscribe(peer, scene.stream) for _ in range(100)]:
        subscription(peer, number).slot.skip_expired = True  # so that its next read is made off the loop
    scene.author.append(scene.stream, bytes(CHUNK_BYTES), bytes(CHUNK_BYTES))
    assert 1 < len(calls) < 10
    peer.limit = 0
    run(calls)
    assert 0 < sum(map(len, peer.sent)) + peer.session.held_bytes < 6 * HELD_BYTES
    taken = offsets(peer)
    peer.limit = None
    peer.session.receive(b"")
    run(calls)
    assert sorted(taken + offsets(peer)) == [0] * 100 + [1] * 100


def test_who_unsubscribes_while_its_events_are_read_gets_none_of_them() -> None:
    calls: Calls = []
    scene = Scene(2, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0)
    subscription(peer, number).slot.skip_expired = True
    credit(peer, number, 5)
    peer.ask(m.Unsubscribe(number))
    run(calls)
    peer.create("other")
    assert pushed(peer) == [m.SubscriptionClosed(number, m.CloseReason.CLIENT_CANCELLED)]


def test_events_behind_expired_ones_cost_credit_as_well() -> None:
    scene = Scene()
    scene.fixture.broker.produce.append(
        ANONYMOUS, SCOPE, "events", 0, [b"dead"] * 3, expires=[scene.fixture.now + 1] * 3
    )
    scene.fixture.commit()
    scene.append(5)
    scene.fixture.pass_time(1)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=2)
    assert offsets(peer) == [3, 4]
    credit(peer, number, 2)
    assert offsets(peer) == [5, 6]


def test_a_client_that_goes_while_its_events_are_read_is_forgotten() -> None:
    calls: Calls = []
    scene = Scene(2, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0, group="g")
    subscription(peer, number).slot.skip_expired = True
    credit(peer, number, 5)
    peer.session.lost()
    other = scene.peer()
    subscribe(other, scene.stream, group="g")
    assert offsets(other) == [0, 1]
    run(calls)
    assert position(scene.fixture) == 0


def test_a_long_stretch_of_events_leaves_everybody_else_a_turn() -> None:
    calls: Calls = []
    scene = Scene(9000, executor=later(calls), scheduler=LaterScheduler(calls))
    peer = scene.peer()
    subscribe(peer, scene.stream)
    first = offsets(peer)
    assert 4096 <= len(first) < 5000
    run(calls)
    assert first + offsets(peer) == list(range(9000))


def test_what_depends_on_a_change_that_fails_is_not_sent() -> None:
    scene = Scene(3)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=0)
    scene.fixture.broker.topics.create(ANONYMOUS, SCOPE, "other", 1)  # a change of state, as a removal would be
    peer.feed(m.SubscribeCredit(number, 2))
    assert peer.raw() == b""
    fault = scene.fixture.fill_disk()
    scene.fixture.commit()
    peer.responses()
    assert peer.pushed == [m.SubscriptionClosed(number, m.CloseReason.PROTOCOL_ERROR)]
    scene.fixture.free_disk(fault)
    assert len(scene.fixture.broker.subscriptions) == 0


# -- ending


def test_unsubscribing_closes_before_it_is_acknowledged() -> None:
    scene = Scene(1)
    peer = scene.peer()
    number = subscribe(peer, scene.stream)
    pushed(peer)
    peer.feed(m.Unsubscribe(number))
    peer.wire.feed(peer.raw())
    first, second = peer.wire.next(), peer.wire.next()
    assert isinstance(first, m.Push) and isinstance(second, m.Response)
    assert first.payload == m.SubscriptionClosed(number, m.CloseReason.CLIENT_CANCELLED)
    assert second.payload == m.SubscriptionAck(number, 0)
    scene.append(1)
    assert pushed(peer) == []
    assert peer.refused(m.Unsubscribe(number)).code is m.ErrorCode.SUBSCRIPTION_NOT_FOUND
    assert peer.refused(m.SubscribeCredit(number, 1)).code is m.ErrorCode.SUBSCRIPTION_NOT_FOUND


def test_a_subscription_of_another_connection_or_tenant_is_unknown() -> None:
    scene = Scene()
    peer, other = scene.peer(), scene.peer()
    number = subscribe(peer, scene.stream)
    for asking, tenant in ((other, TENANT), (peer, TENANT + 1)):
        for request in (m.SubscribeCredit(number, 1), m.Unsubscribe(number)):
            reply = asking.refused(request, tenant)
            assert reply.code in (m.ErrorCode.SUBSCRIPTION_NOT_FOUND, m.ErrorCode.AUTHENTICATION_FAILED)


def test_a_deleted_stream_closes_its_subscriptions() -> None:
    scene = Scene(1)
    peer = scene.peer()
    number = subscribe(peer, scene.stream)
    assert offsets(peer) == [0]
    scene.fixture.broker.topics.delete(ANONYMOUS, SCOPE, "events")
    scene.fixture.broker.sweep(scene.fixture.now)
    assert pushed(peer) == []  # it may still fail
    scene.fixture.commit()
    assert pushed(peer) == [m.SubscriptionClosed(number, m.CloseReason.STREAM_DELETED)]
    assert peer.refused(m.SubscribeCredit(number, 1)).code is m.ErrorCode.SUBSCRIPTION_NOT_FOUND


def test_a_broker_that_shuts_down_says_so_to_every_subscriber() -> None:
    scene = Scene()
    peer = scene.peer()
    numbers = [subscribe(peer, scene.stream), subscribe(peer, scene.stream, group="g")]
    peer.session.stop()
    assert pushed(peer) == [m.SubscriptionClosed(number, m.CloseReason.SERVER_SHUTDOWN) for number in numbers]
    assert peer.closed


@pytest.mark.parametrize("end", ["lost", "end_of_input"])
def test_a_connection_that_ends_leaves_nothing_behind(end: str) -> None:
    scene = Scene()
    peer = scene.peer()
    subscribe(peer, scene.stream)
    subscribe(peer, scene.stream, group="g")
    assert len(scene.fixture.broker.subscriptions) == 2
    getattr(peer.session, end)()
    assert len(scene.fixture.broker.subscriptions) == 0
    assert scene.fixture.engine._partitions[partition_id(scene.stream, 0)].watchers is None
    sent = len(peer.sent)
    scene.append(1)
    assert len(peer.sent) == sent


def test_a_key_that_is_revoked_gets_no_more() -> None:
    scene = Scene()
    scene.secure()
    peer, key = scene.keyed(Permission.READ)
    number = subscribe(peer, scene.stream)
    scene.append(1)
    assert offsets(peer) == [0]
    scene.fixture.broker.keys.revoke(ADMINISTRATOR, key)
    scene.append(1)
    assert pushed(peer) == [m.SubscriptionClosed(number, m.CloseReason.PROTOCOL_ERROR)]


def test_a_member_must_be_allowed_to_move_its_group() -> None:
    scene = Scene(2)
    scene.secure()
    peer, _ = scene.keyed(Permission.READ)
    subscribe(peer, scene.stream)
    assert peer.refused(m.Subscribe(scene.stream, 0, 1, "g")).code is m.ErrorCode.AUTHENTICATION_FAILED
    member, _ = scene.keyed(Permission.READ, Permission.COMMIT)
    subscribe(member, scene.stream, group="g")
    assert offsets(member) == [0, 1]


def test_who_may_not_read_learns_nothing() -> None:
    scene = Scene(2)
    scene.secure()
    peer, _ = scene.keyed(Permission.READ, topics=["other"])
    codes = {peer.refused(m.Subscribe(stream, 0, 1)).code for stream in (scene.stream, scene.stream + 7)}
    assert len(codes) == 1
    assert pushed(peer) == []


# -- what is refused


def test_an_unknown_stream_is_not_found() -> None:
    scene = Scene()
    peer = scene.peer()
    for stream in (scene.stream + 1, scene.stream + (1 << 32), 2**64 - 1):
        assert peer.refused(m.Subscribe(stream, 0, 1)).code is m.ErrorCode.STREAM_NOT_FOUND


@pytest.mark.parametrize("dialect", [*PUSHING, *ALONE])
def test_what_retention_has_removed_is_an_invalid_offset(dialect: str) -> None:
    scene = Scene(5)
    scene.fixture.engine.trim({partition_id(scene.stream, 0): 3})
    scene.fixture.commit()
    peer = scene.peer(dialect)
    reply = peer.refused(m.Subscribe(scene.stream, 2, 1))
    assert reply.code is m.ErrorCode.INVALID_OFFSET
    assert "3" in reply.message
    subscribe(peer, scene.stream, 3)


def test_a_connection_has_only_so_many_subscriptions() -> None:
    scene = Scene()
    peer = scene.peer()
    numbers = {subscribe(peer, scene.stream, credit=0) for _ in range(MAX_SUBSCRIPTIONS)}
    assert len(numbers) == MAX_SUBSCRIPTIONS
    assert peer.refused(m.Subscribe(scene.stream, 0, 1)).code is m.ErrorCode.RATE_LIMITED
    peer.ask(m.Unsubscribe(numbers.pop()))
    subscribe(peer, scene.stream)


def test_a_group_needs_a_name_that_groups_may_have() -> None:
    scene = Scene()
    for dialect in ("5b", "v0.4"):
        peer = scene.peer(dialect)
        for group in ("", "a\x00b", "x" * 300):
            assert peer.refused(m.Subscribe(scene.stream, 0, 1, group)).code is m.ErrorCode.INVALID_REQUEST


# -- groups


def test_members_share_the_events_and_none_is_lost_with_a_connection() -> None:
    scene = Scene()
    one, two = scene.peer(port=2), scene.peer(port=3)
    first = subscribe(one, scene.stream, group="g")
    subscribe(two, scene.stream, group="g")
    for _ in range(6):
        scene.append(1)
    assert (offsets(one), offsets(two)) == ([0, 2, 4], [1, 3, 5])
    credit(one, first, 1)
    one.session.lost()
    assert offsets(two) == [2, 4]
    scene.append(1)
    assert offsets(two) == [6]


def test_a_group_goes_on_where_it_was_after_a_restart() -> None:
    scene = Scene(10)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, 2, credit=6, group="g")
    assert offsets(peer) == [2, 3, 4, 5, 6, 7]
    credit(peer, number, 4)
    scene.fixture.restart()
    again = scene.peer()
    reply = again.ask(m.Subscribe(scene.stream, 0, MANY, "g"))
    assert isinstance(reply, m.SubscribeResponse) and reply.start_offset == 6
    assert offsets(again) == [6, 7, 8, 9]


def test_a_credit_given_back_is_an_event_done_with_but_none_that_was_not_sent() -> None:
    scene = Scene(4)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=4, group="g")
    credit(peer, number, 3)
    assert position(scene.fixture) == 3
    credit(peer, number, 1000)
    assert position(scene.fixture) == 4
    scene.append(2)
    assert position(scene.fixture) == 4


def test_who_unsubscribes_is_done_with_what_it_was_sent() -> None:
    scene = Scene(4)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=3, group="g")
    peer.ask(m.Unsubscribe(number))
    assert position(scene.fixture) == 3


def test_an_acknowledged_credit_is_in_the_journal() -> None:
    scene = Scene(4)
    peer = scene.peer()
    number = subscribe(peer, scene.stream, credit=4, group="g")
    peer.feed(m.SubscribeCredit(number, 2))
    assert peer.responses() == []
    scene.fixture.commit()
    assert len(peer.responses()) == 1
    scene.fixture.restart()
    assert position(scene.fixture) == 2


def test_a_group_that_cannot_begin_has_no_subscription() -> None:
    scene = Scene(1)
    peer = scene.peer()
    fault = scene.fixture.fill_disk()
    assert peer.refused(m.Subscribe(scene.stream, 0, 1, "g")).code is m.ErrorCode.STORAGE_ERROR
    assert pushed(peer) == []
    assert len(scene.fixture.broker.subscriptions) == 0
    scene.fixture.free_disk(fault)
    subscribe(peer, scene.stream, group="g")
    assert offsets(peer) == [0]


# -- ids, and version 1


def test_a_client_that_comes_back_knows_its_subscription_again() -> None:
    scene = Scene()
    other = scene.author.create("other")
    one, two = scene.peer(), scene.peer()
    expected = subscription_id(TENANT, scene.stream)
    assert [subscribe(one, scene.stream), subscribe(two, scene.stream)] == [expected] * 2
    assert subscription_id(TENANT, other) != expected != subscription_id(TENANT + 1, scene.stream)
    number = subscribe(one, scene.stream)
    assert number != expected


def test_a_subscription_keeps_its_id_whatever_else_the_connection_subscribed_to() -> None:
    scene = Scene(1)
    other = scene.author.create("other")
    for _ in range(2):
        peer = scene.peer()
        assert subscribe(peer, other) == subscription_id(TENANT, other)
        assert subscribe(peer, scene.stream) == subscription_id(TENANT, scene.stream)
        assert offsets(peer) == [0]


def test_on_a_connection_no_id_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original's clients would take the end of the first subscription for that of the next."""
    monkeypatch.setattr("penstock.doors.kimberlite.subscriptions.MAX_SUBSCRIPTIONS", 3)
    scene = Scene(1)
    peer, found = scene.peer(), []
    for _ in range(5):
        found.append(subscribe(peer, scene.stream))
        peer.ask(m.Unsubscribe(found[-1]))
    own = subscription_id(TENANT, scene.stream)
    assert found == list(range(own, own + 5))
    for number in range(5):
        other = scene.author.create(f"other-{number}")
        peer.ask(m.Unsubscribe(subscribe(peer, other)))
    assert isinstance(peer.session, KimberliteSession)
    assert len(peer.session._subscriptions._made) == 3


@pytest.mark.parametrize("dialect", ALONE)
def test_version_1_is_told_where_to_begin_and_gets_no_pushes(dialect: str) -> None:
    scene = Scene(3)
    peer = scene.peer(dialect)
    for _ in range(2):
        reply = peer.ask(m.Subscribe(scene.stream, 1, 128))
        assert reply == m.SubscribeResponse(subscription_id(TENANT, scene.stream), 1, 128)
    scene.append(1)
    assert peer.raw() == b""
    assert len(scene.fixture.broker.subscriptions) == 0


def test_version_1_begins_where_its_group_is() -> None:
    scene = Scene(5)
    member, peer = scene.peer(), scene.peer("v0.4")
    reply = peer.ask(m.Subscribe(scene.stream, 1, 128, "g"))
    assert isinstance(reply, m.SubscribeResponse) and reply.start_offset == 1
    assert position(scene.fixture) is None
    number = subscribe(member, scene.stream, credit=3, group="g")
    member.ask(m.Unsubscribe(number))
    reply = peer.ask(m.Subscribe(scene.stream, 1, 128, "g"))
    assert isinstance(reply, m.SubscribeResponse) and reply.start_offset == 3
