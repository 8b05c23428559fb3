"""One publication in progress: its staged files are read, validated and appended.

A small one is a single entry of the log. A large one begins with an entry that records its start, followed by several
entries that each hold records and the progress so far. Once it has begun, the broker finishes it, whatever happens to
the client, the disk or the process. Files are read off the broker's thread, one step ahead; steps are small, so that
the event loop is never blocked for long.

Records must match the schema of their topic at the time they are appended. Those of a large publication are validated
before it begins, while they can still be rejected. If the schema has changed since, they are validated again, and
become dead letters if they do not match.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.broker.errors import BrokerError, RecordRejected, RecordTooLarge, StagedNotFound, TopicNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.produce.validation import RecordValidator, ValidatedRecords
from penstock.broker.publications.publication import Running
from penstock.broker.publications.staging import CHECKED_RECORDS, Chunk, Manifest, Staging
from penstock.broker.runtime.executor import Deferred, Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.schemas.schema import Schema
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import AnyEvent, PublicationAdvanced, PublicationStarted, Published, TopicCreated
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.log.batch import HEADERS, KEYS, MAX_BATCH_BYTES, Batch
from penstock.log.columns import Columns
from penstock.log.doors import FLIGHT
from penstock.log.engine import CommitGroup, GroupState, Prepared, Write, partition_id
from penstock.log.errors import EntryTooLarge, LogError

logger = logging.getLogger(__name__)

STEP_BYTES: Final = 2 << 20  # of an entry of a large publication; building it blocks the event loop
EVENT_BYTES: Final = 1024  # upper bound for the event at the end of an entry
CHECKED_WEIGHT: Final = STEP_BYTES // CHECKED_RECORDS  # validating a record costs about as much as this many bytes


class Publishing:
    """A request to publish. `outcome` is done when everything is in the log, or has failed with an error."""

    __slots__ = ("batch", "identity", "key", "once", "outcome", "refs", "repeated", "rows", "scope")

    def __init__(
        self, identity: Identity, scope: Scope, key: bytes, batch: int, refs: Sequence[str], *, once: bool
    ) -> None:
        self.identity = identity
        self.scope = scope
        self.key = key
        self.batch = batch
        self.refs = list(refs)
        self.once = once
        self.outcome = CommitGroup()
        self.rows = 0
        self.repeated = False  # already published: the first reply had the number of rows


@dataclass(frozen=True, slots=True)
class PublishContext:
    """The services that a publication needs."""

    state_log: StateLog
    access: Access
    validator: RecordValidator
    staging: Staging
    limits: Limits
    metrics: Metrics
    clock: Callable[[], int]
    executor: Executor


class _Part(NamedTuple):
    ref: str
    chunk: Chunk


class _Writes(NamedTuple):
    writes: list[Write]
    created: list[TopicCreated]
    rows: int
    size: int  # of all keys and values
    dead_lettered: int


class PublicationRun:
    """One publication. `ended` is called once, with None if everything is committed."""

    def __init__(
        self,
        context: PublishContext,
        key: bytes,
        ended: Callable[[PublicationRun, Exception | None], None],
        *,
        request: Publishing | None = None,
        running: Running | None = None,
    ) -> None:
        """Give either a client's `request`, or `running`: a publication that has begun, according to the state."""
        goal = request or running
        assert goal is not None
        self._context = context
        self._ended = ended
        self.key = key
        self.batch = goal.batch
        self.refs = list(goal.refs)
        self.once = goal.once
        self.request = request
        self._tenant = "" if request is None else request.scope.tenant  # of a resumed one, the state has it
        self.behind: list[Publishing] = []  # requests that wait for it to end
        self.begun = running is not None  # its start is in the log, so it has to be finished
        self.rows = 0
        self._parts: list[_Part] = []
        self._checked: dict[int, Schema | None] = {}  # topic → the schema that all its records are known to match
        self._read: tuple[int, int, list[Columns]] | None = None  # range of parts read ahead, and their columns
        self._fetching = self._committing = False
        self._over = False

    def start(self) -> None:
        staging, refs = self._context.staging, self.refs
        self._work(lambda: [staging.manifest(ref) for ref in refs], self._found)

    # -- steps

    def _work(self, work: Callable[[], object], conclude: Callable[..., None]) -> None:
        """Run `work` off the loop, then `conclude` with its result; an error ends the run."""
        found = Deferred(work, conclude)
        self._context.executor(found.run, lambda: None if self._over else self._guard(found.finish))

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (BrokerError, LogError, OSError) as error:
            self._end(error)
        except Exception as error:
            logger.exception("a publication failed because of an error in the broker")
            self._end(error)

    def _found(self, manifests: list[Manifest]) -> None:
        state = self._context.state_log.current()
        if not self.begun:
            self._check_topics(state, manifests)
        for ref, manifest in zip(self.refs, manifests, strict=True):
            self._parts += [_Part(ref, chunk) for chunk in manifest.chunks]
            self.rows += manifest.rows
        if self.begun:
            self._go_on()
            return
        weight = sum(self._weight(state, part.chunk) for part in self._parts)
        if weight <= self._max_bytes(self._context.limits.publication_entry_bytes):
            self._fetch(0, len(self._parts), self._append_all)
        else:
            self._check(0)

    def _max_bytes(self, wanted: int) -> int:
        """The most bytes of records in one entry, leaving room for its event."""
        return min(wanted, self._context.state_log.engine.entry_bytes - EVENT_BYTES)

    def _check_topics(self, state: State, manifests: Sequence[Manifest]) -> None:
        """Check permissions again, and that the topics are the ones the records were staged for."""
        request, max_bytes = self.request, self._max_bytes(MAX_BATCH_BYTES)
        assert request is not None
        self._context.validator.check_room(request.scope.tenant)  # only now: a publication that has begun is finished
        topics = {number: name for manifest in manifests for number, name in manifest.topics.items()}
        for name in sorted(set(topics.values())):
            self._context.access.require(request.identity, Permission.WRITE, request.scope, name)
        for number, name in topics.items():
            found = state.topics_by_id.get(number)
            if found is None or found.scope != request.scope:
                raise TopicNotFound(name)
        largest = max((chunk.size for manifest in manifests for chunk in manifest.chunks), default=0)
        if largest > max_bytes:
            raise EntryTooLarge(f"records of {largest} bytes that cannot be parted; the log takes {max_bytes} at once")

    def _check(self, first: int) -> None:
        """Validate all records whose topic has a schema before the publication begins: afterwards none can be
        rejected.
        """
        state = self._context.state_log.current()
        while first < len(self._parts) and _topic(state, self._parts[first]) is None:
            self._checked[self._parts[first].chunk.topic] = None  # it may get a schema before everything is appended
            first += 1
        if first == len(self._parts):
            self._begin()
            return

        def check(first: int, end: int, columns: list[Columns]) -> None:
            assert end == first + 1
            if (topic := _topic(self._context.state_log.current(), self._parts[first])) is not None:
                admitted = self._admit(topic, self._parts[first].chunk, columns[0], ())
                self._note_checked(topic, fitting=not admitted.dead_lettered)
            self._check(end)

        self._fetch(first, first + 1, check)

    def _note_checked(self, topic: Topic, *, fitting: bool) -> None:
        """Note the result of a validation. It need not be repeated if all records of the topic matched one and the same
        schema.
        """
        schema = self._context.validator.schema(topic)
        same = self._checked.setdefault(topic.id, schema) is schema
        if not fitting or not same:
            self._checked[topic.id] = None

    def _begin(self) -> None:
        limits, now = self._context.limits, self._context.clock()
        kept, tenant = limits.publishing_apps, self._tenant
        event = PublicationStarted(self.key, self.batch, now, kept, self.refs, self.once, tenant)
        self._context.state_log.commit((event,))
        self.begun = True
        self._go_on()

    def _go_on(self) -> None:
        """Append the next step, once the last one is committed and its files are read."""
        if self._committing or self._fetching:
            return
        running = self._running()
        if self._read is None:
            self._fetch_step(running.done)
            return
        first, end, columns = self._read
        assert first == running.done, "nobody else takes steps of this publication"
        self._read = None
        last = end == len(self._parts)
        event: AnyEvent = PublicationAdvanced(self.key, end)
        if last:
            kept = self._context.limits.publishing_apps
            event = Published(self.key, self.batch, self._context.clock(), kept, self.once, self._tenant)
        self._append(first, end, columns, [event], last=last)
        if not last:
            self._fetch_step(end)

    def _running(self) -> Running:
        found = self._context.state_log.current().publications.get(self.key)
        if found is None or found.running is None or found.running.batch != self.batch:
            raise BrokerError("the publication was taken back")  # its group failed; the request may be repeated
        return found.running

    def _fetch_step(self, first: int) -> None:
        state = self._context.state_log.current()
        end, weight, max_bytes = first, 0, self._max_bytes(STEP_BYTES)
        while end < len(self._parts):
            weight += self._weight(state, self._parts[end].chunk)
            if weight > max_bytes and end > first:
                break
            end += 1
        self._fetching = True

        def fetched(first: int, end: int, columns: list[Columns]) -> None:
            self._fetching = False
            self._read = (first, end, columns)
            self._go_on()

        self._fetch(first, end, fetched)

    def _fetch(self, first: int, end: int, then: Callable[[int, int, list[Columns]], None]) -> None:
        staging, places = self._context.staging, [(part.ref, part.chunk) for part in self._parts[first:end]]
        self._work(lambda: staging.read(places), lambda columns: then(first, end, columns))

    # -- appending

    def _append_all(self, first: int, end: int, columns: list[Columns]) -> None:
        kept = self._context.limits.publishing_apps
        published = Published(self.key, self.batch, self._context.clock(), kept, tenant=self._tenant)
        events = [] if self.once else [published]
        self._append(first, end, columns, events, last=True)

    def _append(self, first: int, end: int, columns: list[Columns], events: Sequence[AnyEvent], *, last: bool) -> None:
        context = self._context
        started = context.metrics.timer()
        found = self._writes(context.state_log.current(), self._parts[first:end], columns)
        group = context.state_log.append(found.writes, [*found.created, *events], door=FLIGHT).group
        self._committing = True
        if found.rows:
            context.metrics.produced(group, found.rows, found.size, started)
        context.metrics.records_diverted += found.dead_lettered
        group.on_done(lambda group: self._settled(group, last=last))

    def _settled(self, group: CommitGroup, *, last: bool) -> None:
        self._committing = False
        if self._over:
            return
        if group.state is GroupState.FAILED:
            self._end(group.error)
        elif last:
            self._end(None)
        else:
            self._guard(self._go_on)

    def _writes(self, state: State, parts: Sequence[_Part], columns: Sequence[Columns]) -> _Writes:
        """The writes of a step. Records of a topic that was deleted meanwhile are dropped."""
        writes: list[Write] = []
        created: list[TopicCreated] = []
        rows = size = dead_lettered = 0
        for part, found in zip(parts, columns, strict=True):
            chunk = part.chunk
            topic = state.topics_by_id.get(chunk.topic)
            if topic is None and not self.begun:
                raise TopicNotFound(str(chunk.topic))
            if topic is None:
                continue
            rows += found.count
            size += found.key_bytes + found.value_bytes
            if self._to_check(topic):
                admitted = self._admit(topic, chunk, found, created)
                writes += admitted.writes
                created += admitted.events
                dead_lettered += len(admitted.dead_lettered)
            else:
                writes.append(Prepared(partition_id(topic.id, chunk.partition), found))
        return _Writes(writes, created, rows, size, dead_lettered)

    def _admit(self, topic: Topic, chunk: Chunk, columns: Columns, coming: Sequence[TopicCreated]) -> ValidatedRecords:
        """Validate records like any client's; once the publication has begun, as accepted ones: see
        `RecordValidator`.
        """
        validator = self._context.validator
        count = columns.count
        batch = Batch(columns.build(0, 0, 0, bytes(8 * count), 0, 0))
        keys = batch.keys(0, count) if columns.flags & KEYS else None
        headers = batch.headers(0, count) if columns.flags & HEADERS else None
        expires = batch.expires()
        return (validator.place_accepted if self.begun else validator.validate)(
            topic,
            [chunk.partition] * count,
            batch.values(0, count),
            keys,
            headers,
            None if expires is None else expires.tolist(),
            coming=coming,
        )

    def _to_check(self, topic: Topic) -> bool:
        """Whether records of the topic are validated when they are appended. Once the publication has begun, only if
        they were not validated before with the current schema.
        """
        if topic.settings.schema is None:
            return False
        known = self._checked.get(topic.id) if self.begun else None
        return known is None or self._context.validator.schema(topic) is not known

    def _weight(self, state: State, chunk: Chunk) -> int:
        """The cost of a chunk, in bytes of records without validation."""
        topic = state.topics_by_id.get(chunk.topic)
        if topic is None or not self._to_check(topic):
            return chunk.size
        return max(chunk.size, chunk.count * CHECKED_WEIGHT)

    def _end(self, error: Exception | None) -> None:
        self._over = True
        self._read = None
        self._ended(self, error)


def _topic(state: State, part: _Part) -> Topic | None:
    """The part's topic, if its records are to be validated."""
    topic = state.topics_by_id.get(part.chunk.topic)
    return None if topic is None or topic.settings.schema is None else topic


FINAL: Final = (StagedNotFound, EntryTooLarge, RecordRejected, RecordTooLarge)
"""Errors of a publication that has begun for which a retry is useless."""
