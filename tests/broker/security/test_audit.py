"""The audit log: what is in it, what is promised about it, and how it is searched."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.broker.broker_fixture import BrokerFixture, later

from penstock.broker.errors import (
    AccessDenied,
    AuditOff,
    DeadLetterNotFound,
    InvalidArgument,
    LimitReached,
    SchemaIncompatible,
    TopicExists,
    TopicNotFound,
    WrongPassword,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.broker.security import audit, audit_event
from penstock.broker.security.access import ANONYMOUS, Access, AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.audit_event import TYPES, AuditEvent, AuditPage, AuditPolicy, AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.user import Acl
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Records, partition_id
from penstock.log.file_engine import LogSettings

ADMIN = Identity("admin", peer="10.1.2.3:4567")
ALICE = Identity("alice", peer="[2001:db8::7]:99")
ACME = Scope("acme", "default")
GRANTS = [
    Grant("admin", frozenset({Permission.ADMIN})),
    Grant("alice", frozenset({Permission.DESCRIBE}), topic="open"),
    Grant("acme", frozenset({Permission.ADMIN}), tenant="acme"),
    Grant("local", frozenset({Permission.ADMIN}), tenant="acme", namespace="default"),
]


def fixture(**options: Any) -> BrokerFixture:
    return BrokerFixture(**{"access": Access(True, GRANTS), "audit": AuditPolicy(enabled=True), **options})


def ask(one: BrokerFixture, tenant: str = "default", who: Identity = ADMIN, **query: Any) -> AuditPage:
    one.commit()
    work = one.broker.audit.query(who, tenant, AuditQuery(**query))
    work.run()
    return work.finish()


def told(one: BrokerFixture, tenant: str = "default", **query: Any) -> list[AuditEvent]:
    """Oldest first."""
    return ask(one, tenant, **{"limit": 1000, **query}).events[::-1]


def kinds(one: BrokerFixture, tenant: str = "default") -> list[str]:
    return [event.type for event in told(one, tenant)]


def deny(one: BrokerFixture, topic: str = "secret", who: Identity = ALICE, scope: Scope = DEFAULT_SCOPE) -> None:
    with pytest.raises(AccessDenied):
        one.broker.fetch.plan(who, scope, topic, 0, 0, 100, 1)


def fill(one: BrokerFixture, count: int) -> None:
    for number in range(count):
        one.broker.audit.note(ADMIN, "topic.create", resource=f"t{number}")
        one.pass_time(1)
    one.commit()


# -- what is in it


def test_topics_that_come_change_and_go() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 3)
    one.pass_time(1.5)
    one.broker.topics.change(ADMIN, DEFAULT_SCOPE, "orders", TopicSettings(retention_seconds=60))
    one.broker.topics.delete(ADMIN, DEFAULT_SCOPE, "orders")
    created, changed, deleted = told(one)
    assert created == AuditEvent(
        timestamp=1_700_000_000_000,
        type="topic.create",
        user="admin",
        client_ip="10.1.2.3",
        resource="orders",
        action="create",
        result="success",
        node_id="penstock",
        details={"partitions": "3"},
        id="2-0",
    )
    assert (changed.type, changed.timestamp, changed.id) == ("topic.alter", 1_700_000_001_500, "2-1")
    assert msgspec.json.decode(changed.details["settings"]) == {"retention_seconds": 60.0}
    assert (deleted.type, deleted.resource, deleted.result) == ("topic.delete", "orders", "success")


def test_a_topic_that_comes_into_being_on_first_use_is_there_too() -> None:
    one = fixture()
    one.broker.topics.ensure(ADMIN, DEFAULT_SCOPE, "new")
    one.broker.topics.ensure(ADMIN, DEFAULT_SCOPE, "new")
    assert kinds(one) == ["topic.create"]


def test_keys_are_told_of_by_number_and_never_shown() -> None:
    one = fixture()
    terms = KeyTerms("billing", "acme", [Permission.READ, Permission.WRITE], ("a", "b.*"))
    secret = one.broker.keys.add(ADMIN, terms)[0].secret
    chosen = "correct horse battery staple"
    one.broker.keys.add(ADMIN, terms, chosen)
    one.broker.keys.revoke(ADMIN, 1)
    one.broker.keys.revoke(ADMIN, 1)  # changes nothing
    one.broker.keys.authenticate(chosen, "10.0.0.9:1")
    one.broker.keys.authenticate(secret, "10.0.0.9:1")
    added, _, revoked, entered = told(one, "acme")
    assert (added.type, added.resource, added.user) == ("key.add", "key:1", "admin")
    assert added.details == {"name": "billing", "permissions": "read,write", "topics": "a,b.*"}
    assert (revoked.type, revoked.resource, revoked.details) == ("key.revoke", "key:1", {"name": "billing"})
    assert (entered.type, entered.user, entered.client_ip) == ("auth.success", "key:2", "10.0.0.9")
    everything = b"".join(one.broker.audit.policy.node.encode() + audit_event.encode(e) for e in told(one, "acme"))
    everything += b"".join(map(audit_event.encode, told(one)))
    assert secret[6:].encode() not in everything and b"horse" not in everything


def test_who_fails_to_prove_who_it_is_and_who_is_locked_out() -> None:
    one = fixture(lockout=LockoutPolicy(2, 60))
    for _ in range(4):
        one.broker.keys.authenticate("wrong", "10.0.0.9:1")
    one.pass_time(60)
    one.broker.sweep(one.now)
    first, lock, more = told(one)
    assert (first.type, first.result, first.client_ip, first.user) == ("auth.failure", "failure", "10.0.0.9", "")
    assert (lock.type, lock.result, lock.client_ip) == ("auth.lockout", "denied", "10.0.0.9")
    assert more.type == "auth.failure" and more.details["count"] == "3"


def test_a_denial_says_who_wanted_what_from_where() -> None:
    one = fixture()
    deny(one)
    (event,) = told(one)
    assert (event.type, event.user, event.client_ip) == ("access.denied", "alice", "2001:db8::7")
    assert (event.resource, event.action, event.result) == ("secret", "read", "denied")
    with pytest.raises(AccessDenied):
        one.broker.keys.list(ALICE)
    with pytest.raises(AccessDenied):
        one.broker.topics.list(Identity("bob"), DEFAULT_SCOPE)
    with pytest.raises(AccessDenied):
        one.broker.queues.find(ALICE, 7)
    assert [(e.user, e.action, e.resource) for e in told(one)[1:]] == [
        ("alice", "admin", ""),
        ("bob", "describe", ""),
        ("alice", "read", "queue 7"),
    ]


def test_what_is_allowed_is_no_denial() -> None:
    one = fixture()
    with pytest.raises(TopicNotFound):
        one.broker.topics.describe(ALICE, DEFAULT_SCOPE, "open")
    assert one.broker.topics.list(ALICE, DEFAULT_SCOPE) == []
    assert told(one) == []


def test_an_attempt_to_forge_the_log_is_in_it() -> None:
    one = fixture()
    one.broker.audit.note(ADMIN, "topic.create")
    with pytest.raises(Exception, match="broker's own"):
        one.broker.produce.append(ADMIN, DEFAULT_SCOPE, "__audit", 0, [b"{}"])
    (event,) = told(one, types=("access.denied",))
    assert (event.user, event.resource, event.action) == ("admin", "__audit", "write")


def test_an_event_belongs_to_the_tenant_it_is_about() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, ACME, "a", 1)
    one.broker.topics.create(ADMIN, Scope("acme", "dev"), "b", 1)
    deny(one, scope=ACME)  # alice is bound to no tenant
    deny(one, who=Identity("key:9", "acme"))
    deny(one, who=Identity("key:9", "acme"), scope=Scope("globex", "default"))
    deny(one, scope=Scope("invented", "default"))
    deny(one, scope=Scope("../../etc", "default"))
    events = [(event.type, event.resource, event.details) for event in told(one, "acme")]
    assert events == [
        ("topic.create", "a", {"partitions": "1"}),
        ("topic.create", "b", {"partitions": "1", "namespace": "dev"}),
        ("access.denied", "secret", {}),
        ("access.denied", "secret", {"tenant": "default"}),
        # "globex" is like it but for the tenant, and was counted
    ]
    assert [event.details for event in told(one)] == [{"tenant": "invented"}]
    assert not ({"invented", "../../etc", "globex"} & one.broker.state_log.state.tenants)


def test_texts_that_clients_choose_are_bounded_and_can_be_encoded() -> None:
    one = fixture()
    deny(one, "x" * 100_000)
    deny(one, "\ud800 é \x00")
    many: Any = {f"name{n}": "v" * 1000 for n in range(100)}
    one.broker.audit.note(ADMIN, "dlq.replay", **many)
    long, odd, detailed = told(one)
    assert long.resource == "x" * 254 + "…"
    assert odd.resource == "\\ud800 é \x00"
    assert len(detailed.details) == 16 and {len(value) for value in detailed.details.values()} == {255}


# -- what is promised


def test_an_event_is_in_one_commit_group_with_its_change() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    one.restart()  # before the commit
    assert one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True) == []
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    assert one.committer.run() and not one.committer.run()
    one.restart()
    assert kinds(one) == ["topic.create"]
    assert [topic.name for topic in one.broker.topics.list(ADMIN, DEFAULT_SCOPE)] == ["orders"]


def test_events_are_there_after_every_restart() -> None:
    one = fixture()
    for number in range(5):
        one.broker.topics.create(ADMIN, DEFAULT_SCOPE, f"t{number}", 1)
        one.commit()
        one.restart()
        assert [event.id for event in told(one)] == [f"2-{n}" for n in range(number + 1)]


def test_if_the_disk_is_full_denials_are_told_all_the_same_and_the_next_event_says_what_is_missing() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    one.commit()
    fault = one.fill_disk()
    deny(one, "a")
    one.commit()  # fails, and the event with it
    deny(one, "b")  # refused at once
    deny(one, "c")
    assert one.broker.metrics.audit_lost == 3
    one.free_disk(fault)
    deny(one, "d")
    assert [(e.resource, e.details) for e in told(one, types=("access",))] == [("d", {"left_out": "2"})]
    assert one.broker.metrics.audit_events == 3


def test_a_log_whose_first_event_failed_is_made_with_the_next() -> None:
    one = fixture()
    fault = one.fill_disk()
    deny(one, "a")
    one.commit()
    one.free_disk(fault)
    deny(one, "b")
    assert [event.resource for event in told(one)] == ["b"]
    one.restart()
    assert [event.resource for event in told(one)] == ["b"]


def test_a_mistake_in_a_note_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one = fixture()
    monkeypatch.setattr(audit_event, "event", lambda *_: 1 / 0)
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    one.commit()
    assert one.broker.metrics.audit_lost == 1
    assert one.broker.topics.describe(ADMIN, DEFAULT_SCOPE, "orders")


def test_a_denial_while_the_broker_shuts_down_is_a_denial() -> None:
    one = fixture()
    one.broker.close()
    deny(one)


def test_there_is_room_for_the_log_when_there_is_none_for_topics() -> None:
    one = fixture(limits=Limits(topics=1))
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    assert kinds(one) == ["topic.create"]


def test_with_the_audit_log_off_nothing_is_kept_and_a_query_says_so() -> None:
    one = fixture(audit=AuditPolicy(enabled=False))
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    deny(one)
    one.commit()
    assert [topic.name for topic in one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True)] == ["orders"]
    with pytest.raises(AuditOff, match=r"security\.audit"):
        ask(one)


def test_what_was_kept_before_it_was_turned_off_can_be_read() -> None:
    one = fixture()
    deny(one)
    one.commit()
    one.options["audit"] = AuditPolicy(enabled=False)
    one.restart()
    deny(one, "another")
    assert [event.resource for event in told(one)] == ["secret"]


def test_the_log_has_the_retention_that_the_configuration_says_now() -> None:
    one = fixture(
        audit=AuditPolicy(enabled=True, seconds=3600, bytes=5 << 20), settings=LogSettings(file_bytes=64 << 10)
    )
    fill(one, 400)
    (topic,) = one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True)
    assert topic.settings == TopicSettings(retention_seconds=3600, retention_bytes=5 << 20)
    one.options["audit"] = AuditPolicy(enabled=True, seconds=60, bytes=5 << 20)
    one.restart()
    fill(one, 400)
    (topic,) = one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True)
    assert topic.settings.retention_seconds == 60
    one.pass_time(120)
    one.broker.maintain(one.now)
    one.commit()
    page = ask(one)
    assert 0 < page.total <= 400 and page.events[0].id == "1-799"


# -- against those who decide how many there are


def test_denials_that_are_alike_become_one_and_a_count() -> None:
    one = fixture()
    for _ in range(1000):
        deny(one)
        one.pass_time(0.01)
    deny(one, "other")
    assert [event.details for event in told(one)] == [{}, {}]
    one.pass_time(49)
    one.broker.sweep(one.now)
    assert len(told(one)) == 2
    one.pass_time(1)
    one.broker.sweep(one.now)
    one.broker.sweep(one.now)
    events = told(one)
    assert len(events) == 3
    assert events[2].details == {"count": "999", "since": "1700000000000"}
    assert (events[2].user, events[2].resource, events[2].timestamp) == ("alice", "secret", 1_700_000_009_990)
    assert one.broker.metrics.audit_left_out == 0
    deny(one)
    assert len(told(one)) == 4


def test_different_denials_have_a_pace_and_what_is_left_out_is_told() -> None:
    one = fixture()
    for number in range(10_000):
        deny(one, f"secret-{number}")
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    one.broker.sweep(one.now)
    events = told(one)
    assert len(events) == 100 + 1 + 1
    assert events[100].type == "topic.create" and events[100].details == {"partitions": "1"}
    assert (events[101].type, events[101].details) == ("access.denied", {"left_out": "9900"})
    assert one.broker.metrics.audit_left_out == 9900
    one.pass_time(20)
    deny(one, "a")
    deny(one, "b")
    deny(one, "c")
    assert [event.resource for event in told(one)[102:]] == ["a", "b"]
    one.pass_time(40)
    deny(one, "d")
    assert told(one)[-1].details == {"left_out": "1"}
    assert "audit_left_out_total 9901.0" in one.broker.metrics_text(ADMIN)


def test_one_tenant_does_not_take_the_room_of_another() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, ACME, "a", 1)
    for number in range(200):
        deny(one, f"secret-{number}", scope=ACME)
    deny(one, "mine")
    assert [event.resource for event in told(one)] == ["mine"]
    assert len(told(one, "acme")) == 101


def test_logins_that_succeed_are_counted_alike() -> None:
    one = fixture()
    secret = one.broker.keys.add(ADMIN, KeyTerms("k", "default", [Permission.READ]))[0].secret
    for port in range(50):
        one.broker.keys.authenticate(secret, f"10.0.0.1:{port}")
    one.broker.keys.authenticate(secret, "10.0.0.2:1")
    assert [e.client_ip for e in told(one, types=("auth",))] == ["10.0.0.1", "10.0.0.2"]
    one.pass_time(61)
    one.broker.sweep(one.now)
    assert told(one)[-1].details["count"] == "49"


def test_what_is_counted_is_written_before_a_clean_stop() -> None:
    one = fixture()
    for topic in ("a", "a", "a", *(f"t{n}" for n in range(200))):
        deny(one, topic)
    one.broker.close()
    one.restart()
    events = told(one)
    assert [event.details for event in events[-1:]] == [{"count": "2", "since": "1700000000000", "left_out": "101"}]
    assert len(events) == 101


# -- searching


def test_pages_go_from_the_newest_to_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "STEP_RECORDS", 7)
    one = fixture()
    fill(one, 40)
    seen: list[str] = []
    while True:
        page = ask(one, limit=9, offset=len(seen))
        seen += [event.resource for event in page.events]
        assert page.total == 40
        assert page.has_more is (len(seen) < 40)
        if not page.has_more:
            break
    assert seen == [f"t{n}" for n in reversed(range(40))]
    beyond = ask(one, offset=1000)
    assert beyond == AuditPage([], 40, False)
    assert len(ask(one).events) == len(ask(one, limit=1 << 40).events) == 40
    fill(one, 1000)
    assert len(ask(one).events) == 100 and len(ask(one, limit=5000).events) == 1000
    assert ask(one, limit=5000).has_more


@pytest.mark.parametrize("step", [1, 3, 1024])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "01234567"),
        ({"start": 1_700_000_002_000}, "234567"),
        ({"end": 1_700_000_002_000}, "01"),
        ({"start": 1_700_000_001_000, "end": 1_700_000_003_000}, "12"),
        ({"start": 1_700_000_009_000}, ""),
        ({"start": 1 << 80}, ""),
        ({"start": -5, "end": -1}, ""),
        ({"types": ("auth",)}, "16"),
        ({"types": ("auth.success", "acl")}, "13"),
        ({"types": ("aut",)}, ""),
        ({"user": "admin"}, "0345"),
        ({"user": "adm"}, ""),
        ({"resource": "orders"}, "02"),
        ({"result": "denied"}, "2"),
        ({"result": "failure"}, "6"),
        ({"search": "ORDER"}, "024"),
        ({"search": "10.1.2"}, "0345"),
        ({"search": "colour"}, "5"),
        ({"search": "blue"}, "5"),
        ({"user": "admin", "search": "orders"}, "04"),
    ],
)
def test_a_query_finds_what_fits_all_of_it(
    monkeypatch: pytest.MonkeyPatch, step: int, query: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(audit, "STEP_RECORDS", step)
    one = fixture()
    note = one.broker.audit.note
    notes: list[Callable[[], object]] = [
        lambda: note(ADMIN, "topic.create", resource="orders"),
        lambda: note(ALICE, "auth.success"),
        lambda: note(ALICE, "access.denied", resource="orders", result="denied"),
        lambda: note(ADMIN, "acl.set", resource="invoices"),
        lambda: note(ADMIN, "user.create", resource="preorders"),
        lambda: note(ADMIN, "role.set", resource="painter", colour="Blue"),
        lambda: note(Identity("bob"), "auth.failure", result="failure"),
        lambda: note(Identity("bob"), "topic.delete", resource="x"),
    ]
    for action in notes:
        action()
        one.commit()
        one.pass_time(1)
    assert "".join(event.id.removeprefix("1-") for event in told(one, **query)) == expected


def test_a_query_that_makes_no_sense_is_refused() -> None:
    one = fixture()
    for query in ({"limit": -1}, {"offset": -1}, {"types": ("x",) * 101}):
        with pytest.raises(InvalidArgument):
            ask(one, **query)
    with pytest.raises(InvalidArgument, match="'xml'"):
        one.broker.audit.export(ADMIN, "default", AuditQuery(), "xml")


def test_only_the_administrator_of_the_tenant_may_look() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, ACME, "a", 1)
    for tenant in ("default", "acme", "invented"):
        for who in (ALICE, ANONYMOUS, Identity("admin", "globex")):
            with pytest.raises(AccessDenied):
                ask(one, tenant, who)
            with pytest.raises(AccessDenied):
                one.broker.audit.export(who, tenant, AuditQuery(), "json")
    with pytest.raises(AccessDenied):
        ask(one, "acme", Identity("local"))  # of its default namespace only: the log is that of all
    with pytest.raises(AccessDenied):
        ask(one, "default", Identity("acme"))
    assert ask(one, "acme", Identity("acme"), types=("topic",)).total == 1
    assert ask(one, "invented").total == 0


def test_records_that_are_no_events_are_passed_over() -> None:
    one = BrokerFixture()
    one.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "x", 1)
    one.commit()
    one.options |= {"audit": AuditPolicy(enabled=True)}
    one.restart()
    one.broker.audit.note(ADMIN, "topic.create")
    one.commit()
    topic = one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True)[0]
    one.engine.append((Records(partition_id(topic.id, 0), (b"", b"\xff", b"[]", b'{"type":1}')),))
    one.broker.audit.note(ADMIN, "topic.delete")
    assert [event.id for event in told(one)] == ["2-0", "2-5"]


def test_a_search_is_made_off_the_loop_and_one_at_a_time() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    one = fixture(executor=later(calls))
    fill(one, 3)
    done: list[int] = []
    for _ in range(2):
        work = one.broker.audit.query(ADMIN, "default", AuditQuery())
        work.start(one.broker.executor, lambda work=work: done.append(work.finish().total))  # type: ignore[misc]
    assert len(calls) == 1 and done == []
    for number in (1, 2):
        run, finished = calls.pop()
        run()
        finished()
        assert done == [3] * number
        assert len(calls) == 2 - number


# -- handing out


def export(one: BrokerFixture, format: str, **query: Any) -> bytes:  # noqa: A002
    one.commit()
    work = one.broker.audit.export(ADMIN, "default", AuditQuery(**query), format)
    work.run()
    return work.finish()


def test_an_export_has_all_that_fits() -> None:
    one = fixture()
    fill(one, 250)
    events = msgspec.json.decode(export(one, "json"), type=list[AuditEvent])
    assert [event.resource for event in events] == [f"t{n}" for n in reversed(range(250))]
    assert events[0].id == "1-249"
    rows = list(csv.DictReader(io.StringIO(export(one, "csv").decode())))
    assert [row["resource"] for row in rows] == [f"t{n}" for n in reversed(range(250))]
    assert rows[0]["timestamp"] == "1700000249000" and rows[0]["node_id"] == "penstock" and rows[0]["details"] == "{}"
    some = msgspec.json.decode(export(one, "json", limit=3, offset=10), type=list[AuditEvent])
    assert [event.resource for event in some] == ["t239", "t238", "t237"]
    assert export(one, "json", user="nobody") == b"[]\n"
    assert len(export(one, "csv", user="nobody").splitlines()) == 1


def test_an_export_that_is_too_large_is_refused_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    one = fixture()
    fill(one, 100)
    for kind in ("json", "csv"):
        size = len(export(one, kind))
        monkeypatch.setattr(audit_event, "MAX_EXPORT_BYTES", size * 3 // 4)
        with pytest.raises(LimitReached, match="shorter time"):
            export(one, kind)
        monkeypatch.undo()


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_of_a_csv_is_a_formula(first: str) -> None:
    one = fixture()
    text = first + 'cmd|"/C calc"!A1,\n"'
    one.broker.audit.note(Identity(text), "topic.create", resource=text, note=text)
    (row,) = csv.DictReader(io.StringIO(export(one, "csv").decode(), newline=""))
    assert row["user"] == row["resource"] == "'" + text
    assert msgspec.json.decode(row["details"]) == {"note": text}


def test_every_type_that_is_noted_is_known() -> None:
    assert len(set(TYPES)) == len(TYPES) and all(kind.count(".") == 1 for kind in TYPES)


# -- what the other parts of the broker tell


def finished(work: Deferred[Any, Any]) -> Any:
    work.run()
    return work.finish()


def test_users_roles_and_lists() -> None:
    one = fixture(lockout=LockoutPolicy(2, 60))
    users, secrets = one.broker.users, ("first word", "second word", "wrong word")
    users.set_role(ADMIN, "default", "auditor", ["read"])
    finished(users.create(ADMIN, "default", "bob", secrets[0], ["auditor"]))
    who = finished(users.login("default", "bob", secrets[0], "10.0.0.5:1"))
    finished(users.change_password(who, "default", "bob", secrets[1], secrets[0]))
    with pytest.raises(WrongPassword):
        finished(users.change_password(who, "default", "bob", secrets[1], secrets[2]))
    users.set_acl(ADMIN, DEFAULT_SCOPE, Acl("orders", False, ("bob",), restrict=True))
    users.delete_acl(ADMIN, DEFAULT_SCOPE, "orders")
    users.delete_acl(ADMIN, DEFAULT_SCOPE, "orders")  # changes nothing
    users.update(ADMIN, "default", "bob", roles=[], enabled=False)
    finished(users.login("default", "bob", secrets[1], "10.0.0.6:1"))
    finished(users.login("default", "bob", secrets[2], "10.0.0.5:1"))  # the second failure of this host
    finished(users.login("invented", "bob", secrets[2], "10.0.0.5:1"))
    users.delete(ADMIN, "default", "bob")
    users.delete_role(ADMIN, "default", "auditor")
    events = told(one)
    assert [(event.type, event.user, event.resource, event.result) for event in events] == [
        ("role.set", "admin", "auditor", "success"),
        ("user.create", "admin", "bob", "success"),
        ("auth.success", "user:bob", "", "success"),
        ("password.change", "user:bob", "bob", "success"),
        ("password.change", "user:bob", "bob", "failure"),
        ("acl.set", "admin", "orders", "success"),
        ("acl.delete", "admin", "orders", "success"),
        ("user.update", "admin", "bob", "success"),
        ("auth.failure", "user:bob", "", "failure"),
        ("auth.lockout", "", "", "denied"),
        ("auth.failure", "user:bob", "", "failure"),
        ("user.delete", "admin", "bob", "success"),
        ("role.delete", "admin", "auditor", "success"),
    ]
    details = {event.type: event.details for event in events if event.result == "success"}
    assert details["role.set"] == {"permissions": "read"}
    assert details["user.create"] == {"roles": "auditor"}
    assert details["user.update"] == {"roles": "", "enabled": "false"}
    assert details["acl.set"] == {"public": "false", "restrict": "true", "users": "bob", "roles": ""}
    assert events[8].details == {"reason": "user account is disabled"}
    assert (events[2].client_ip, events[8].client_ip, events[9].client_ip) == ("10.0.0.5", "10.0.0.6", "10.0.0.5")
    everything = b"".join(map(audit_event.encode, events))
    assert not any(word.encode() in everything for word in (*secrets, "argon2"))
    assert {event.type for event in events} <= set(TYPES)
    assert "invented" not in one.broker.state_log.state.tenants


def test_groups_transactions_and_dead_letters() -> None:
    one = fixture(access=AccessPolicy())
    broker = one.broker
    mine = broker.transactions.begin(ADMIN, "connection", DEFAULT_SCOPE)
    broker.transactions.add(ADMIN, mine, DEFAULT_SCOPE, "orders", b"v", None, 0)
    assert kinds(one) == []
    broker.transactions.commit(ADMIN, mine)
    broker.groups.commit(ADMIN, DEFAULT_SCOPE, "readers", "orders", 0, 1)
    broker.groups.delete(ADMIN, DEFAULT_SCOPE, "readers", "orders")
    broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders.dlq", 1)
    broker.produce.append(ADMIN, DEFAULT_SCOPE, "orders.dlq", 0, [b"a", b"b"])
    one.commit()
    finished(broker.dead_letters.replay(ADMIN, DEFAULT_SCOPE, "orders", 0))
    with pytest.raises(DeadLetterNotFound):
        finished(broker.dead_letters.replay(ADMIN, DEFAULT_SCOPE, "orders", 0))
    one.commit()
    broker.dead_letters.purge(ADMIN, DEFAULT_SCOPE, "orders")
    one.commit()
    broker.dead_letters.purge(ADMIN, DEFAULT_SCOPE, "orders")  # changes nothing
    assert [(event.type, event.resource, event.details) for event in told(one)] == [
        ("topic.create", "orders", {"partitions": "1"}),
        ("group.delete", "readers", {"topic": "orders"}),
        ("topic.create", "orders.dlq", {"partitions": "1"}),
        ("dlq.replay", "orders", {"letter": "0"}),
        ("dlq.replay", "orders", {"reason": "message not found: 0"}),
        ("dlq.purge", "orders", {}),
    ]


def test_schemas() -> None:
    one = fixture()
    schemas = one.broker.schemas
    for definition in (b'{"type": "object"}', b'{"type": "object"}', b'{"type": "array"}'):
        with contextlib.suppress(SchemaIncompatible):
            finished(schemas.register(ADMIN, ACME, "order", SchemaKind.JSON, definition))
    schemas.set_mode(ADMIN, ACME, "order", Compatibility.NONE)
    finished(schemas.register(ADMIN, ACME, "order", SchemaKind.JSON, b'{"type": "array"}'))
    schemas.delete(ADMIN, ACME, "order")
    events = told(one, "acme")
    assert [(event.type, event.resource, event.details) for event in events] == [
        ("schema.register", "order", {"version": "1"}),
        ("schema.register", "order", {"reason": events[1].details["reason"]}),
        ("schema.alter", "order", {"mode": "none"}),
        ("schema.register", "order", {"version": "2"}),
        ("schema.delete", "order", {"versions": "1,2"}),
    ]


# -- what fails

FAILURES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "topic.create": (lambda it: it.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1), "there", "already exists"),
    "topic.create with a bad name": (lambda it: it.topics.create(ADMIN, DEFAULT_SCOPE, "a//b", 1), "a//b", "segment"),
    "topic.delete": (lambda it: it.topics.delete(ADMIN, DEFAULT_SCOPE, "missing"), "missing", "missing"),
    "topic.alter": (
        lambda it: it.topics.change(ADMIN, DEFAULT_SCOPE, "missing", TopicSettings()),
        "missing",
        "missing",
    ),
    "user.create": (lambda it: it.users.create(ADMIN, "default", "bob", "another word"), "bob", "already exists"),
    "user.create with a bad password": (lambda it: it.users.create(ADMIN, "default", "eve", ""), "eve", "assword"),
    "user.update": (lambda it: it.users.update(ADMIN, "default", "eve", roles=[]), "eve", "not found"),
    "user.delete": (lambda it: it.users.delete(ADMIN, "default", "eve"), "eve", "not found"),
    "password.change": (lambda it: it.users.change_password(ADMIN, "default", "eve", "a new one"), "eve", "not found"),
    "role.set": (lambda it: it.users.set_role(ADMIN, "default", "admin", ["read"]), "admin", "built"),
    "role.delete": (lambda it: it.users.delete_role(ADMIN, "default", "missing"), "missing", "missing"),
    "acl.set": (lambda it: it.users.set_acl(ADMIN, DEFAULT_SCOPE, Acl("a//b", True)), "a//b", "segment"),
    "key.add": (lambda it: it.keys.add(ADMIN, KeyTerms("k", "no tenant!", (Permission.READ,))), "k", "no tenant!"),
    "key.revoke": (lambda it: it.keys.revoke(ADMIN, 77), "key:77", "no key 77"),
    "key.rotate": (lambda it: it.keys.rotate(ADMIN, "psk_not-a-key-of-anybody"), "", "no such key"),
    "tenant.create": (lambda it: it.tenants.create(ADMIN, "no tenant!"), "no tenant!", "no tenant!"),
    "tenant.delete": (lambda it: it.tenants.delete(ADMIN, "missing"), "missing", "missing"),
    "schema.register": (
        lambda it: it.schemas.register(ADMIN, DEFAULT_SCOPE, "s", SchemaKind.JSON, b"{"),
        "s",
        "",
    ),
    "schema.alter": (lambda it: it.schemas.set_mode(ADMIN, DEFAULT_SCOPE, "s", Compatibility.NONE), "s", "not found"),
    "schema.delete": (lambda it: it.schemas.delete(ADMIN, DEFAULT_SCOPE, "s"), "s", "not found"),
    "group.reset": (lambda it: it.groups.reset(ADMIN, DEFAULT_SCOPE, "g", "missing", 0, "latest"), "g", "missing"),
    "group.delete": (lambda it: it.groups.delete(ADMIN, DEFAULT_SCOPE, "g", "there"), "g", "g"),
    "dlq.replay": (lambda it: it.dead_letters.replay(ADMIN, DEFAULT_SCOPE, "there", 5), "there", "5"),
}
"""By type: an administrative operation that fails, what it is about, and a piece of the reason."""


def fails(one: BrokerFixture, operation: Callable[[Any], Any]) -> Exception:
    with pytest.raises(Exception) as raised:
        outcome = operation(one.broker)
        finished(outcome)
    return raised.value


@pytest.mark.parametrize("name", FAILURES)
def test_an_administrative_operation_that_fails_is_told_of_with_its_reason(name: str) -> None:
    operation, resource, piece = FAILURES[name]
    one = fixture()
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1)
    finished(one.broker.users.create(ADMIN, "default", "bob", "a word"))
    before = len(told(one))
    error = fails(one, operation)
    (event,) = told(one)[before:]
    assert (event.type, event.user, event.resource, event.result) == (
        name.partition(" ")[0],
        "admin",
        resource,
        "failure",
    )
    assert event.action == event.type.partition(".")[2]
    assert event.details["reason"] == str(error) and piece in str(error)


@pytest.mark.parametrize("name", FAILURES)
def test_one_that_is_denied_is_told_of_as_the_operation_that_it_was(name: str) -> None:
    one = fixture()
    one.broker.access.apply(AccessPolicy(True, [Grant("admin", frozenset({Permission.AUDIT}))]))
    fails(one, FAILURES[name][0])
    denied, event = told(one)
    assert (denied.type, event.type) == ("access.denied", name.partition(" ")[0])
    assert event.result == "denied" and "may not" in event.details["reason"]


def test_the_types_of_administrative_operations_are_all_here() -> None:
    """A new one belongs into `FAILURES`, unless it cannot fail but by being denied."""
    others = {"acl.delete", "dlq.purge", "cluster.join", "cluster.leave"}
    families = {"topic", "user", "password", "role", "acl", "key", "tenant", "schema", "group", "dlq", "cluster"}
    assert {kind for kind in TYPES if kind.partition(".")[0] in families} == {
        *others, *(name.partition(" ")[0] for name in FAILURES)
    }  # fmt: skip


def test_an_operation_within_another_is_told_of_once_and_only_if_the_whole_fails() -> None:
    one = fixture()
    one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1)
    before = len(told(one))
    with one.broker.audit.attempt(ADMIN, "topic.alter", resource="whole"), contextlib.suppress(TopicExists):
        one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1)
    assert told(one)[before:] == []
    with pytest.raises(TopicExists), one.broker.audit.attempt(ADMIN, "topic.alter", resource="whole"):
        one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1)
    with pytest.raises(ValueError), one.broker.audit.attempt(ADMIN, "topic.alter", resource="whole"):
        with contextlib.suppress(TopicExists):
            one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "there", 1)
        raise ValueError
    assert [(event.type, event.resource, event.details["reason"]) for event in told(one)[before:]] == [
        ("topic.create", "there", "Topic 'there' already exists"),
        ("topic.alter", "whole", "ValueError"),
    ]


# -- before and after


def test_a_search_finds_all_that_was_noted_before_it() -> None:
    """Its turn comes when that is committed."""
    one, done = fixture(), list[bool]()
    one.broker.audit.note(ADMIN, "stream.read", resource="orders")
    page = one.broker.audit.query(ADMIN, "default", AuditQuery())
    text = one.broker.audit.export(ADMIN, "default", AuditQuery(), "json")
    report = one.broker.audit.verify(ADMIN, DEFAULT_SCOPE)
    for work in (page, text, report):
        work.start(one.broker.executor, lambda: done.append(True))
    assert done == []
    one.commit()
    assert len(done) == 3
    assert [event.resource for event in page.finish().events] == ["orders"]
    assert b"orders" in text.finish()
    assert report.finish().event_count == 1


def test_a_search_does_not_wait_for_what_cannot_be_committed() -> None:
    one, done = fixture(), list[bool]()
    fill(one, 1)
    one.break_disk()
    one.broker.audit.note(ADMIN, "stream.read", resource="orders")
    page = one.broker.audit.query(ADMIN, "default", AuditQuery())
    page.start(one.broker.executor, lambda: done.append(True))
    one.commit()
    assert done == [True]
    assert [event.resource for event in page.finish().events] == ["t0"]
