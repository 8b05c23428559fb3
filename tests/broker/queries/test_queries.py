"""Statements of SQL: their lines, who may do what with which stream, and what becomes of them when the process ends."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import (
    AccessDenied,
    QueriesOff,
    QueryError,
    QueryTooLarge,
    RecordTooLarge,
    ShuttingDown,
    TableNotFound,
    TooFast,
)
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.queries.declarations import Dropped
from penstock.broker.queries.queries import GRACE, QueryPolicy
from penstock.broker.queries.query import Column, Declared, Rows
from penstock.broker.queries.statement import Statement
from penstock.broker.security.access import AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.audit_event import AuditPolicy, AuditQuery
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.errors import EntryTooLarge, OffsetMismatch

ALICE = Identity("alice")
OTHERS = Scope("others", "default")
COLUMNS = (Column("id", "BIGINT"),)
SECOND = 1_000_000
FOUND = Rows(["count"], [[2]])


class Asked:
    """A statement that was started."""

    def __init__(
        self, fixture: BrokerFixture, sql: str = "SELECT 1", scope: Scope = DEFAULT_SCOPE, **more: Any
    ) -> None:
        self.done = 0
        self.run: Statement = fixture.broker.queries.run(ALICE, scope, sql, **more)
        self.run.start(self._done)

    def _done(self) -> None:
        self.done += 1

    @property
    def number(self) -> int:
        return self.run.number

    def error(self, kind: type[Exception]) -> str:
        assert self.done == 1
        with pytest.raises(kind) as raised:
            self.run.finish()
        assert type(raised.value) is kind
        return str(raised.value)


def make(policy: QueryPolicy | None = None, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(queries=policy or QueryPolicy(enabled=True, seconds=10), **options)
    fixture.broker.queries.attach_worker(lambda: None)
    return fixture


def begun(fixture: BrokerFixture, *args: Any, **more: Any) -> Asked:
    """A statement that the process has taken."""
    asked = Asked(fixture, *args, **more)
    fixture.commit()
    assert fixture.broker.queries.next() is asked.run
    return asked


def stream(fixture: BrokerFixture, name: str, *values: bytes, scope: Scope = DEFAULT_SCOPE, **settings: Any) -> None:
    fixture.broker.topics.create(ALICE, scope, name, 1, **settings)
    if values:
        fixture.broker.produce.append(ALICE, scope, name, 0, values)
    fixture.commit()


# -- lines


def test_a_statement_is_taken_carried_out_and_told() -> None:
    fixture = make()
    asked = Asked(fixture, "SELECT $1", params=[7], position=3)
    taken = fixture.broker.queries.next()
    assert taken is asked.run and (taken.sql, taken.params, taken.position) == ("SELECT $1", [7], 3)
    assert fixture.broker.queries.next() is None
    before = asked.done
    fixture.broker.queries.capability.done(asked.number, FOUND)
    assert (before, asked.done) == (0, 1)
    assert asked.run.finish() == FOUND
    fixture.broker.queries.capability.done(asked.number, Rows([], []))
    assert asked.run.finish() == FOUND
    metrics = fixture.broker.metrics
    assert (metrics.statements, metrics.statement_failures) == (1, 0)


def test_it_waits_for_what_its_sender_has_changed() -> None:
    fixture = make()
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "new", 1)
    asked = Asked(fixture)
    assert fixture.broker.queries.next() is None
    fixture.commit()
    assert fixture.broker.queries.next() is asked.run


def test_tenants_take_turns() -> None:
    fixture = make()
    a, b, c = (Asked(fixture, scope=Scope("greedy", "default")) for _ in range(3))
    d = Asked(fixture, scope=OTHERS)
    taken = [fixture.broker.queries.next() for _ in range(5)]
    assert taken == [a.run, d.run, b.run, c.run, None]


GREEDY = Scope("greedy", "default")
SHARED = QueryPolicy(enabled=True, at_once=4, tenant_share=0.5)


def test_a_tenant_has_its_share_of_what_is_carried_out_at_the_same_time() -> None:
    fixture = make(SHARED)
    queries = fixture.broker.queries
    a, b, _ = (Asked(fixture, scope=GREEDY) for _ in range(3))
    assert [queries.next() for _ in range(3)] == [a.run, b.run, None]
    d, e = (Asked(fixture, scope=OTHERS) for _ in range(2))
    third = Asked(fixture, scope=Scope("third", "default"))
    assert [queries.next() for _ in range(3)] == [d.run, third.run, None]
    for one in (a, b):
        queries.capability.done(one.number, FOUND)
    assert queries.next() is not None and not e.done


def test_the_last_free_process_is_for_tenants_that_have_nothing_carried_out() -> None:
    fixture = make(SHARED)
    queries = fixture.broker.queries
    first, second = Asked(fixture, scope=GREEDY), Asked(fixture, scope=GREEDY)
    assert queries.next(last=True) is first.run
    assert queries.next(last=True) is None
    other = Asked(fixture, scope=OTHERS)
    assert queries.next(last=True) is other.run
    assert queries.next() is second.run


def test_if_there_is_no_room_what_has_had_its_time_is_interrupted_for_others() -> None:
    fixture = make(SHARED)
    queries = fixture.broker.queries
    running = []
    for scope in (GREEDY, GREEDY, OTHERS, Scope("third", "default")):
        running.append(Asked(fixture, scope=scope))
        assert queries.next() is running[-1].run
    assert queries.make_room() is None  # nobody waits
    waiting = Asked(fixture, scope=Scope("fourth", "default"))
    fixture.pass_time(4)
    assert queries.make_room() is None  # none of them has had its time
    running[0].run.changed = True
    fixture.pass_time(2)
    assert queries.make_room() is running[1].run  # the tenant with most; not the one that has changed something
    assert "interrupted after 6 s" in running[1].error(TooFast)
    assert queries.capability.to_stop() == [running[1].number]
    assert queries.make_room() is None  # one is about to end
    queries.capability.failed(running[1].number, QueryError("cancelled"))
    assert queries.next() is waiting.run


def test_a_process_that_ends_takes_its_own_statements_only() -> None:
    fixture = make(SHARED)
    queries, one, other = fixture.broker.queries, object(), object()
    first, second = Asked(fixture), Asked(fixture, scope=OTHERS)
    assert (queries.next(one), queries.next(other)) == (first.run, second.run)
    queries.cancel(second.run)
    queries.lost((first.run,), "was ended", one)
    first.error(QueryTooLarge)
    assert queries.capability.running() == [second.run] and queries.capability.to_stop(other) == [second.number]


def test_the_lines_are_bounded_together_and_for_each_tenant() -> None:
    fixture = make(QueryPolicy(enabled=True, waiting=3, waiting_of_tenant=2))
    for _ in range(2):
        Asked(fixture)
    Asked(fixture).error(TooFast)
    Asked(fixture, scope=OTHERS)
    told = Asked(fixture, scope=Scope("third", "default")).error(TooFast)
    assert "try again" in told and not any(letter.isdigit() for letter in told)  # how many others have
    assert fixture.broker.queries.next() is not None
    assert not Asked(fixture, scope=Scope("third", "default")).done


def test_what_waits_is_bounded_in_bytes_too() -> None:
    fixture = make(QueryPolicy(enabled=True, waiting_bytes=1000))
    first = Asked(fixture, "x" * 600)
    Asked(fixture, "SELECT $1", params=["y" * 600]).error(TooFast)
    Asked(fixture, scope=OTHERS)
    assert fixture.broker.queries.next() is first.run
    assert not Asked(fixture, "SELECT $1", params=["y" * 600]).done


def test_a_result_may_come_in_pages() -> None:
    fixture = make()
    asked = begun(fixture)
    capability = fixture.broker.queries.capability
    capability.page(asked.number, [[1], [2]])
    capability.page(asked.number, [[3]])
    capability.done(asked.number, Rows(["n"], [[4]]))
    assert asked.run.finish() == Rows(["n"], [[1], [2], [3], [4]])


def test_nobody_waits_for_ever() -> None:
    fixture = make()
    asked = Asked(fixture)
    fixture.pass_time(29)
    fixture.broker.queries.sweep()
    assert not asked.done
    fixture.pass_time(2)
    fixture.broker.queries.sweep()
    assert "30 s" in asked.error(TooFast)
    assert fixture.broker.queries.next() is None
    asked = Asked(fixture)
    fixture.pass_time(31)
    fixture.broker.queries.sweep(ready=False)
    assert "does not start" in asked.error(QueriesOff)


@pytest.mark.parametrize(
    ("policy", "said"), [(QueryPolicy(), "sql.enabled is off"), (QueryPolicy(enabled=True), "no process here")]
)
def test_without_a_process_a_statement_is_refused(policy: QueryPolicy, said: str) -> None:
    fixture = BrokerFixture(queries=policy)
    assert said in Asked(fixture).error(QueriesOff)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_client_that_may_ask_makes_it_ready_if_that_is_wanted(ahead: bool) -> None:
    fixture = BrokerFixture(queries=QueryPolicy(enabled=True, ahead=ahead))
    woken: list[bool] = []
    fixture.broker.queries.attach_worker(lambda: woken.append(True))
    fixture.broker.queries.expect()
    assert woken == [True] * ahead


def test_what_waits_when_the_broker_ends_is_told_so() -> None:
    fixture = make()
    asked = [Asked(fixture), Asked(fixture, scope=OTHERS)]
    fixture.broker.queries.close()
    for one in asked:
        one.error(ShuttingDown)
    Asked(fixture).error(ShuttingDown)  # and not that SQL was off


# -- being cancelled


def test_a_cancelled_statement_leaves_its_line_and_is_not_told() -> None:
    fixture = make()
    asked = Asked(fixture)
    asked.run.cancel()
    assert fixture.broker.queries.next() is None and not asked.done


def test_a_statement_that_waits_for_a_commit_can_be_cancelled() -> None:
    fixture = make()
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "new", 1)
    Asked(fixture).run.cancel()
    fixture.commit()
    assert fixture.broker.queries.next() is None


def test_a_running_statement_is_stopped_and_can_do_nothing_more() -> None:
    fixture = make()
    stream(fixture, "s", b"1")
    asked = begun(fixture)
    told: list[bool] = []
    capability = fixture.broker.queries.capability
    fixture.broker.queries.attach_worker(lambda: None, lambda: told.append(True))
    asked.run.cancel()
    assert told == [True] and capability.to_stop() == [asked.number] and capability.to_stop() == []
    for question in (
        lambda: capability.append(asked.number, "s", [b"2"], None, None),
        lambda: capability.open(asked.number, ["s"]),
        lambda: capability.declare(asked.number, "s", None, create=False),
        lambda: capability.names(asked.number),
        lambda: capability.head(asked.number),
    ):
        with pytest.raises(QueryError, match="over"):
            question()
    fixture.pass_time(GRACE / SECOND - 1)
    assert fixture.broker.queries.overdue() == []
    fixture.pass_time(2)
    assert fixture.broker.queries.overdue() == [asked.run]  # the process did not stop it
    capability.failed(asked.number, QueryError("cancelled"))
    assert fixture.broker.queries.overdue() == []
    assert not asked.done


# -- what a statement sees


def test_streams_of_one_statement_are_open_as_of_one_position() -> None:
    fixture = make()
    stream(fixture, "a", b"1", b"2")
    stream(fixture, "b", b"3")
    asked = begun(fixture)
    fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "a", 0, [b"open"])  # not committed
    head, views, _ = fixture.broker.queries.capability.open(asked.number, ["a", "missing", "b"])
    assert head == fixture.broker.position == fixture.broker.queries.capability.head(asked.number)
    assert [(s.topic.name, s.partitions[0].bounds) for s in views] == [("a", (0, 2)), ("b", (0, 1))]


def test_a_statement_sees_its_own_tenant_only() -> None:
    fixture = make()
    stream(fixture, "mine", b"1")
    stream(fixture, "theirs", b"2", scope=OTHERS)
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    assert capability.names(asked.number) == ["mine"]
    assert capability.open(asked.number, ["theirs"]).views == []
    with pytest.raises(TableNotFound):
        capability.declare(asked.number, "theirs", Declared(COLUMNS), create=False)


def secured(*grants: Grant) -> BrokerFixture:
    fixture = make()
    for name in ("open", "closed"):
        stream(fixture, name, b"1")
    fixture.options["access"] = AccessPolicy(enforced=True, grants=grants)
    fixture.restart()
    fixture.broker.queries.attach_worker(lambda: None)
    return fixture


def may(*permissions: Permission, topic: str = "open") -> Grant:
    return Grant("alice", frozenset(permissions), topic=topic)


def test_what_one_may_not_read_is_neither_listed_nor_opened() -> None:
    fixture = secured(may(Permission.READ), may(Permission.DESCRIBE, topic="*"))
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    assert capability.names(asked.number) == ["open"]
    assert len(capability.open(asked.number, ["open"]).views) == 1
    for name in ("closed", "missing"):  # the same, whether or not it is there
        with pytest.raises(AccessDenied, match=f"may not read '{name}'"):
            capability.open(asked.number, ["open", name])


def test_a_typed_table_is_for_those_who_may_read_its_topic() -> None:
    fixture = secured(may(Permission.READ), may(Permission.READ, topic="closed_typed"))
    for name in ("open", "closed"):
        topics = fixture.broker.state_log.state.topics[DEFAULT_SCOPE]
        topics[name] = replace(topics[name], settings=TopicSettings(schema="order"))
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    assert capability.names(asked.number) == ["open", "open_typed"]
    opened = capability.open(asked.number, ["open_typed"])
    assert opened.views == [] and [view.topic.name for view in opened.typed.values()] == ["open"]
    with pytest.raises(AccessDenied, match="may not read 'closed'"):  # whoever may read a topic of the table's name
        capability.open(asked.number, ["closed_typed"])


def test_a_stream_of_health_information_needs_the_permission_for_that() -> None:
    everyday = set(Permission) - {Permission.ADMIN, Permission.PHI}
    for permissions, seen in ((everyday, []), (everyday | {Permission.PHI}, ["chart"])):
        fixture = make()
        stream(fixture, "chart", b"1", settings=TopicSettings(data_class="PHI"))
        fixture.options["access"] = AccessPolicy(enforced=True, grants=[may(*permissions, topic="*")])
        fixture.restart()
        fixture.broker.queries.attach_worker(lambda: None)
        capability = fixture.broker.queries.capability
        asked = begun(fixture)
        assert capability.names(asked.number) == seen
        if seen:
            assert capability.open(asked.number, ["chart"]).views
            continue
        with pytest.raises(AccessDenied):
            capability.open(asked.number, ["chart"])
        with pytest.raises(AccessDenied):
            capability.append(asked.number, "chart", [b"2"], None, None)


@pytest.mark.parametrize(
    ("permission", "action"),
    [
        (Permission.WRITE, lambda capability, n: capability.append(n, "open", [b"x"], None, None)),
        (Permission.ALTER, lambda capability, n: capability.declare(n, "open", Declared(COLUMNS), create=True)),
        (Permission.ALTER, lambda capability, n: capability.declare(n, "open", None, create=False)),
        (Permission.ALTER, lambda capability, n: capability.declare(n, "missing", None, create=False)),
        (Permission.CREATE, lambda capability, n: capability.declare(n, "new", Declared(COLUMNS), create=True)),
    ],
)
def test_changes_need_their_permission(permission: Permission, action: Any) -> None:
    others = set(Permission) - {permission, Permission.ADMIN}
    fixture = secured(may(*others, topic="*"))
    asked = begun(fixture)
    before = fixture.broker.position
    with pytest.raises(AccessDenied):
        action(fixture.broker.queries.capability, asked.number)
    fixture.commit()
    assert fixture.broker.position == before
    fixture = secured(may(permission, Permission.READ, topic="*"))
    asked = begun(fixture)
    with contextlib.suppress(TableNotFound):
        action(fixture.broker.queries.capability, asked.number)


def test_one_who_may_read_nothing_may_ask_nothing() -> None:
    fixture = secured(may(Permission.WRITE))
    with pytest.raises(AccessDenied):
        fixture.broker.queries.run(ALICE, DEFAULT_SCOPE, "SELECT 1")


# -- what a statement changes


def test_a_declaration_makes_the_stream_and_survives() -> None:
    fixture = make()
    stream(fixture, "other", b"1", b"2")
    asked = begun(fixture)
    before = fixture.broker.position
    group = fixture.broker.queries.capability.declare(asked.number, "t", Declared(COLUMNS), create=True)
    fixture.commit()
    assert group.position == before + 1
    fixture.restart()
    topic = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "t").topic
    assert topic.settings.declared == Declared(COLUMNS, before, owned=True) and topic.position == before


def test_a_declaration_of_a_stream_keeps_its_other_settings() -> None:
    fixture = make()
    stream(fixture, "t", b"{}", settings=TopicSettings(retention_seconds=60))
    settings = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "t").topic.settings
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    for declared in (Declared(COLUMNS), None):
        capability.declare(asked.number, "t", declared, create=True)
        fixture.commit()
        now = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "t").topic.settings
        assert (now.declared is None) == (declared is None)
        assert now.retention_seconds == settings.retention_seconds == 60
        if declared is not None:
            with pytest.raises(QueryError, match="already exists"):
                capability.declare(asked.number, "t", Declared(()), create=True)


def test_a_table_that_is_created_again_begins_where_its_stream_ends() -> None:
    fixture = make()
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    capability.declare(asked.number, "t", Declared(COLUMNS), create=True)
    capability.append(asked.number, "t", [b"{}", b"{}"], None, None)
    fixture.commit()
    first, position = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "t").topic.settings, fixture.broker.position
    capability.declare(asked.number, "t", None, create=False)
    with pytest.raises(TableNotFound):
        capability.declare(asked.number, "t", None, create=False)
    capability.append(asked.number, "t", [b"{}"], None, None)  # not committed, and before the new table all the same
    capability.declare(asked.number, "t", Declared(COLUMNS), create=True)
    fixture.commit()
    fixture.restart()
    now = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "t").topic.settings
    assert now.declared is not None and (now.declared.starts, now.declared.owned) == ((3,), True)
    assert first.declared is not None and now.dropped == (Dropped(first.declared, position),)


def test_an_append_is_conditional_and_tells_the_position_behind_it() -> None:
    fixture = make()
    stream(fixture, "t", b"1")
    capability = fixture.broker.queries.capability
    asked = begun(fixture)
    with pytest.raises(OffsetMismatch):
        capability.append(asked.number, "t", [b"2"], [b"k"], 0)
    assert not asked.run.changed
    group = capability.append(asked.number, "t", [b"2", b"3"], [b"k", None], 1)
    assert asked.run.changed
    fixture.commit()
    assert group.position == fixture.broker.position
    read = fixture.broker.fetch.plan(ALICE, DEFAULT_SCOPE, "t", 0, 1, 1000, 10).run()
    assert [(part.keys(), part.values()) for part in read] == [([b"k", None], [b"2", b"3"])]


def test_a_refusal_comes_out_as_it_was() -> None:
    fixture = make()
    stream(fixture, "t")
    asked = begun(fixture)
    capability = fixture.broker.queries.capability
    with pytest.raises((RecordTooLarge, EntryTooLarge)) as raised:
        capability.append(asked.number, "t", [bytes(fixture.broker.limits.record_bytes + 1)], None, None)
    copy = type(raised.value).__new__(type(raised.value))
    Exception.__init__(copy, str(raised.value))  # what is left of it, on its way through the process
    capability.failed(asked.number, copy)
    with pytest.raises(RecordTooLarge) as again:
        asked.run.finish()
    assert again.value is raised.value and again.value.limit == fixture.broker.limits.record_bytes


def test_what_is_changed_and_why_somebody_looks_is_in_the_audit_log() -> None:
    fixture = make(audit=AuditPolicy(enabled=True))
    stream(fixture, "t")
    capability = fixture.broker.queries.capability
    asked = begun(fixture, "SELECT * FROM t", reason="emergency")
    capability.break_glass(asked.number, "another")
    capability.append(asked.number, "t", [b"1", b"2"], None, None)
    fixture.commit()
    fixture.broker.audit.flush()
    fixture.commit()
    work = fixture.broker.audit.query(ALICE, "default", AuditQuery())
    work.run()
    told = [(event.type, event.resource, event.details) for event in work.finish().events]
    assert [one for one in told if one[0].startswith("query.")] == [  # the newest first
        ("query.insert", "t", {"rows": "2"}),
        ("query.break_glass", "SELECT * FROM t", {"reason": "another"}),
        ("query.break_glass", "SELECT * FROM t", {"reason": "emergency"}),
    ]


# -- the process ends


def test_who_was_running_is_told_and_who_waited_still_waits() -> None:
    fixture = make()
    running, waiting = begun(fixture), Asked(fixture)
    fixture.broker.queries.lost()
    assert "ended unexpectedly: try" in running.error(QueriesOff)
    assert (fixture.broker.metrics.statements, fixture.broker.metrics.statement_failures) == (1, 1)
    assert not waiting.done and fixture.broker.queries.next() is waiting.run


def test_one_that_may_have_changed_something_is_told_to_look() -> None:
    fixture = make()
    stream(fixture, "t")
    asked = begun(fixture)
    fixture.broker.queries.capability.append(asked.number, "t", [b"1"], None, None)
    fixture.broker.queries.lost()
    assert "look whether" in asked.error(QueriesOff)


def test_if_one_is_to_blame_the_others_are_carried_out_again_once() -> None:
    fixture = make()
    stream(fixture, "t")
    guilty, innocent, writing = begun(fixture), begun(fixture), begun(fixture)
    fixture.broker.queries.capability.append(writing.number, "t", [b"1"], None, None)
    fixture.pass_time(10 + GRACE / SECOND + 1)
    fixture.broker.queries.lost([guilty.run], "was ended")
    guilty.error(QueryTooLarge)
    writing.error(QueriesOff)
    assert not innocent.done
    fixture.commit()
    assert fixture.broker.queries.next() is innocent.run
    fixture.broker.queries.lost([guilty.run], "was ended")
    innocent.error(QueriesOff)


def test_pages_of_a_try_that_was_in_vain_do_not_count() -> None:
    fixture = make()
    guilty, innocent = begun(fixture), begun(fixture)
    fixture.broker.queries.capability.page(innocent.number, [[1]])
    fixture.broker.queries.lost([guilty.run], "was ended")
    assert fixture.broker.queries.next() is innocent.run
    fixture.broker.queries.capability.done(innocent.number, Rows(["n"], [[1]]))
    assert innocent.run.finish().rows == [[1]]


def test_overdue_is_one_that_runs_longer_than_it_may_and_some_more() -> None:
    fixture = make()
    asked = begun(fixture)
    fixture.pass_time(10 + GRACE / SECOND - 1)
    assert fixture.broker.queries.overdue() == []
    fixture.pass_time(2)
    assert fixture.broker.queries.overdue() == [asked.run]
