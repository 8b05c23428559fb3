"""One RustLog connection: frames in, calls of the broker, frames out, in both dialects.

Requests are carried out strictly in order. Writes do not wait for each other's commits: their replies do. A request
that reads waits until what this connection wrote before it is committed, so that a client that sends without waiting
reads its own writes. How messages look as bytes is the business of the dialects.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.errors import BrokerError, PartitionNotFound, RecordTooLarge, TopicNotFound
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import Identity
from penstock.doors.pipeline import RequestPipeline
from penstock.doors.reply_queue import OnFailure
from penstock.doors.rustlog.errors import EXPECTED, error_reply
from penstock.doors.session import Channel, Door
from penstock.log.batch import RecordSlice
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.wire.rustlog.codec.dialect import JSON, Dialect, detect
from penstock.wire.rustlog.codec.json_dialect import MAX_RECORD
from penstock.wire.rustlog.errors import ProtocolError, closes_connection
from penstock.wire.rustlog.frames import HEADER_SIZE, MAX_FRAME, Framer, frame
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Fetch,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionSummary,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    Request,
    Response,
    TopicSummary,
)

logger = logging.getLogger(__name__)

SCOPE: Final = DEFAULT_SCOPE  # RustLog has no tenants

RUN_BYTES: Final = 1 << 20  # most bytes of requests that are appended as one

_Upcoming: TypeAlias = tuple[Dialect, Request, int]  # a request, how it was written, and its size as a payload


class _ProduceNothing:
    """Stands for a Produce without records in the tables of requests: it only asks where the partition ends."""


class RustLogSession(RequestPipeline):
    def __init__(self, broker: Broker, channel: Channel, identity: Identity) -> None:
        super().__init__(broker, channel, identity)
        self._framer = Framer()
        self._backlog: deque[bytes] = deque()  # payloads not looked at yet
        self._backlog_bytes = 0
        self._next: _Upcoming | None = None  # it has to wait
        self._dialect = JSON  # of the last frame; a frame that cannot be read is told in it
        self._reading = False  # a read is on its way to the disk
        self._singly = 0  # so many Produces to come are not to be appended together
        # Requests that change something, or depend on nothing, need not wait for the writes before them.
        self._writes: dict[type[Any], Callable[[Dialect, Any, int], None]] = {
            Produce: self._produce,
            OffsetCommit: self._offset_commit,
            CreateTopic: self._create_topic,
            Ping: self._ping,
        }
        self._reads: dict[type[Any], Callable[[Dialect, Any], None]] = {
            _ProduceNothing: self._produce_nothing,
            Fetch: self._fetch,
            OffsetFetch: self._offset_fetch,
            ListTopics: self._list_topics,
            DescribeTopic: self._describe_topic,
            DescribePartition: self._describe_partition,
            MetricsFetch: self._metrics_fetch,
        }

    # -- what `RequestPipeline` asks

    def _take(self, data: bytes) -> None:
        payloads = self._framer.feed(data)
        if self._framer.error is not None:
            self._listening = False
        self._backlog.extend(payloads)
        self._backlog_bytes += sum(map(len, payloads))

    @property
    def _idle(self) -> bool:
        return not self._backlog_bytes

    @property
    def _held_input(self) -> int:
        return self._framer.buffered + self._backlog_bytes

    def _forget(self) -> None:
        self._framer = Framer()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._next = None

    def _carry_out(self) -> None:
        """Carry out requests, until there are no more or the next one has to wait."""
        while not self._reading:
            upcoming = self._next or self._decode_next()
            if upcoming is None:
                return
            dialect, request, size = upcoming
            kind: type[Any] = type(request)
            if isinstance(request, Produce) and not request.records:
                kind = _ProduceNothing
            write = self._writes.get(kind)
            if self._must_wait(reads=write is None):
                self._next = upcoming
                return
            self._next = None
            self._backlog_bytes -= size
            try:
                if write is not None:
                    write(dialect, request, size)
                else:
                    self._reads[kind](dialect, request)
            except EXPECTED as error:
                self._refuse(dialect, error, request)
            except Exception as error:
                logger.exception("a request of %s failed", self.channel.peer)
                self._refuse(dialect, error, request)
                self._finish()

    def _decode_next(self) -> _Upcoming | None:
        """The next request. What is none is told so, and skipped."""
        while self._backlog:
            payload = self._backlog.popleft()
            self._dialect = dialect = detect(payload)
            try:
                return dialect, dialect.decode_request(payload), len(payload)
            except ProtocolError as error:
                self._backlog_bytes -= len(payload)
                self._refuse(dialect, error, None)
        if (frame_error := self._framer.error) is not None:
            self._framer.error = None
            self._refuse(self._dialect, frame_error, None)
        return None

    # -- replies

    def _reply(
        self, dialect: Dialect, request: Request, response: Response, group: CommitGroup | None = None, size: int = 0
    ) -> None:
        """Answer after `group`: by default after every change of state that the answer may have seen."""
        data = frame(dialect.encode_response(response))
        after = self.broker.pending_commit if group is None else group
        self.replies.put_after(after, data, self._failure(dialect, request), size)

    def _refuse(self, dialect: Dialect, error: Exception, request: Request | None) -> None:
        topics = self._visible_topics() if isinstance(error, TopicNotFound) else ()
        data = frame(dialect.encode_error(error_reply(error, request, topics)))
        self.replies.put_after(self.broker.pending_commit, data, self._failure(dialect, request))
        if closes_connection(error):
            self._finish()

    @staticmethod
    def _failure(dialect: Dialect, request: Request | None) -> OnFailure:
        return lambda error: frame(dialect.encode_error(error_reply(error, request)))

    def _visible_topics(self) -> Sequence[str]:
        try:
            return [topic.name for topic in self.broker.topics.list(self.identity, SCOPE)]
        except (BrokerError, LogError):
            return ()

    # -- one method for each request

    def _produce(self, dialect: Dialect, request: Produce, size: int) -> None:
        """Append the records of this request, and with them those of the requests behind it that go to the same place:
        each one's records stay together, and a client that sends without waiting costs one append for many requests."""
        if self._backlog and not self._singly:
            more = dialect.more_produces(request, self._backlog, RUN_BYTES - size)
            if more:
                following = [len(self._backlog[number]) for number in range(len(more))]
                try:
                    self._append(dialect, request, [request.records, *more], size + sum(following))
                except EXPECTED:
                    self._singly = len(more)  # one of them is at fault, or all are: each gets its own answer
                else:
                    self._backlog_bytes -= sum(following)
                    for _ in more:
                        self._backlog.popleft()
                    return
        if self._singly:
            self._singly -= 1
        self._append(dialect, request, [request.records], size)

    def _append(self, dialect: Dialect, request: Produce, run: list[list[bytes]], size: int) -> None:
        values = run[0] if len(run) == 1 else list(chain.from_iterable(run))
        if size > MAX_RECORD and (largest := max(map(len, values))) > MAX_RECORD:
            raise RecordTooLarge(largest, MAX_RECORD)  # it could not be fetched, whatever the broker's own limit is
        appended = self.broker.produce.append(
            self.identity, SCOPE, request.topic, request.partition, values, allow_dead_letters=len(values) == 1
        )
        counts = list(map(len, run))
        if len(appended.base_offsets) > 1:
            counts = [0]  # it became a dead letter, and is none of the topic's records
        replies = dialect.encode_produced(appended.base_offsets[0], counts)

        def failed(error: Exception) -> bytes:
            return frame(dialect.encode_error(error_reply(error, request))) * len(run)

        self.replies.put_after(appended.group, replies, failed, size)

    def _produce_nothing(self, dialect: Dialect, request: Produce) -> None:
        end = self.broker.topics.end_offset(self.identity, SCOPE, request.topic, request.partition)
        self._reply(dialect, request, ProduceResponse(end, 0))

    def _create_topic(self, dialect: Dialect, request: CreateTopic, size: int) -> None:
        count = request.partition_count
        _, group = self.broker.topics.create(self.identity, SCOPE, request.topic, count)
        self._reply(dialect, request, CreateTopicResponse(True, count), group, size)

    def _offset_commit(self, dialect: Dialect, request: OffsetCommit, size: int) -> None:
        try:
            group = self.broker.groups.commit(
                self.identity,
                SCOPE,
                request.group,
                request.topic,
                request.partition,
                request.offset,
                topic_must_exist=dialect.reports_unknown_commit,
            )
        except (TopicNotFound, PartitionNotFound):
            self._reply(dialect, request, OffsetCommitResponse(False))
        else:
            self._reply(dialect, request, OffsetCommitResponse(True), group, size)

    def _ping(self, dialect: Dialect, _request: Ping, _size: int) -> None:
        self.replies.put(frame(dialect.encode_response(Pong())))

    def _fetch(self, dialect: Dialect, request: Fetch) -> None:
        started = self.broker.metrics.timer()
        offset = request.offset
        if request.group_id and dialect.fetch_uses_committed_offset:
            committed = self.broker.groups.committed(
                self.identity, SCOPE, request.group_id, request.topic, request.partition
            )
            if committed is None:
                self._reply(dialect, request, FetchResponse([], 0))
                return
            offset = committed
        limit = dialect.read_limit(request.max_bytes)
        try:
            plan = self.broker.fetch.plan(self.identity, SCOPE, request.topic, request.partition, offset, *limit)
        except OffsetOutOfRange:
            if dialect.reports_out_of_range:
                raise
            self._reply(dialect, request, FetchResponse([], offset))
            return
        read = _Read(plan, dialect, request, offset, started)
        if plan.ready:
            read.run()
            if not read.goes_on():
                self.replies.put_after(self.broker.pending_commit, self._fetched(read), self._failure(dialect, request))
                return
        self._read_aside(read)

    def _read_aside(self, read: _Read) -> None:
        """Read from the disk, or in several steps, while the loop does something else."""
        slot = self.replies.reserve()
        self._reading = True
        seen = self.broker.pending_commit  # changes of state that decide what is delivered

        def done() -> None:
            if not self._closed and read.goes_on():
                self.broker.executor(read.run, done)
            elif seen is None:
                conclude(None)
            else:
                seen.on_done(conclude)

        def conclude(seen: CommitGroup | None) -> None:
            self._reading = False
            if not self._closed:
                if seen is not None and seen.error is not None:
                    read.error = seen.error
                slot.fill(self._fetched(read))
                self.progress()

        self.broker.executor(read.run, done)

    def _fetched(self, read: _Read) -> bytes:
        """The reply to a Fetch whose records have been read."""
        dialect, request = read.dialect, read.request
        if read.error is not None:
            if not isinstance(read.error, EXPECTED):
                logger.error("a read for %s failed", self.channel.peer, exc_info=read.error)
            return frame(dialect.encode_error(error_reply(read.error, request)))
        self.broker.metrics.fetched(read.count, read.byte_size, read.started)
        if request.group_id:
            self.broker.fetch_positions.note(
                SCOPE, request.group_id, request.topic, request.partition, read.next_offset
            )
        return read.reply

    def _offset_fetch(self, dialect: Dialect, request: OffsetFetch) -> None:
        offset = self.broker.groups.committed(self.identity, SCOPE, request.group, request.topic, request.partition)
        self._reply(dialect, request, OffsetFetchResponse(offset))

    def _list_topics(self, dialect: Dialect, request: ListTopics) -> None:
        topics = self.broker.topics.list(self.identity, SCOPE)
        response = ListTopicsResponse([TopicSummary(topic.name, topic.partitions) for topic in topics])
        self._reply(dialect, request, response)

    def _describe_topic(self, dialect: Dialect, request: DescribeTopic) -> None:
        described = self.broker.topics.describe(self.identity, SCOPE, request.topic)
        partitions = [PartitionSummary(*partition) for partition in described.partitions]
        self._reply(dialect, request, DescribeTopicResponse(request.topic, partitions))

    def _describe_partition(self, dialect: Dialect, request: DescribePartition) -> None:
        described = self.broker.topics.describe_partition(self.identity, SCOPE, request.topic, request.partition)
        self._reply(dialect, request, DescribePartitionResponse(request.topic, *described))

    def _metrics_fetch(self, dialect: Dialect, request: MetricsFetch) -> None:
        self._reply(dialect, request, MetricsFetchResponse(self.broker.metrics_text(self.identity)))


