"""The broker's tables: one per topic, with the records of its closed segments. This module decides which jobs to run,
and when, and records their outcome; the table worker, a separate process, asks for jobs and runs them.

One job runs at a time. If the worker, its answer or the broker is lost, the job is issued again: jobs are idempotent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from penstock.broker.errors import TopicNotFound, TypedTableNotFound
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.metrics import Metrics, TableFigures
from penstock.broker.schemas import schema as schema_rules
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import TableLeft, TableRemoved
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.backlog import Backlog
from penstock.broker.tables.repairs import Repairs, RepairStatus, RepairWatch
from penstock.broker.tables.table import (
    IDLE_MAINTENANCE,
    LOOKS_AT_ONCE,
    TYPED_BYTES,
    BuildJob,
    Failures,
    Job,
    JobDone,
    MaintenanceJob,
    RemoveJob,
    RepairJob,
    RepairReport,
    TableOutcome,
    TablePolicy,
    TableShare,
    TableSpan,
    TypedRows,
    in_trouble,
    merged_bytes,
    merged_span,
    next_build,
    require_typed,
    typed_name,
    typed_rows,
    version_seconds,
)
from penstock.broker.topics import topic_rules
from penstock.log.engine import CommitGroup, PartitionId, Retention, TieredReader, partition_id, topic_of
from penstock.log.errors import LogError, TableDamaged
from penstock.log.tables.location import TYPED_SUFFIX, TableRef, TableWriter, table_ref
from penstock.log.tiered_read import LazyTieredReader, place_of

logger = logging.getLogger(__name__)


class TableDescription(NamedTuple):
    ref: TableRef
    ends: dict[int, int]  # the table's end in each partition, exclusive


class Tables:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        policy: TablePolicy,
        metrics: Metrics,
        clock: Clock,
        retention: Callable[[PartitionId], Retention],
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._policy = policy
        self._metrics = metrics
        self._clock = clock
        self._retention = retention
        self._job: Job | None = None
        self._number = 0
        self._held_until = 0  # µs
        self._failures: dict[int, Failures] = {}  # by topic
        self._typed_errors: dict[int, str] = {}  # by topic: why its typed table could not be written
        self._maintenance_queue: deque[int] = deque()  # queue of topics whose tables may need maintenance
        self._last_maintenance: dict[int, int] = {}  # time of the last maintenance job, by topic
        self._any: bool | None = None  # whether any table existed at the first call of `exist`
        self._changed: set[int] = set()  # topics whose tables have changed since their last maintenance job
        self._starts: dict[int, dict[int, int]] = {}  # log starts in the last maintenance job of each table
        self._build_bytes: dict[int, int] = {}  # bytes of the last build, by topic
        self._built = False  # the last job was a build: other jobs go first now
        self._sizes: dict[int, int] = {}  # of tables, in bytes, by topic; unknown until the first maintenance job
        self._backlog = Backlog()
        self._repairs = Repairs()
        self._verifications = Repairs()
        self._tiered_reader = LazyTieredReader(self._open_tiered_reader)
        self._damage = self._tiered_reader.damage
        state_log.engine.read_tiered_from(self._tiered_reader)

    # -- for clients

    def describe(self, identity: Identity, scope: Scope, topic: str) -> TableDescription | None:
        """The location and contents of the topic's table; None if there is none yet."""
        self._access.require(identity, Permission.READ, scope, topic)
        found = topic_rules.find(self._state_log.current(), scope, topic)
        ends = self._ends(found)
        return TableDescription(self._ref(found), ends) if any(ends.values()) else None

    def readable(self, identity: Identity, topic: int) -> Topic | None:
        """The topic with this id, if this identity may read it: nobody learns about the others from ids."""
        found = self._state_log.current().topics_by_id.get(topic)
        allowed = found is not None and self._access.allows(identity, Permission.READ, found.scope, found.name)
        return found if allowed else None

    def typed_name(self, topic: Topic) -> str | None:
        """The name of the topic's typed table in SQL and Flight; None if it has none yet."""
        kept = self._policy.typed and any(self._ends(topic).values())
        return typed_name(self._state_log.state.topics[topic.scope], topic) if kept else None

    def typed_names(self, identity: Identity, scope: Scope) -> list[str]:
        """The names of the typed tables that exist and may be read."""
        topics = topic_rules.in_scope(self._state_log.current(), scope)
        readable = [topic for topic in topics if self._access.allows(identity, Permission.READ, scope, topic.name)]
        return [name for topic in readable if (name := self.typed_name(topic)) is not None]

    def typed_topic(self, identity: Identity, scope: Scope, name: str) -> Topic | None:
        """The topic whose typed table has this name; None if a topic has it. Raises AccessDenied, TopicNotFound, or
        TypedTableNotFound for a topic without a schema."""
        known = self._state_log.current().topics.get(scope, {})
        if name in known or not name.endswith(TYPED_SUFFIX):
            return None
        topic = name.removesuffix(TYPED_SUFFIX)
        require_typed(self._access, identity, scope, name, topic)
        if topic not in known:
            raise TopicNotFound(name)
        if known[topic].settings.schema is None:
            raise TypedTableNotFound(topic)
        return known[topic]

    # -- repair

    def repair(self, identity: Identity, scope: Scope, topic: str, *, checksums: bool = False) -> RepairStatus:
        """Request a repair of a topic's table; it is queued between other work on tables."""
        return self._repairs.ask(self._to_repair(identity, scope, topic).id, checksums=checksums)

    def repair_status(self, identity: Identity, scope: Scope, topic: str) -> RepairStatus:
        """The progress of the last repair of a topic's table."""
        return self._repairs.status(self._to_repair(identity, scope, topic).id)

    def repair_progress(self, job: int, checked: int, total: int) -> None:
        """Progress of the running repair, reported by the table worker."""
        if isinstance(self._job, RepairJob) and self._job.id == job:
            self._registry(self._job).progress(self._job.ref.topic, checked, total)

    def verify(self, identity: Identity, scope: Scope, topic: str) -> RepairStatus:
        """Request a check of a topic's table against the log; it is queued between other work on tables."""
        return self._verifications.ask(self._to_repair(identity, scope, topic).id, checksums=False)

    def watch(
        self, identity: Identity, scope: Scope, topic: str, on_progress: Callable[[int, int], None], *, verify: bool
    ) -> tuple[RepairWatch, Callable[[], bool]]:
        """A watcher of a requested repair or verification, and a function that cancels it if it has not begun."""
        number = self._to_repair(identity, scope, topic).id
        registry = self._verifications if verify else self._repairs
        return registry.watch(number, on_progress), lambda: registry.withdraw(number)

    def _registry(self, job: RepairJob) -> Repairs:
        return self._verifications if job.verify else self._repairs

    def _to_repair(self, identity: Identity, scope: Scope, topic: str) -> Topic:
        self._access.require(identity, Permission.ALTER, scope, topic)
        return topic_rules.find(self._state_log.current(), scope, topic)

    def _repair(self) -> RepairJob | None:
        for registry in (self._repairs, self._verifications):
            while (found := registry.begin()) is not None:
                topic = self._state_log.state.topics_by_id.get(found[0])
                if topic is None:
                    registry.forget(found[0])
                    continue
                bounds = self._state_log.engine.bounds
                starts = {number: bounds(partition_id(topic.id, number)).start for number in range(topic.partitions)}
                ref, ends, verify = self._ref(topic), self._ends(topic), registry is self._verifications
                typed = self._typed(topic, TYPED_BYTES) if verify else None
                return RepairJob(self._next_number(), ref, starts, ends, found[1], verify, typed)
        return None

    def _repaired(self, job: RepairJob, outcome: TableOutcome) -> None:
        """Record the outcome. From now on only the remaining damage is reported."""
        topic, report = job.ref.topic, outcome.report
        self._registry(job).finish(topic, report, outcome.error)
        if report is None:
            done = "verified" if job.verify else "repaired"
            logger.warning("table of topic %d: not %s: %s", topic, done, outcome.error, extra={"topic": topic})
            return
        self._damage.verified(topic, _damage_left(job.ref, report))
        if job.verify:
            return
        self._failures.pop(topic, None)
        self._changed.add(topic)
        logger.info(
            "table of topic %d: repaired; %d ranges of offsets were rebuilt, %d are lost",
            *(topic, len(report.rebuilt), len(report.lost)),
            extra={"topic": topic},
        )

    # -- locations

    def find(self, topic: int) -> TableRef | None:
        """The location of a topic's table, whether or not it exists yet; None if there is no such topic. Any thread."""
        found = self._state_log.state.topics_by_id.get(topic)
        return None if found is None else self._ref(found)

    def _ref(self, topic: Topic) -> TableRef:
        return self._table_ref(topic.scope, topic.name, topic.id)

    def _table_ref(self, scope: Scope, name: str, topic: int) -> TableRef:
        term = self._state_log.engine.owner_term
        writer = None if term is None else TableWriter(*term)
        return table_ref(self._policy.root, self._policy.options, *scope, name, topic, writer)

    def _open_tiered_reader(self) -> TieredReader:
        from penstock.log.tables.row_group_reader import (
            RowGroupReader,  # slow to import, and many brokers never need it
        )

        return RowGroupReader(self.find)

    def _wanted(self, topic: int) -> bool:
        """Whether closed segments of the topic are added to a table. Records that are in a table already stay there.
        Delayed records that are not due belong to no topic and are never added.
        """
        found = self._state_log.state.topics_by_id.get(topic)
        if found is None:
            return False
        enabled = found.settings.table
        return self._policy.enabled if enabled is None else enabled

    def _ends(self, topic: Topic) -> dict[int, int]:
        end = self._state_log.engine.table_end
        return {number: end(partition_id(topic.id, number)) for number in range(topic.partitions)}

    # -- deleted topics

    def left_by(self, topic: Topic) -> list[TableLeft]:
        """To be stored with the deletion of a topic: its table has to be removed. The table may exist before the log
        knows of it.
        """
        if self._wanted(topic.id) or any(self._ends(topic).values()):
            return [TableLeft(topic.id, *topic.scope, topic.name)]
        return []

    # -- jobs

    def next_job(self, now: int) -> Job | None:
        """The next job; `now` is the time for retention, in µs. The caller has no job any more: one that was not
        answered has failed.
        """
        if self._job is not None:
            self._give_up(self._job)
        self._job = self._choose(now)
        return self._job

    def hold(self, until: int) -> None:
        """Start no job before this time (µs); 0: resume. Used while the files of tables are being copied."""
        self._held_until = until

    @property
    def busy(self) -> bool:
        """Whether a job is running."""
        return self._job is not None

    @property
    def root(self) -> str:
        """The folder or URL that contains all tables."""
        return self._policy.root

    def needed(self) -> bool:
        """Whether there is work for the table worker, now or later."""
        requested = self._repairs.waiting or self._verifications.waiting
        return requested or self.exist() or self._removal() is not None or self._build() is not None

    def exist(self) -> bool:
        """Whether any table existed at the first call."""
        if self._any is None:
            self._any = any(any(self._ends(topic).values()) for topic in self._state_log.state.topics_by_id.values())
        return self._any

    def warm(self) -> None:
        """Import the libraries for tables, before the first read needs them. Any thread; slow."""
        self._tiered_reader.warm()

    def _choose(self, now: int) -> Job | None:
        if self._clock() < self._held_until:
            return None
        if (repair := self._repair()) is not None:
            return repair
        if self._built:
            return self._removal() or self._maintenance(now) or self._build()
        return self._build() or self._removal() or self._maintenance(now)

    def _build(self) -> BuildJob | None:
        found = next_build(self._state_log.engine.closed_files(), self._wanted, self._backing_off())
        if found is None:
            return None
        sequence, by_topic = found
        start = self._state_log.engine.bounds
        shares = []
        room = TYPED_BYTES
        for topic, spans in by_topic.items():
            ref = self.find(topic)
            assert ref is not None
            known = {
                number: TableSpan(span.first, span.end, start(partition_id(topic, number)).start)
                for number, span in spans.items()
            }
            typed = self._typed(self._state_log.state.topics_by_id[topic], room)
            room -= 0 if typed is None else sum(map(schema_rules.size_of, typed.schemas))
            shares.append(TableShare(ref, known, typed))
        self._build_bytes = {topic: sum(span.bytes for span in spans.values()) for topic, spans in by_topic.items()}
        return BuildJob(self._next_number(), sequence, shares)

    def _removal(self) -> RemoveJob | None:
        backing_off = self._backing_off()
        for topic, (scope, name) in self._state_log.state.tables_left.items():
            if topic not in backing_off:
                return RemoveJob(self._next_number(), self._table_ref(scope, name, topic))
        return None

    def _maintenance(self, now: int) -> MaintenanceJob | None:
        """A job for the next table in the queue."""
        known, clock, backing_off = self._state_log.state.topics_by_id, self._clock(), self._backing_off()
        if not self._maintenance_queue:
            self._maintenance_queue.extend(known)
        for _ in range(min(LOOKS_AT_ONCE, len(self._maintenance_queue))):
            topic = known.get(self._maintenance_queue.popleft())
            if topic is None or topic.id in backing_off:
                continue
            if clock - self._last_maintenance.setdefault(topic.id, clock) >= self._policy.maintenance_us:
                job = self._maintenance_of(topic, now, clock)
                if job is not None:
                    return job
        return None

    def _maintenance_of(self, topic: Topic, now: int, clock: int) -> MaintenanceJob | None:
        """A job for this table; None if it needs none. For a table without changes, only replaced files have to be
        deleted eventually.
        """
        engine = self._state_log.engine
        ends = {number: end for number, end in self._ends(topic).items() if end}
        places = {number: partition_id(topic.id, number) for number in ends}
        starts = {number: engine.bounds(place).start for number, place in places.items()}
        limit = self._retention(partition_id(topic.id, 0))
        begins_there = [number for number, end in ends.items() if starts[number] < end]
        limited = begins_there and (limit.seconds is not None or limit.bytes is not None)
        due = limited or topic.id in self._changed or self._starts.get(topic.id) != starts
        idle = min(self._policy.keep_us, IDLE_MAINTENANCE)
        if not ends or not (due or clock - self._last_maintenance[topic.id] >= idle):
            return None
        return MaintenanceJob(
            self._next_number(),
            self._ref(topic),
            now,
            starts,
            dict.fromkeys(begins_there, (limit.seconds, limit.bytes)),
            {number: engine.stored_bytes(places[number], ends[number]) for number in begins_there},
            merged_bytes(self._policy.file_bytes, limit.bytes),
            merged_span(limit.seconds),
            version_seconds(self._policy.keep_us, limit),
            self._typed(topic, TYPED_BYTES),
        )

    def _typed(self, topic: Topic, room: int) -> TypedRows | None:
        """The schemas and bounds of the topic's typed table; None if it has none or they exceed `room` bytes."""
        if not self._policy.typed:
            return None
        return typed_rows(self._state_log.state, self._state_log.engine.bounds, topic, room)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _backing_off(self) -> set[int]:
        now = self._clock()
        return {topic for topic, failures in self._failures.items() if failures.until > now}

    def safe(self) -> bool:
        """Whether the log starts and deletions that a job is based on survive a power failure; the job deletes data for
        good. Blocks on the disk; any thread.
        """
        return self._state_log.engine.sync()

    @property
    def backlog(self) -> Backlog:
        return self._backlog

    def observe_backlog(self) -> None:
        """Measure the backlog. Topics that fail are left out, and so is everything while jobs are on hold: another
        priority would not help."""
        now = self._clock()
        self._backlog.observe(now, {} if now < self._held_until else self._waiting(self._failures))

    def interrupt(self) -> None:
        """The worker is replaced by a new process: its job, if any, is issued again."""
        if self._job is not None:
            self.put_back(self._job)

    def put_back(self, job: Job) -> None:
        """The job is postponed and will be issued again."""
        if self._job is job:
            self._job = None
            if isinstance(job, RepairJob):
                self._registry(job).put_back(job.ref.topic, checksums=job.checksums)

    def done(self, done: JobDone) -> CommitGroup | None:
        """Record the outcome of a job. Ask for the next one when the returned group is committed. Raises LogError."""
        job = self._job
        if job is None or job.id != done.id:
            return None
        self._job = None
        self._built = isinstance(job, BuildJob)
        if isinstance(job, RepairJob):
            for outcome in done.outcomes:
                self._repaired(job, outcome)
            return None
        now = self._clock()
        for outcome in done.outcomes:
            self._note_typed(outcome)
        succeeded = [outcome for outcome in done.outcomes if not outcome.error]
        for outcome in done.outcomes:
            if outcome.error:
                self._fail(outcome.topic, now, outcome.error)
            else:
                self._failures.pop(outcome.topic, None)
        try:
            group = self._conclude(job, succeeded, now)
        except LogError as error:
            self._not_kept(succeeded, error)
            raise
        if group is not None:
            group.on_done(lambda group: self._not_kept(succeeded, group.error))
        return group

    def _note_typed(self, outcome: TableOutcome) -> None:
        """Log a failure to write a typed table; it is retried with the next job."""
        topic, error = outcome.topic, outcome.typed_error
        if not error:
            self._typed_errors.pop(topic, None)
            return
        self._typed_errors[topic] = error
        logger.warning("typed table of topic %d: %s", topic, error, extra={"topic": topic})

    def _conclude(
        self, job: BuildJob | MaintenanceJob | RemoveJob, outcomes: list[TableOutcome], now: int
    ) -> CommitGroup | None:
        match job:
            case BuildJob():
                return self._take_over(job, outcomes)
            case MaintenanceJob():
                return self._maintained(job, outcomes, now)
            case RemoveJob():
                return self._state_log.commit((TableRemoved(job.ref.topic),)) if outcomes else None

    def _not_kept(self, outcomes: list[TableOutcome], error: Exception | None) -> None:
        """The outcome could not be committed, so the same job will be issued again: back off."""
        if error is not None:
            for outcome in outcomes:
                self._fail(outcome.topic, self._clock(), f"what was done could not be kept: {error}")

    def _take_over(self, job: BuildJob, outcomes: list[TableOutcome]) -> CommitGroup | None:
        requested = {share.ref.topic: share.spans for share in job.shares}
        self._metrics.table_builds += len(outcomes)
        ends = {}
        for outcome in outcomes:
            for number, end in outcome.offsets.items():
                place = partition_id(outcome.topic, number)
                # The table may be further along, if an answer was lost. The rest is added by later jobs.
                ends[place] = min(end, requested[outcome.topic][number].end)
            # An estimate until the next maintenance job; it ignores what the table already had.
            self._sizes[outcome.topic] = self._sizes.get(outcome.topic, 0) + self._build_bytes.get(outcome.topic, 0)
        self._changed.update(outcome.topic for outcome in outcomes)
        return self._state_log.engine.advance_table_ends(ends) if ends else None

    def _maintained(self, job: MaintenanceJob, outcomes: list[TableOutcome], now: int) -> CommitGroup | None:
        topic = job.ref.topic
        self._last_maintenance[topic] = now
        if not outcomes:
            return None
        if (size := outcomes[0].bytes) is not None:
            self._sizes[topic] = size
        self._changed.discard(topic)
        self._starts[topic] = job.starts
        engine = self._state_log.engine
        moved = {partition_id(topic, number): start for number, start in outcomes[0].offsets.items()}
        moved = {place: start for place, start in moved.items() if start > engine.bounds(place).start}
        return engine.trim(moved) if moved and topic in self._state_log.state.topics_by_id else None

    def _give_up(self, job: Job) -> None:
        if isinstance(job, RepairJob):
            self._registry(job).finish(job.ref.topic, None, "the process that was at it ended: ask again")
            return
        refs = [share.ref for share in job.shares] if isinstance(job, BuildJob) else [job.ref]
        for ref in refs:
            self._failures.setdefault(ref.topic, Failures()).interrupted("the process that was at it ended")
        self._metrics.table_failures += 1

    def _fail(self, topic: int, now: int, reason: str) -> None:
        failures = self._failures.setdefault(topic, Failures())
        failures.add(now, reason)
        self._metrics.table_failures += 1
        logger.warning("table of topic %d: %s; it is tried again", topic, reason, extra={"topic": topic})

    # -- for operators

    def sizes(self) -> Mapping[int, int]:
        """The bytes of tables, by topic, as far as they are known."""
        return self._sizes

    def trouble(self) -> str:
        """The reasons why tables cannot be read or built, if that has failed repeatedly, or are behind; else empty."""
        reasons = [str(error) for error in self._damage_that_matters()]
        reasons += [self._tiered_reader.trouble] if self._tiered_reader.trouble else []
        reasons += list(self._typed_errors.values())
        reasons += in_trouble(self._state_log.state.topics_by_id, self._failures)
        reasons += [self._backlog.trouble()] if self._backlog.behind else []
        return "; ".join(reasons[:3])

    def _damage_that_matters(self) -> list[TableDamaged]:
        """Damage in offsets that retention has not removed."""
        start = self._state_log.engine.bounds
        return [error for error in self._damage.list() if error.end > start(place_of(error)).start]

    def damaged(self, error: TableDamaged) -> None:
        """Another process found damage while reading a table."""
        self._damage.add(error)

    def figures(self) -> TableFigures:
        waiting = self._waiting()
        self._metrics.table_damaged_reads = self._damage.reads
        damaged = len(self._damage_that_matters())
        backlog = self._backlog
        return TableFigures(
            len(waiting), sum(waiting.values()), len(self._failures), damaged, backlog.seconds, backlog.behind
        )

    def _waiting(self, without: Container[int] = ()) -> dict[int, int]:
        """Bytes that are in no table yet, by the number of their closed segment; `without` these topics."""
        found = {}
        for file in self._state_log.engine.closed_files():
            topics = ((topic_of(partition), span.bytes) for partition, span in file.spans.items())
            size = sum(size for topic, size in topics if topic not in without and self._wanted(topic))
            if size:
                found[file.sequence] = size
        return found

    def forget(self, topic: int) -> None:
        """The topic was deleted."""
        self._damage.forget(topic)
        self._repairs.forget(topic)
        self._verifications.forget(topic)
        self._failures.pop(topic, None)
        self._typed_errors.pop(topic, None)
        self._last_maintenance.pop(topic, None)
        self._starts.pop(topic, None)
        self._sizes.pop(topic, None)
        self._changed.discard(topic)


def _damage_left(ref: TableRef, report: RepairReport) -> list[TableDamaged]:
    found = []
    for left in report.left:
        if left.partition is not None:
            place = f"{ref.url}/{left.file}", ref.name, left.partition, left.first, left.end
            found.append(TableDamaged(*place, left.reason, topic_id=ref.topic))
    return found
