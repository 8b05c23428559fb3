from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.broker.broker_fixture import START, BrokerFixture, later
from tests.log.harness import columns_of

from penstock.broker.errors import (
    AccessDenied,
    InvalidArgument,
    LimitReached,
    QuotaReached,
    RecordRejected,
    ShuttingDown,
    StagedNotFound,
    TopicNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.publications import publishing as steps
from penstock.broker.publications.publication import REMEMBERED_US
from penstock.broker.publications.publishing import Publishing
from penstock.broker.publications.staging import DIRECTORY, KEPT_US, StagedWriter, Staging, new_ref
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Durability, GroupState, PartitionId, Records
from penstock.log.errors import CommitFailed, EntryTooLarge, LogFull, LogReadOnly
from penstock.log.file_engine import LogSettings

ALICE = Identity("alice")
BOB = Identity("bob")
ACME = Scope("acme", "default")
APP = "query-1"
DAY = 86_400.0


def a_broker(**options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 3)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "bills", 1)
    fixture.commit()
    return fixture


Chunks = Sequence[tuple[str, int, Sequence[bytes]]]


def stage(
    fixture: BrokerFixture,
    batch: int,
    chunks: Chunks,
    app: str | None = APP,
    identity: Identity = ALICE,
    scope: Scope = DEFAULT_SCOPE,
    **columns: Any,
) -> str:
    """One staged file, as the process beside the broker writes it."""
    permit, _ = fixture.broker.publications.prepare(
        identity, scope, app, batch, list(dict.fromkeys(topic for topic, _, _ in chunks))
    )
    ids = {topic.name: topic.id for topic in permit.topics}
    fixture.commit()
    writer = StagedWriter(fixture.disk, new_ref(permit.key, batch, fixture.now, secrets.token_bytes), sync=True)
    for topic, partition, values in chunks:
        writer.add(ids[topic], topic, partition, columns_of(Records(PartitionId(0), values, **columns)))
    return writer.finish().ref


def publish(
    fixture: BrokerFixture,
    batch: int,
    refs: Sequence[str],
    app: str = APP,
    identity: Identity = ALICE,
    scope: Scope = DEFAULT_SCOPE,
) -> Publishing:
    found = fixture.broker.publications.publish(identity, scope, app, batch, refs)
    fixture.commit()
    return found


def records(fixture: BrokerFixture, topic: str, partition: int = 0, scope: Scope = DEFAULT_SCOPE) -> list[bytes]:
    read, offset = list[bytes](), 0
    while parts := fixture.broker.fetch.plan(ANONYMOUS, scope, topic, partition, offset, 1 << 30, 1 << 30).run():
        read += [value for part in parts for value in part.values()]
        offset = parts[-1].end_offset
    return read


def everything(fixture: BrokerFixture) -> list[list[bytes]]:
    return [records(fixture, "orders", number) for number in range(3)] + [records(fixture, "bills")]


def staged(fixture: BrokerFixture) -> list[str]:
    return Staging(fixture.disk).names()


def error_of(publishing: Publishing) -> Exception | None:
    assert publishing.outcome.state is not GroupState.OPEN
    return publishing.outcome.error


def rows(publishing: Publishing) -> tuple[int, bool]:
    assert error_of(publishing) is None
    return publishing.rows, publishing.repeated


