"""The jobs of the table worker: which one is next, and what follows from its outcome. A separate process, the table
worker, asks for jobs and runs them; `table` has the jobs as values.

One job runs at a time. If the worker, its answer or the broker is lost, the job is issued again: jobs are idempotent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Mapping

from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.schemas import schema as schema_rules
from penstock.broker.state.events import TableRemoved
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.backlog import Backlog
from penstock.broker.tables.repairs import Repairs
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
    typed_rows,
    version_seconds,
)
from penstock.broker.tables.table_catalog import TableCatalog
from penstock.log.engine import CommitGroup, PartitionId, Retention, partition_id, topic_of
from penstock.log.errors import LogError, TableDamaged
from penstock.log.tables.location import TableRef
from penstock.log.tiered_read import DamageRegister

logger = logging.getLogger(__name__)


class TableJobs:
    def __init__(
        self,
        state_log: StateLog,
        catalog: TableCatalog,
        policy: TablePolicy,
        metrics: Metrics,
        clock: Clock,
        retention: Callable[[PartitionId], Retention],
        damage: DamageRegister,
    ) -> None:
        self._state_log = state_log
        self._catalog = catalog
        self._policy = policy
        self._metrics = metrics
        self._clock = clock
        self._retention = retention
        self._damage = damage
        self.backlog = Backlog()
        self.repairs = Repairs()  # requested ones
        self.verifications = Repairs()
        self._job: Job | None = None
        self._number = 0
        self._held_until = 0  # µs
        self._failures: dict[int, Failures] = {}  # by topic
        self._typed_errors: dict[int, str] = {}  # by topic: why its typed table could not be written
        self._maintenance_queue: deque[int] = deque()  # queue of topics whose tables may need maintenance
        self._last_maintenance: dict[int, int] = {}  # time of the last maintenance job, by topic
        self._changed: set[int] = set()  # topics whose tables have changed since their last maintenance job
        self._starts: dict[int, dict[int, int]] = {}  # log starts in the last maintenance job of each table
        self._build_bytes: dict[int, int] = {}  # bytes of the last build, by topic
        self._built = False  # the last job was a build: other jobs go first now
        self._sizes: dict[int, int] = {}  # of tables, in bytes, by topic; unknown until the first maintenance job

    # -- for the worker

    def next_job(self, now: int) -> Job | None:
        """The next job; `now` is the time for retention, in µs. The caller has no job any more: one that was not
        answered has failed.
        """
        if self._job is not None:
            self._give_up(self._job)
        self._job = self._choose(now)
        return self._job

    def safe(self) -> bool:
        """Whether the log starts and deletions that a job is based on survive a power failure; the job deletes data for
        good. Blocks on the disk; any thread.
        """
        return self._state_log.engine.sync()

    def put_back(self, job: Job) -> None:
        """The job is postponed and will be issued again."""
        if self._job is job:
            self._job = None
            if isinstance(job, RepairJob):
                self._registry(job).put_back(job.ref.topic, checksums=job.checksums)

    def interrupt(self) -> None:
        """The worker is replaced by a new process: its job, if any, is issued again."""
        if self._job is not None:
            self.put_back(self._job)

    def repair_progress(self, job: int, checked: int, total: int) -> None:
        """Progress of the running repair, reported by the table worker."""
        if isinstance(self._job, RepairJob) and self._job.id == job:
            self._registry(self._job).progress(self._job.ref.topic, checked, total)

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

    # -- the next job

    def needed(self) -> bool:
        """Whether there is work for the table worker, now or later."""
        requested = self.repairs.waiting or self.verifications.waiting
        return requested or self._catalog.exist() or self._removal() is not None or self._build() is not None

    @property
    def busy(self) -> bool:
        """Whether a job is running."""
        return self._job is not None

    def hold(self, until: int) -> None:
        """Start no job before this time (µs); 0: resume. Used while the files of tables are being copied."""
        self._held_until = until

    def _choose(self, now: int) -> Job | None:
        if self._clock() < self._held_until:
            return None
        if (repair := self._repair()) is not None:
            return repair
        if self._built:
            return self._removal() or self._maintenance(now) or self._build()
        return self._build() or self._removal() or self._maintenance(now)

    def _repair(self) -> RepairJob | None:
        for registry in (self.repairs, self.verifications):
            while (found := registry.begin()) is not None:
                topic = self._state_log.state.topics_by_id.get(found[0])
                if topic is None:
                    registry.forget(found[0])
                    continue
                bounds = self._state_log.engine.bounds
                starts = {number: bounds(partition_id(topic.id, number)).start for number in range(topic.partitions)}
                ref, ends, verify = self._catalog.ref(topic), self._catalog.ends(topic), registry is self.verifications
                typed = self._typed(topic, TYPED_BYTES) if verify else None
                return RepairJob(self._next_number(), ref, starts, ends, found[1], verify, typed)
        return None

    def _build(self) -> BuildJob | None:
        found = next_build(self._state_log.engine.closed_files(), self._catalog.wanted, self._backing_off())
        if found is None:
            return None
        sequence, by_topic = found
        start = self._state_log.engine.bounds
        shares = []
        room = TYPED_BYTES
        for topic, spans in by_topic.items():
            ref = self._catalog.find(topic)
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
                return RemoveJob(self._next_number(), self._catalog.ref_of(scope, name, topic))
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
        ends = {number: end for number, end in self._catalog.ends(topic).items() if end}
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
            self._catalog.ref(topic),
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

    # -- outcomes

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

    def _not_kept(self, outcomes: list[TableOutcome], error: Exception | None) -> None:
        """The outcome could not be committed, so the same job will be issued again: back off."""
        if error is not None:
            for outcome in outcomes:
                self._fail(outcome.topic, self._clock(), f"what was done could not be kept: {error}")

    def _note_typed(self, outcome: TableOutcome) -> None:
        """Log a failure to write a typed table; it is retried with the next job."""
        topic, error = outcome.topic, outcome.typed_error
        if not error:
            self._typed_errors.pop(topic, None)
            return
        self._typed_errors[topic] = error
        logger.warning("typed table of topic %d: %s", topic, error, extra={"topic": topic})

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

    def _registry(self, job: RepairJob) -> Repairs:
        return self.verifications if job.verify else self.repairs

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

    def observe_backlog(self) -> None:
        """Measure the backlog. Topics that fail are left out, and so is everything while jobs are on hold: another
        priority would not help."""
        now = self._clock()
        self.backlog.observe(now, {} if now < self._held_until else self.waiting(self._failures))

    @property
    def failing(self) -> int:
        """The number of tables whose last job failed."""
        return len(self._failures)

    def trouble(self) -> list[str]:
        """The reasons why tables cannot be built, if that has failed repeatedly, or are behind."""
        reasons = [*self._typed_errors.values()]
        reasons += in_trouble(self._state_log.state.topics_by_id, self._failures)
        return [*reasons, self.backlog.trouble()] if self.backlog.behind else reasons

    def waiting(self, without: Container[int] = ()) -> dict[int, int]:
        """Bytes that are in no table yet, by the number of their closed segment; `without` these topics."""
        found = {}
        for file in self._state_log.engine.closed_files():
            topics = ((topic_of(partition), span.bytes) for partition, span in file.spans.items())
            size = sum(size for topic, size in topics if topic not in without and self._catalog.wanted(topic))
            if size:
                found[file.sequence] = size
        return found

    def forget(self, topic: int) -> None:
        """The topic was deleted."""
        self.repairs.forget(topic)
        self.verifications.forget(topic)
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
