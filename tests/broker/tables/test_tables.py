"""The jobs that the broker gives the table worker, their order, and their outcomes. No table is written here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.log.table import MemoryTable

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.tables.table import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    TOPICS_AT_ONCE,
    BuildJob,
    Failures,
    JobDone,
    MaintenanceJob,
    RemoveJob,
    TableOutcome,
    TablePolicy,
    merged_bytes,
    merged_span,
    next_build,
    version_seconds,
)
from penstock.broker.tables.tables import Tables
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import ClosedFile, ClosedSpan, PartitionId, Retention, partition_id
from penstock.log.errors import LogReadOnly
from penstock.log.file_engine import LogSettings

CARE, KEEP = 60, 3600  # seconds
WEEK = 7 * 86_400
POLICY = TablePolicy(enabled=True, root="/somewhere", maintenance_us=CARE * 1_000_000, keep_us=KEEP * 1_000_000)
FILE = 16 << 10


def fixture(policy: TablePolicy = POLICY, **options: Any) -> BrokerFixture:
    return BrokerFixture(LogSettings(file_bytes=FILE, snapshot_bytes=FILE), tables=policy, **options)


def topic(fixture: BrokerFixture, name: str, settings: TopicSettings | None = None, partitions: int = 1) -> int:
    found, _ = fixture.broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, name, partitions, settings or TopicSettings())
    fixture.commit()
    return found.id


def produce(fixture: BrokerFixture, name: str, count: int = 60, partition: int = 0) -> None:
    for _ in range(count):
        fixture.broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, name, partition, [b"v" * 1000])
        fixture.commit()


def built(fixture: BrokerFixture, job: BuildJob, **errors: str) -> None:
    """The job is done; `errors` by the name of the topic."""
    outcomes = []
    for share in job.shares:
        ends = {number: span.end for number, span in share.spans.items()}
        failed = errors.get(share.ref.name, "")
        outcomes.append(TableOutcome(share.ref.topic, failed, {} if failed else ends))
    fixture.broker.tables.jobs.done(JobDone(job.id, outcomes))
    fixture.commit()


def next_job(fixture: BrokerFixture) -> Any:
    return fixture.broker.tables.jobs.next_job(fixture.now)


def builds(fixture: BrokerFixture) -> Iterator[BuildJob]:
    """Jobs, each done before the next; those that are no builds are answered too."""
    while (job := next_job(fixture)) is not None:
        if isinstance(job, BuildJob):
            yield job
            built(fixture, job)
        else:
            fixture.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(job.ref.topic)]))
            fixture.commit()


# -- which, and in which order


def test_closed_files_are_built_one_after_the_other_and_once() -> None:
    here = fixture()
    orders = topic(here, "orders", partitions=2)
    assert next_job(here) is None
    produce(here, "orders", 40)
    produce(here, "orders", 40, partition=1)
    jobs = list(builds(here))
    assert len(jobs) >= 4
    assert [job.sequence for job in jobs] == sorted({job.sequence for job in jobs})
    for number in (0, 1):
        spans = [job.shares[0].spans[number] for job in jobs if number in job.shares[0].spans]
        assert [span.first for span in spans] == [0, *(span.end for span in spans[:-1])]
        assert here.engine.table_end(partition_id(orders, number)) == spans[-1].end > 20
    assert jobs[0].shares[0].ref.url == f"/somewhere/default/default/orders-{orders}"
    assert next_job(here) is None
    here.restart()
    assert next_job(here) is None


@pytest.mark.parametrize(("default", "own", "expected"), [(True, None, True), (False, None, False),
                                                          (True, False, False), (False, True, True)])  # fmt: skip
def test_a_topic_says_itself_whether_it_gets_a_table(default: bool, own: bool | None, expected: bool) -> None:
    here = fixture(TablePolicy(enabled=default, root="/somewhere"))
    topic(here, "orders", TopicSettings(table=own))
    produce(here, "orders")
    assert (next_job(here) is not None) is expected
    assert here.broker.tables.jobs.needed() is expected
    assert (here.broker.tables.figures().bytes > 0) is expected


def test_records_that_wait_for_their_time_are_for_no_table() -> None:
    here = fixture()
    topic(here, "orders")
    for _ in range(60):
        here.broker.delays.schedule(ADMINISTRATOR, DEFAULT_SCOPE, "orders", b"v" * 1000, None, 0, 1_000_000)
        here.commit()
    assert here.engine.closed_files()
    assert next_job(here) is None


def test_a_topic_that_fails_waits_and_the_others_go_on() -> None:
    here = fixture()
    bad, good = topic(here, "bad"), topic(here, "good")
    for _ in range(40):
        produce(here, "bad", 1)
        produce(here, "good", 1)
    job = next_job(here)
    assert {share.ref.topic for share in job.shares} == {bad, good}
    built(here, job, bad="the store is away")
    assert here.engine.table_end(partition_id(bad, 0)) == 0
    first = job.shares[0].spans[0]
    for job in builds(here):
        assert [share.ref.topic for share in job.shares] == [good]
    assert here.broker.metrics.table_failures == 1
    here.pass_time(1.1)
    again = next_job(here)
    assert [share.ref.topic for share in again.shares] == [bad]
    assert again.shares[0].spans[0] == first


def test_an_operator_hears_of_what_keeps_failing() -> None:
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    for attempt in range(3):
        assert here.broker.tables.trouble() == ""
        built(here, next_job(here), orders="the store is away")
        here.pass_time(2**attempt + 0.1)
    assert "'orders'" in here.broker.tables.trouble() and "the store is away" in here.broker.tables.trouble()
    assert "tables_failing 1.0" in here.broker.metrics_text(ADMINISTRATOR)
    built(here, next_job(here))
    assert here.broker.tables.trouble() == ""


def test_what_waits_for_too_long_is_told_unless_another_priority_would_not_help() -> None:
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    tables = here.broker.tables

    def wait(seconds: float) -> None:
        tables.jobs.observe_backlog()
        here.pass_time(seconds)
        tables.jobs.observe_backlog()

    tables.jobs.hold(here.now + 100_000_000)  # a backup copies the tables' files
    wait(99)
    assert (tables.trouble(), tables.figures().seconds) == ("", 0)
    tables.jobs.hold(0)
    wait(62)
    assert "the table worker is behind" in tables.trouble() and tables.figures().behind
    assert "table_lag_seconds 6" in (text := here.broker.metrics_text(ADMINISTRATOR)) and "tables_behind 1.0" in text
    built(here, next_job(here), orders="the store is away")
    wait(62)
    assert tables.trouble() == ""


def test_a_job_of_a_worker_that_is_replaced_comes_again_and_has_not_failed() -> None:
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    first = next_job(here)
    here.broker.tables.jobs.interrupt()
    again = next_job(here)
    assert (again.sequence, again.shares) == (first.sequence, first.shares)
    assert here.broker.metrics.table_failures == 0


def test_a_job_without_an_answer_comes_again() -> None:
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    first = next_job(here)
    again = next_job(here)
    assert (again.sequence, again.shares) == (first.sequence, first.shares)
    built(here, first)  # too late: it may be of a process that is gone
    assert here.engine.table_end(partition_id(first.shares[0].ref.topic, 0)) == 0
    built(here, again)
    assert here.engine.table_end(partition_id(first.shares[0].ref.topic, 0)) > 0


def test_a_table_that_has_more_than_the_log_knows_is_believed_as_far_as_was_asked() -> None:
    here = fixture()
    orders = topic(here, "orders")
    produce(here, "orders")
    job = next_job(here)
    here.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(orders, offsets={0: 10_000})]))
    here.commit()
    assert here.engine.table_end(partition_id(orders, 0)) == job.shares[0].spans[0].end


def test_what_the_log_does_not_take_is_done_again_after_a_pause() -> None:
    here = fixture()
    orders = topic(here, "orders")
    produce(here, "orders")
    fault = here.fill_disk()
    built(here, next_job(here))
    assert here.engine.table_end(partition_id(orders, 0)) == 0
    assert next_job(here) is None
    here.free_disk(fault)
    here.pass_time(1.1)
    built(here, next_job(here))
    assert here.engine.table_end(partition_id(orders, 0)) > 0
    here.break_disk()
    here.broker.tables.jobs.done(JobDone(next_job(here).id, [TableOutcome(orders, offsets={0: 50})]))
    here.commit()
    here.pass_time(1.1)
    with pytest.raises(LogReadOnly):
        built(here, next_job(here))
    assert next_job(here) is None


# -- care


def cared(fixture: BrokerFixture, seconds: float = CARE) -> MaintenanceJob | None:
    fixture.pass_time(seconds)
    for _ in range(3):
        job = next_job(fixture)
        if job is None or isinstance(job, MaintenanceJob):
            return job
        built(fixture, job)
    return None


def answered(fixture: BrokerFixture, job: MaintenanceJob, starts: dict[int, int] | None = None) -> None:
    fixture.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(job.ref.topic, offsets=starts or {})]))
    fixture.commit()


def test_a_table_that_grew_is_looked_after_once() -> None:
    here = fixture()
    orders = topic(here, "orders")
    produce(here, "orders")
    list(builds(here))
    assert next_job(here) is None
    job = cared(here)
    assert job is not None and job.ref.topic == orders
    assert (job.starts, job.limits, job.file_seconds) == ({0: 0}, {0: (None, None)}, None)
    answered(here, job)
    assert cared(here) is None
    assert cared(here, KEEP) is not None  # for what was replaced then


@pytest.mark.parametrize(
    ("keep", "seconds", "limit", "kept"),
    [
        (WEEK, None, None, WEEK),
        (WEEK, 30 * WEEK, None, WEEK),
        (WEEK, 86_400, None, 86_400),
        (WEEK, 10, None, 3600),
        (WEEK, None, 10**9, 3600),
        (0, 10, None, 0),
        (60, None, 10**9, 60),
    ],
)
def test_old_versions_stay_as_long_as_the_records(
    keep: int, seconds: float | None, limit: int | None, kept: float
) -> None:
    assert version_seconds(keep * 1_000_000, Retention(seconds, limit)) == kept
    assert TablePolicy().keep_us == WEEK * 1_000_000


def test_retention_moves_the_log_first_and_the_table_then() -> None:
    here = fixture(default_retention=Retention(seconds=1000, bytes=10**6))
    orders = topic(here, "orders")
    produce(here, "orders")
    list(builds(here))
    place = partition_id(orders, 0)
    job = cared(here)
    assert job is not None
    assert job.limits == {0: (1000, 10**6)}
    assert job.journal_bytes == {0: here.engine.stored_bytes(place, here.engine.table_end(place))}
    assert (job.file_bytes, job.file_seconds) == (10**5, 100)
    answered(here, job, {0: 20})
    assert here.engine.bounds(place).start == 20
    job = cared(here)
    assert job is not None
    assert job.starts == {0: 20}
    assert here.broker.tables.jobs.safe()


def test_a_table_that_has_nothing_any_more_needs_no_retention() -> None:
    here = fixture(default_retention=Retention(seconds=1000))
    place = partition_id(topic(here, "orders"), 0)
    produce(here, "orders")
    list(builds(here))
    job = cared(here)
    assert job is not None
    answered(here, job, {0: here.engine.table_end(place)})
    job = cared(here)
    assert job is not None and (job.starts, job.limits) == ({0: here.engine.table_end(place)}, {})
    answered(here, job)
    assert cared(here) is None


def test_builds_and_care_take_turns() -> None:
    here = fixture()
    topic(here, "old")
    produce(here, "old")
    list(builds(here))
    here.pass_time(CARE)
    produce(here, "old", 100)
    kinds: list[type] = []
    while (job := next_job(here)) is not None and len(kinds) < 6:
        kinds.append(type(job))
        if isinstance(job, MaintenanceJob):
            answered(here, job)
        else:
            built(here, job)
    assert MaintenanceJob in kinds[:3] and kinds.count(BuildJob) > 2


# -- deletion


def test_the_table_of_a_deleted_topic_is_removed_also_after_a_restart() -> None:
    here = fixture()
    orders = topic(here, "orders")
    produce(here, "orders")
    built(here, next_job(here))
    here.broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    here.commit()
    here.restart()
    assert here.broker.tables.jobs.needed()
    job = next_job(here)
    assert isinstance(job, RemoveJob)
    assert job.ref == here.broker.tables.catalog.ref_of(DEFAULT_SCOPE, "orders", orders)
    here.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(orders, "the store is away")]))
    assert next_job(here) is None
    here.pass_time(1.1)
    job = next_job(here)
    here.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(orders)]))
    here.commit()
    here.restart()
    assert next_job(here) is None


def test_a_topic_deleted_while_its_table_is_built_leaves_nothing() -> None:
    here = fixture()
    orders = topic(here, "orders")
    produce(here, "orders")
    job = next_job(here)
    here.broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    here.commit()
    built(here, job)
    assert here.engine.table_end(partition_id(orders, 0)) == 0
    assert isinstance(next_job(here), RemoveJob)


def test_a_snapshot_remembers_tables_that_are_to_be_removed() -> None:
    here = fixture()
    topic(here, "orders")
    here.broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    here.commit()
    here.engine.close()
    here.restart()
    assert isinstance(next_job(here), RemoveJob)


# -- reading


def test_a_description_says_where_the_table_is_and_how_far_it_reaches() -> None:
    here = fixture(TablePolicy(enabled=True, root="s3://bucket/x", options={"region": "eu"}))
    orders = topic(here, "orders", partitions=2)
    assert here.broker.tables.describe(ADMINISTRATOR, DEFAULT_SCOPE, "orders") is None
    produce(here, "orders")
    list(builds(here))
    told = here.broker.tables.describe(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert told is not None
    assert told.ref.url == f"s3://bucket/x/default/default/orders-{orders}"
    assert told.ref.options == {"region": "eu"}
    assert told.ends == {0: here.engine.table_end(partition_id(orders, 0)), 1: 0}


def test_a_fetch_below_the_journal_comes_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MemoryTable()
    monkeypatch.setattr(Tables, "_open_tiered_reader", lambda _: table)
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    while closed := here.engine.closed_files():
        here.engine.advance_table_ends(table.build(here.engine, closed[0]))
        here.commit()
    for _ in range(5):
        here.broker.maintain(here.now)
        here.commit()
    here.restart()
    assert here.engine.reclaimed.files == 0
    read = here.broker.fetch.plan(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0, 3, 5000, 100)
    assert not read.ready
    assert read.run()[0].base_offset == 3
    assert table.reads == 1
    table.failure = OSError("the store is away")
    with pytest.raises(Exception, match="the store is away"):
        here.broker.fetch.plan(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0, 3, 5000, 100).run()
    assert "the store is away" in here.broker.tables.trouble()


def test_a_fetch_across_the_seam_has_every_offset_once_while_a_file_that_is_in_the_table_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = MemoryTable()
    monkeypatch.setattr(Tables, "_open_tiered_reader", lambda _: table)
    here = fixture()
    topic(here, "orders")
    produce(here, "orders")
    while len(closed := here.engine.closed_files()) > 1:
        here.engine.advance_table_ends(table.build(here.engine, closed[0]))
        here.commit()
    for _ in range(5):
        here.broker.maintain(here.now)
        here.commit()
    here.engine.advance_table_ends(table.build(here.engine, closed[0]))
    here.commit()
    here.restart()
    slices = here.broker.fetch.plan(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0, 0, 1 << 20, 100).run()
    assert [offset for part in slices for offset in range(part.base_offset, part.end_offset)] == list(range(60))


# -- the rules


def file(sequence: int, **topics: tuple[int, int]) -> ClosedFile:
    spans = {partition_id(int(name[1:]), 0): ClosedSpan(*span, 100) for name, span in topics.items()}
    return ClosedFile(sequence, spans)


FILES = [file(1, t1=(0, 5), t2=(0, 5)), file(2, t1=(5, 9)), file(3, t3=(0, 2), t2=(5, 6))]


@pytest.mark.parametrize(
    ("unwanted", "resting", "sequence", "topics"),
    [
        ((), (), 1, {1, 2}),
        ((2,), (), 1, {1}),
        ((1, 2), (), 3, {3}),
        ((), (1,), 1, {2}),
        ((), (1, 2), 3, {3}),  # what later files have of a topic that rests waits too
        ((3,), (1, 2), None, set()),
    ],
)
def test_which_file_is_next(
    unwanted: tuple[int, ...], resting: tuple[int, ...], sequence: int | None, topics: set[int]
) -> None:
    found = next_build(FILES, lambda topic: topic not in unwanted, resting)
    assert (found is None) == (sequence is None)
    if found is not None:
        assert (found[0], set(found[1])) == (sequence, topics)


def test_a_job_has_a_bounded_number_of_topics() -> None:
    spans = {PartitionId(partition_id(number, 0)): ClosedSpan(0, 1, 1) for number in range(1, 1000)}
    found = next_build([ClosedFile(1, spans)], lambda _: True, ())
    assert found is not None and len(found[1]) == TOPICS_AT_ONCE


def test_pauses_grow_up_to_a_limit() -> None:
    failures = Failures()
    pauses = []
    for _ in range(40):
        failures.add(1000, "away")
        pauses.append(failures.until - 1000)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE


def test_merged_files_are_a_small_part_of_what_retention_keeps() -> None:
    assert merged_span(None) is None
    assert merged_span(1000) == 100
    assert merged_bytes(256, None) == 256
    assert merged_bytes(256, 1000) == 100
    assert merged_bytes(256, 10_000) == 256