SMALL: Chunks = [("orders", 0, [b"1", b"2"]), ("orders", 2, [b"3"]), ("bills", 0, [b"4"])]
ALL = [[b"1", b"2"], [], [b"3"], [b"4"]]
NOTHING_REMOVED: list[list[bytes]] = [[], [], [], []]


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk is a step of its own."""
    monkeypatch.setattr(steps, "STEP_BYTES", 1)


STEPWISE = {"limits": Limits(publication_entry_bytes=1)}
BOTH = pytest.mark.parametrize("options", [{}, STEPWISE], ids=["at once", "in steps"])


# -- once


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_what_was_staged_appears_when_it_is_published(options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    first, second = stage(fixture, 0, SMALL[:1]), stage(fixture, 0, SMALL[1:])
    fixture.commit()
    assert everything(fixture) == NOTHING_REMOVED
    assert rows(publish(fixture, 0, [first, second])) == (4, False)
    assert everything(fixture) == ALL
    assert staged(fixture) == []


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_a_batch_counts_once_also_after_a_restart(options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    for batch in (0, 1, 5):
        ref = stage(fixture, batch, [("bills", 0, [b"%d" % batch])])
        assert rows(publish(fixture, batch, [ref])) == (1, False)
        assert rows(publish(fixture, batch, [ref])) == (0, True)
    fixture.restart()
    for batch in (0, 3, 5):
        again = stage(fixture, batch, [("bills", 0, [b"again"])])
        assert rows(publish(fixture, batch, [again])) == (0, True)
    assert records(fixture, "bills") == [b"0", b"1", b"5"]
    assert staged(fixture) == []
    fixture.broker.close()
    fixture.open()  # from a snapshot
    assert rows(publish(fixture, 5, [])) == (0, True)
    assert rows(publish(fixture, 6, [])) == (0, False)


def test_a_small_publication_is_one_entry() -> None:
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    fixture.committer.run()
    assert everything(fixture) == ALL


def test_a_repeat_is_no_more_certain_than_the_first() -> None:
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    fault = fixture.fill_disk()
    first = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    second = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    assert second.outcome.state is GroupState.OPEN
    fixture.commit()
    assert isinstance(error_of(first), LogFull)
    assert isinstance(error_of(second), LogFull)
    fixture.free_disk(fault)
    assert everything(fixture) == NOTHING_REMOVED
    assert rows(publish(fixture, 0, [ref])) == (4, False)  # the repeat has not removed what was staged


def test_every_field_of_a_record_is_kept() -> None:
    fixture = a_broker()
    columns: dict[str, Any] = {"keys": [b"k", None], "headers": [(("h", b"x"),), ()]}
    publish(fixture, 0, [stage(fixture, 0, [("bills", 0, [b"a", b"b"])], **columns)])
    (part,) = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, "bills", 0, 0, 1 << 20, 10).run()
    assert (part.keys(), part.values(), part.headers()) == ([b"k", None], [b"a", b"b"], [(("h", b"x"),), ()])
    assert part.timestamps() == [START, START]


def test_an_empty_batch_is_remembered_too() -> None:
    fixture = a_broker()
    assert rows(publish(fixture, 3, [])) == (0, False)
    assert rows(publish(fixture, 3, [])) == (0, True)


def test_missing_topics_come_into_being_unless_they_may_not() -> None:
    fixture = a_broker()
    publish(fixture, 0, [stage(fixture, 0, [("new", 0, [b"1"])])])
    assert records(fixture, "new") == [b"1"]
    fixture = a_broker(auto_create_topics=False)
    with pytest.raises(TopicNotFound):
        stage(fixture, 0, [("new", 0, [b"1"])])


# -- in steps


@pytest.mark.usefixtures("in_steps")
def test_what_has_begun_is_finished_by_the_broker_after_any_number_of_steps() -> None:
    for done in range(12):
        fixture = a_broker(**STEPWISE)
        refs = [stage(fixture, 0, [("orders", n % 3, [b"%d" % (10 * f + n)]) for n in range(4)]) for f in range(2)]
        fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, refs)
        for _ in range(done):
            fixture.committer.run()
        fixture.restart()
        begun = done > 0
        fixture.broker.sweep(fixture.now)
        fixture.commit()
        found = [records(fixture, "orders", n) for n in range(3)]
        whole = [[b"0", b"3", b"10", b"13"], [b"1", b"11"], [b"2", b"12"]]
        assert found == (whole if begun else [[], [], []]), done
        assert rows(publish(fixture, 0, refs)) == ((0, True) if begun else (8, False))
        assert [records(fixture, "orders", n) for n in range(3)] == whole
        assert staged(fixture) == []


@pytest.mark.usefixtures("in_steps")
def test_who_asks_again_meanwhile_waits_for_it() -> None:
    fixture = a_broker(**STEPWISE)
    ref = stage(fixture, 4, SMALL)
    next_ref = stage(fixture, 5, [("bills", 0, [b"5"])])
    first = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 4, [ref])
    fixture.committer.run()
    again = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 4, [ref])
    early = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 3, [])
    after = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 5, [next_ref])
    assert {p.outcome.state for p in (first, again, early, after)} == {GroupState.OPEN}
    fixture.commit()
    assert [rows(p) for p in (first, again, early, after)] == [(4, False), (0, True), (0, True), (1, False)]
    assert everything(fixture) == [[b"1", b"2"], [], [b"3"], [b"4", b"5"]]


@pytest.mark.usefixtures("in_steps")
def test_who_asks_after_a_restart_waits_for_what_was_begun() -> None:
    fixture = a_broker(**STEPWISE)
    ref = stage(fixture, 0, SMALL)
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    fixture.committer.run()
    fixture.committer.run()
    fixture.restart()
    assert rows(publish(fixture, 0, [ref])) == (0, True)  # before the first sweep
    assert everything(fixture) == ALL


@pytest.mark.usefixtures("in_steps")
def test_a_full_disk_ends_the_request_and_the_broker_goes_on_when_there_is_room() -> None:
    fixture = a_broker(**STEPWISE)
    ref = stage(fixture, 0, SMALL)
    found = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    fixture.committer.run()
    fixture.committer.run()
    fault = fixture.fill_disk()
    fixture.commit()
    assert isinstance(error_of(found), CommitFailed)  # it has begun: nobody may believe that nothing was stored
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    fixture.pass_time(1.1)
    fixture.broker.sweep(fixture.now)  # refused at once this time
    fixture.commit()
    assert everything(fixture) != ALL
    fixture.free_disk(fault)
    fixture.pass_time(1.1)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert everything(fixture) == ALL
    assert rows(publish(fixture, 0, [ref])) == (0, True)
    assert len(fixture.broker.publications) == 0


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_if_nothing_was_kept_the_same_may_be_asked_for_again(options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    ref = stage(fixture, 0, SMALL)
    fault = fixture.fill_disk()
    assert isinstance(error_of(publish(fixture, 0, [ref])), LogFull)
    assert isinstance(error_of(publish(fixture, 0, [ref])), LogFull)  # refused at once
    fixture.free_disk(fault)
    assert rows(publish(fixture, 0, [ref])) == (4, False)
    assert everything(fixture) == ALL


@pytest.mark.usefixtures("in_steps")
def test_records_of_a_topic_that_was_deleted_meanwhile_go_with_it() -> None:
    fixture = a_broker(**STEPWISE)
    ref = stage(fixture, 0, SMALL)
    found = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    fixture.committer.run()
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 3)
    fixture.commit()
    assert error_of(found) is None
    assert everything(fixture) == [[], [], [], [b"4"]]


@pytest.mark.usefixtures("in_steps")
def test_what_was_begun_and_is_lost_can_be_published_anew(caplog: pytest.LogCaptureFixture) -> None:
    fixture = a_broker(**STEPWISE)
    publish(fixture, 0, [stage(fixture, 0, [("bills", 0, [b"0"])])])
    ref = stage(fixture, 1, SMALL)
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 1, [ref])
    fixture.committer.run()
    fixture.restart()
    fixture.disk.delete(f"{DIRECTORY}/{ref}")
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert "cannot be finished" in caplog.text
    assert fixture.broker.metrics.publications_dropped == 1
    ref = stage(fixture, 1, [("bills", 0, [b"1"])])
    assert rows(publish(fixture, 1, [ref])) == (1, False)
    fixture.restart()
    assert rows(publish(fixture, 1, [])) == (0, True)


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize("slow", ["disk", "files"])
def test_files_are_read_a_step_ahead_and_nothing_is_appended_twice(slow: str) -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = a_broker(**STEPWISE)
    values = [b"%d" % n for n in range(8)]
    ref = stage(fixture, 0, [("bills", 0, [value]) for value in values])
    fixture.options["executor"] = later(calls)
    fixture.restart()
    found = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    while True:
        if calls and (slow == "disk" or not fixture.committer.run()):
            work, done = calls.pop(0)
            work()
            done()
        elif not calls and not fixture.committer.run():
            break
        assert len(calls) <= 1
    assert rows(found) == (8, False)
    assert records(fixture, "bills") == values


def test_large_publications_of_many_take_turns() -> None:
    fixture = a_broker(settings=LogSettings(file_bytes=16 << 20, durability=Durability.WRITTEN))
    value = bytes(100_000)
    refs = {app: stage(fixture, 0, [("bills", 0, [value] * 10)] * 18, app) for app in ("a", "b", "c")}
    found = [fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, app, 0, [ref]) for app, ref in refs.items()]
    assert len(fixture.broker.publications) == 3
    assert fixture.broker.pending_bytes < 2 * steps.STEP_BYTES + 1_000_000  # two of them, a step each
    fixture.commit()
    assert [rows(p) for p in found] == [(180, False)] * 3
    assert len(records(fixture, "bills")) == 540


# -- whose it is


def test_nobody_can_use_what_another_has_staged_or_published() -> None:
    fixture = a_broker()
    ref = stage(fixture, 7, [("bills", 0, [b"alice"])])
    others = [
        (BOB, DEFAULT_SCOPE, APP),
        (ALICE._replace(tenant="default"), DEFAULT_SCOPE, APP),
        (ALICE._replace(since=1), DEFAULT_SCOPE, APP),
        (ALICE, ACME, APP),
        (ALICE, DEFAULT_SCOPE, "other"),
    ]
    for identity, scope, app in others:
        with pytest.raises(StagedNotFound):
            publish(fixture, 7, [ref], app, identity, scope)
        with pytest.raises(StagedNotFound):
            fixture.broker.publications.discard(identity, scope, app, 7, [ref])
    with pytest.raises(StagedNotFound):
        publish(fixture, 8, [ref])
    publish(fixture, 7, [ref])
    for identity, scope, app in others:
        assert rows(publish(fixture, 7, [], app, identity, scope)) == (0, False)
    assert rows(publish(fixture, 7, [], identity=ALICE._replace(peer="elsewhere:1"))) == (0, True)


def test_rights_are_looked_at_again_when_it_is_published() -> None:
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    may = [Grant("alice", frozenset({Permission.WRITE, Permission.CREATE}), topic=topic) for topic in ("orders", "x*")]
    fixture.options["access"] = AccessPolicy(enforced=True, grants=may)
    fixture.restart()
    assert isinstance(error_of(publish(fixture, 0, [ref])), AccessDenied)
    with pytest.raises(AccessDenied):
        fixture.broker.publications.prepare(ALICE, DEFAULT_SCOPE, APP, 0, ["xy", "bills"])
    assert fixture.broker.position == fixture.engine.position
    assert not fixture.committer.run()  # not even the topic that could have been made
    assert staged(fixture) == [ref]


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize("begun", [False, True])
def test_a_tenant_that_stores_too_much_begins_nothing_and_finishes_what_has_begun(begun: bool) -> None:
    fixture = a_broker(**STEPWISE)
    ref = stage(fixture, 1, [("orders", number, [b"v"]) for number in range(3)])
    if not begun:
        fixture.broker.quotas.over.add("default")
    publishing = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 1, [ref])
    fixture.broker.quotas.over.add("default")
    fixture.commit()
    assert isinstance(error_of(publishing), QuotaReached) is not begun
    assert len(records(fixture, "orders", 2)) == begun


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "\ud800"])
def test_names_of_applications(name: str) -> None:
    fixture = a_broker()
    with pytest.raises(InvalidArgument):
        fixture.broker.publications.prepare(ALICE, DEFAULT_SCOPE, name, 0, [])
    with pytest.raises(InvalidArgument):
        fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, name, 0, [])


@pytest.mark.parametrize("batch", [-1, 1 << 63])
def test_numbers_of_batches(batch: int) -> None:
    with pytest.raises(InvalidArgument):
        a_broker().broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, batch, [])


# -- topics with a schema


SCHEMA = b'{"type": "object", "required": ["id"]}'


def typed_broker(rejected: Any, **options: Any) -> BrokerFixture:
    fixture = a_broker(**options)
    work = fixture.broker.schemas.register(ALICE, DEFAULT_SCOPE, "s", SchemaKind.JSON, SCHEMA)
    work.run()
    work.finish()
    settings = TopicSettings(schema="s", rejected=rejected)
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "typed", 2, settings)
    fixture.commit()
    return fixture


GOOD, BAD = b'{"id": 1}', b"{}"
TYPED: Chunks = [("typed", 0, [GOOD, BAD]), ("bills", 0, [b"x"]), ("typed", 1, [BAD, GOOD, GOOD])]


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_bad_records_become_dead_letters_if_the_topic_wants_that(options: dict[str, Any]) -> None:
    fixture = typed_broker("dead-letter", **options)
    assert rows(publish(fixture, 0, [stage(fixture, 0, TYPED)])) == (6, False)
    assert records(fixture, "typed", 0) == [GOOD]
    assert records(fixture, "typed", 1) == [GOOD, GOOD]
    assert records(fixture, "typed.dlq") == [BAD, BAD]
    assert records(fixture, "bills") == [b"x"]
    assert fixture.broker.metrics.records_diverted == 2


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_one_bad_record_keeps_everything_out_if_the_topic_refuses_it(options: dict[str, Any]) -> None:
    fixture = typed_broker("error", **options)
    assert isinstance(error_of(publish(fixture, 0, [stage(fixture, 0, TYPED)])), RecordRejected)
    assert records(fixture, "typed", 1) == records(fixture, "bills") == []
    good: Chunks = [("typed", 0, [GOOD] * 3), ("bills", 0, [b"x"])]
    assert rows(publish(fixture, 0, [stage(fixture, 0, good)])) == (4, False)
    assert records(fixture, "typed", 0) == [GOOD] * 3


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_many_records_with_a_schema_are_not_checked_at_once_and_none_of_them_twice(options: dict[str, Any]) -> None:
    fixture = typed_broker("error", **options)
    seen: list[int] = []
    check = fixture.broker.validator._check

    def counting(topic: Topic, values: Sequence[bytes]) -> dict[int, list[str]]:
        seen.append(len(values))
        return check(topic, values)

    fixture.broker.validator._check = counting
    found = publish(fixture, 0, [stage(fixture, 0, [("typed", 0, [GOOD] * 500)] * 5)])
    assert rows(found) == (2500, False)
    assert seen == [500] * 5
    assert len(records(fixture, "typed", 0)) == 2500


# -- those that publish a single time


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_an_application_that_publishes_once_is_not_remembered(options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    permit, _ = fixture.broker.publications.prepare(ALICE, DEFAULT_SCOPE, None, 0, ["bills"])
    other, _ = fixture.broker.publications.prepare(ALICE, DEFAULT_SCOPE, None, 0, ["bills"])
    assert permit.key != other.key
    ref = stage(fixture, 0, [("bills", 0, [b"1"]), ("bills", 0, [b"2"])], permit.app)
    assert rows(publish(fixture, 0, [ref], permit.app)) == (2, False)
    assert fixture.broker.state_log.state.publications == {}
    assert staged(fixture) == []
    assert records(fixture, "bills") == [b"1", b"2"]


# -- limits


def test_refs_and_requests_are_bounded() -> None:
    fixture = a_broker(limits=Limits(publication_refs=2, publications_waiting=1, tenant_share=1))
    refs = [stage(fixture, 0, SMALL) for _ in range(3)]
    with pytest.raises(LimitReached):
        publish(fixture, 0, refs)
    with pytest.raises(InvalidArgument):
        publish(fixture, 0, [refs[0], refs[0]])
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, refs[:2])
    with pytest.raises(LimitReached):
        fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, "other", 0, [])
    fixture.commit()
    assert rows(publish(fixture, 0, [], "other")) == (0, False)


def test_applications_are_remembered_for_a_week_and_then_only_if_there_is_room() -> None:
    fixture = a_broker(limits=Limits(publishing_apps=2, tenant_share=1))
    publish(fixture, 0, [], "a")
    publish(fixture, 0, [], "b")
    assert isinstance(error_of(publish(fixture, 0, [], "c")), LimitReached)
    fixture.pass_time(DAY)
    publish(fixture, 1, [], "a")
    fixture.pass_time(REMEMBERED_US / 1e6 - DAY)
    assert rows(publish(fixture, 0, [], "c")) == (0, False)
    assert isinstance(error_of(publish(fixture, 0, [], "d")), LimitReached)
    fixture.restart()
    assert rows(publish(fixture, 1, [], "a")) == (0, True)
    assert rows(publish(fixture, 0, [], "c")) == (0, True)
    assert [state.batch for state in fixture.broker.state_log.state.publications.values()] == [1, 0]


def test_records_that_no_entry_can_hold_are_refused_before_anything_happens() -> None:
    fixture = a_broker(settings=LogSettings(entry_bytes=100_000))
    ref = stage(fixture, 0, [("bills", 0, [b"small"]), ("bills", 0, [bytes(100_000)])])
    assert isinstance(error_of(publish(fixture, 0, [ref])), EntryTooLarge)
    assert records(fixture, "bills") == []
    ref = stage(fixture, 0, [("bills", 0, [bytes(60_000)]), ("bills", 0, [bytes(60_000)])])
    assert rows(publish(fixture, 0, [ref])) == (2, False)


@BOTH
@pytest.mark.usefixtures("in_steps")
def test_what_is_not_there_cannot_be_published(options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    ref = stage(fixture, 0, SMALL)
    fixture.disk.delete(f"{DIRECTORY}/{ref}")
    assert isinstance(error_of(publish(fixture, 0, [ref])), StagedNotFound)
    with pytest.raises(StagedNotFound):
        publish(fixture, 0, ["../journal/00000001"])
    ref = stage(fixture, 0, SMALL)
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
    assert isinstance(error_of(publish(fixture, 0, [ref])), TopicNotFound)
    assert records(fixture, "bills") == []


def test_a_topic_that_is_deleted_while_the_files_are_read_keeps_everything_out() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    fixture.options["executor"] = later(calls)
    fixture.restart()
    found = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    for reading in range(2):
        work, done = calls.pop(0)
        if reading:
            fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
        work()
        done()
    fixture.commit()
    assert isinstance(error_of(found), TopicNotFound)
    assert records(fixture, "bills") == []


def test_a_broken_disk_and_the_end_of_the_broker_are_told() -> None:
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    fixture.break_disk()
    assert isinstance(error_of(publish(fixture, 0, [ref])), CommitFailed)
    assert isinstance(error_of(publish(fixture, 0, [ref])), LogReadOnly)
    fixture.broker.close()
    with pytest.raises(ShuttingDown):
        fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])


# -- cleaning


def test_what_is_discarded_is_gone_unless_it_is_in_use() -> None:
    fixture = a_broker(**STEPWISE)
    kept, dropped = stage(fixture, 0, SMALL), stage(fixture, 0, SMALL)
    found = fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [kept])
    fixture.broker.publications.discard(ALICE, DEFAULT_SCOPE, APP, 0, [kept, dropped])
    assert staged(fixture) == [kept]
    fixture.commit()
    assert rows(found) == (4, False)


@pytest.mark.usefixtures("in_steps")
def test_leftovers_are_removed_at_the_start_and_every_hour() -> None:
    fixture = a_broker(**STEPWISE)
    begun = stage(fixture, 0, SMALL, "begun")
    stage(fixture, 0, SMALL)
    fixture.pass_time(KEPT_US / 1e6)
    young = stage(fixture, 1, SMALL)
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, "begun", 0, [begun])
    fixture.committer.run()
    fixture.restart()
    publications = fixture.broker.publications
    publications.clean(fixture.now)
    assert staged(fixture) == sorted([begun, young])
    fixture.pass_time(3590)
    publications.clean(fixture.now)
    later_one = stage(fixture, 2, SMALL)
    publish(fixture, 1, [young])
    assert sorted(staged(fixture)) == sorted([begun, later_one])
    fixture.pass_time(KEPT_US / 1e6)
    publications.clean(fixture.now)
    assert staged(fixture) == [begun]


# -- figures


def test_figures() -> None:
    fixture = a_broker()
    ref = stage(fixture, 0, SMALL)
    fixture.broker.publications.publish(ALICE, DEFAULT_SCOPE, APP, 0, [ref])
    assert "publications_open 1.0" in fixture.broker.exposition.text()
    fixture.commit()
    publish(fixture, 0, [])
    text = fixture.broker.exposition.text()
    for line in ("publications_open 0.0", "publications_committed_total 1.0", "publications_repeated_total 1.0"):
        assert line in text
    assert "messages_produced_total 4.0" in text
    assert fixture.broker.metrics.bytes_in == 4
