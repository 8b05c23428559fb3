"""PUBLISH, and PING behind it: adjacent messages to one topic are appended together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Final

from penstock.broker.errors import RecordRejected, RecordTooLarge, TopicNotFound
from penstock.broker.queues.dequeue import AT_MOST_ONCE
from penstock.doors.blipmq.errors import EXPECTED, publish_refused
from penstock.doors.blipmq.produce_batch import ProduceBatch, PublishProperties
from penstock.doors.blipmq.request_context import SCOPE, BlipMqContext
from penstock.doors.blipmq.single_publish import SinglePublish
from penstock.log.engine import COMMITTED, CommitGroup
from penstock.wire.blipmq import codec, messages
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INTERNAL_ERROR, INVALID_PUBLISH, INVALID_QOS, Nack

PARTITION: Final = 0  # of all messages, so that a publisher's messages on a topic stay in order
MAX_PUBLICATIONS: Final = 1024  # cached for one connection


def publish_single(context: BlipMqContext, request: SinglePublish) -> None:
    """Append a message that arrived alone. A topic that does not exist yet, or has a schema, takes the same way as
    other messages."""
    group: CommitGroup | None = None
    try:
        group, _, _, _ = context.broker.produce.append_record(
            context.identity, SCOPE, request.topic, request.value, PARTITION
        )
    except TopicNotFound:
        publish(context, [request.frame()])
    except EXPECTED as error:
        context.refuse(request.correlation, publish_refused(error, context.version))
    else:
        if group is None:
            publish(context, [request.frame()])
    if group is not None:
        context.written = group
        on_failure = partial(_single_failed, context, request.correlation, request.pong)
        context.replies.enqueue(request.pong, group, on_failure, len(request.value))
    elif request.pong:
        context.replies.enqueue(request.pong)


def _single_failed(context: BlipMqContext, correlation: int, pong: bytes, error: Exception) -> bytes:
    return codec.encode_nack(correlation, *publish_refused(error, context.version)) + pong


def publish(context: BlipMqContext, frames: Sequence[f.Frame]) -> None:
    """Append the messages of adjacent PUBLISH frames, and answer the PING frames between and behind them."""
    PublishRun(context, frames).execute()


class PublishRun:
    """Adjacent PUBLISH and PING frames, executed together. Messages to one topic are appended together, unless one with
    another QoS or TTL comes between them. Success is silent. The replies, NACKs and PONGs in the order of the frames,
    wait for the commit of all messages; those that fail get a NACK in their place."""

    __slots__ = ("_after", "_batches", "_context", "_frames", "_held", "_replies", "_stored")

    def __init__(self, context: BlipMqContext, frames: Sequence[f.Frame]) -> None:
        self._context = context
        self._frames = frames
        self._replies = codec.encode_pongs(frames)  # to each frame
        self._batches: dict[str, ProduceBatch] = {}  # not appended yet, by topic
        self._stored: dict[CommitGroup, list[int]] = {}  # the indexes of messages that get a NACK if the group fails
        self._after: CommitGroup | None = None  # the last of these groups
        self._held = 0  # bytes of the messages in them

    def execute(self) -> None:
        frames, at = self._frames, 0
        while at < len(frames):
            at = self._collect(at) if frames[at][0] == f.PUBLISH else at + 1
        for batch in self._batches.values():
            self._append(batch)
        data, on_failure = b"".join(self._replies), None
        if self._after is not None:
            ids = [frame[1] for frame in frames]  # without their payloads, which need not stay in memory
            on_failure = partial(_failed, self._context.version, ids, self._replies, self._stored)
        self._context.replies.enqueue(data, self._after, on_failure, self._held)

    def _collect(self, at: int) -> int:
        """Add messages to the batch of their topic: those from this frame on, up to the first with another topic, QoS
        or TTL. Returns the index of that."""
        context, payload = self._context, self._frames[at][2]
        fields = codec.decode_publish(payload) if context.version == 1 else codec.decode_publish_v2(payload)
        if fields is None:
            self._refuse(at, INVALID_PUBLISH)
            return at + 1
        prefix = payload[: fields[3]]
        publication = context.publications.get(prefix) or _check(context, prefix)
        indexes, values, end = codec.collect_publishes(self._frames, at, prefix)
        if publication.refusal is not None:
            for index in indexes:
                self._refuse(index, publication.refusal)
            return end
        if max(map(len, values)) > publication.limit:
            indexes, values = self._refuse_too_large(publication.limit, indexes, values)
        batch = self._batches.get(publication.topic)
        if batch is None:
            self._batches[publication.topic] = ProduceBatch(publication, indexes, values)
        elif batch.publication is publication:
            batch.indexes += indexes
            batch.values += values
        else:
            self._append(batch)
            self._batches[publication.topic] = ProduceBatch(publication, indexes, values)
        return end

    def _refuse_too_large(self, limit: int, indexes: list[int], values: list[bytes]) -> tuple[list[int], list[bytes]]:
        """Refuse the values above the limit. Returns the others."""
        fitting: list[int] = []
        for index, value in zip(indexes, values, strict=True):
            if len(value) > limit:
                self._refuse(index, publish_refused(RecordTooLarge(len(value), limit), self._context.version))
            else:
                fitting.append(index)
        return fitting, [value for value in values if len(value) <= limit]

    def _refuse(self, index: int, nack: Nack) -> None:
        self._replies[index] = codec.encode_nack(self._frames[index][1], *nack)

    def _append(self, batch: ProduceBatch) -> None:
        """A message with QoS 0 may be lost: its publisher is not told about failures of the log."""
        publication, values = batch.publication, batch.values
        if not values:
            return
        try:
            group = _append(self._context, publication, values)
        except EXPECTED as error:
            if isinstance(error, RecordRejected) and len(values) > 1:
                for single in batch.split():  # one of them is rejected: each gets its own reply
                    self._append(single)
                return
            nack = publish_refused(error, self._context.version)
            if publication.qos or nack.code < INTERNAL_ERROR.code:
                for index in batch.indexes:
                    self._refuse(index, nack)
            return
        self._after = group
        self._held += sum(map(len, values))
        acknowledged = batch.indexes if publication.qos else []
        if group in self._stored:
            self._stored[group] += acknowledged
        else:
            self._stored[group] = acknowledged


def _failed(
    version: int, ids: list[int], replies: list[bytes], stored: dict[CommitGroup, list[int]], error: Exception
) -> bytes:
    """The replies of a run whose last group failed. An earlier one may be committed; if it failed, so did all later
    ones."""
    for group, indexes in stored.items():
        if group.state is not COMMITTED:
            nack = publish_refused(group.error or error, version)
            for index in indexes:
                replies[index] = codec.encode_nack(ids[index], *nack)
    return b"".join(replies)


def _check(context: BlipMqContext, prefix: bytes) -> PublishProperties:
    """Check topic and QoS, in the order of the original. The result is valid for all messages with this prefix."""
    decode = codec.decode_publish if context.version == 1 else codec.decode_publish_v2
    fields = decode(prefix)
    assert fields is not None
    qos, ttl, name, _ = fields
    topic, refusal = context.topic(name, INVALID_PUBLISH)
    if refusal is None and qos not in (0, 1):
        refusal = INVALID_QOS
    publication = PublishProperties(topic, qos, ttl, context.broker.limits.record_bytes, refusal)
    if len(context.publications) >= MAX_PUBLICATIONS:
        context.publications.clear()  # bounds the memory of a client that keeps using new topics
    context.publications[prefix] = publication
    return publication


def _append(context: BlipMqContext, publication: PublishProperties, values: list[bytes]) -> CommitGroup:
    broker, identity, topic = context.broker, context.identity, publication.topic
    headers = list(repeat(AT_MOST_ONCE, len(values))) if publication.qos == 0 else None
    expires = None
    if publication.ttl != messages.NO_TTL:
        expires = [max(broker.now() + publication.ttl * 1000, 1)] * len(values)
    append = broker.produce.append
    try:
        appended = append(identity, SCOPE, topic, PARTITION, values, None, headers, expires)
    except TopicNotFound:
        broker.topics.ensure(identity, SCOPE, topic)
        appended = append(identity, SCOPE, topic, PARTITION, values, None, headers, expires)
    context.written = appended.group
    return appended.group