class _Read:
    """A Fetch on its way: what it needs, and what it found. `run` may be called on any thread."""

    __slots__ = ("byte_size", "count", "dialect", "error", "next_offset", "plan", "reply", "request", "started")

    def __init__(self, plan: VisibleRead, dialect: Dialect, request: Fetch, offset: int, started: int) -> None:
        self.plan = plan
        self.dialect = dialect
        self.request = request
        self.started = started
        self.reply = b""
        self.next_offset = offset
        self.count = 0  # of the records in the reply
        self.byte_size = 0  # of these
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            slices = self.plan.run()
            payload = self.dialect.encode_fetch(slices, self.plan.end, self.request.max_bytes)
            self.next_offset = self.dialect.next_offset(payload)
            self.count, self.byte_size = _measure(slices, self.next_offset)
            self.reply = frame(payload)
        except Exception as error:  # noqa: BLE001 - told to the client, and logged, by whoever takes the reply
            self.error = error

    def goes_on(self) -> bool:
        """Whether there is more to be read, because all that was read had expired. Then `run` once more."""
        continuation = None if self.error is not None else self.plan.continuation()
        if continuation is not None:
            self.plan = continuation
        return continuation is not None


def _measure(slices: Sequence[RecordSlice], end: int) -> tuple[int, int]:
    """How many records there are below `end`, and how many bytes."""
    count = size = 0
    for part in slices:
        if part.end_offset <= end:
            count += len(part)
            size += part.byte_size()
        elif part.base_offset < end:
            count += end - part.base_offset
            size += sum(map(len, part.values()[: end - part.base_offset]))
    return count, size


DOOR: Final = Door("rustlog", RustLogSession, MAX_FRAME + HEADER_SIZE)
