"""Producing single records and batches, and consuming single ones. The session coalesces adjacent PRODUCE frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.broker.errors import (
    InvalidArgument,
    PartitionNotFound,
    RecordRejected,
    RecordUnsendable,
    TopicNotFound,
)
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.produce.produce_service import ProducerBatch
from penstock.broker.produce.validation import ProducedPartitioned
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Permission
from penstock.doors.flymq.errors import EndOfLog
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.log.batch import Headers, RecordSlice
from penstock.log.errors import OffsetOutOfRange
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.replies import MAX_CONSUMED

MAX_LIFE_MS: Final = 100 * 366 * 86_400_000


def produce(context: FlyMqContext, request: m.Produce) -> Reply:
    return store(context, request.topic, request.value, request.key, request.partition)


def store(
    context: FlyMqContext,
    topic: str,
    value: bytes,
    key: bytes | None,
    partition: int,
    expires: int | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> Reply:
    """Append one record. The reply has its partition and offset."""
    keys = [key] if key else None
    lives = None if expires is None else [expires]
    produced = append(context, topic, [value], keys, [partition], lives, [tuple(headers)] if headers else None)
    dead_lettered = produced.dead_lettered.get(0)
    written = (topic, produced.partitions[0], produced.offsets[0])
    if dead_lettered is not None:
        written = (topic + SUFFIX, 0, dead_lettered)
    key_size = len(key) if key else m.NO_KEY
    return Reply(m.RecordMetadata(*written, produced.timestamp // 1000, key_size, len(value)), produced.group)


def append(
    context: FlyMqContext,
    topic: str,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int],
    expires: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
    *,
    allow_dead_letters: bool = True,
) -> ProducedPartitioned:
    """Append records of one topic, which is created on first use. `keys`: None if no record has one, so that none are
    stored."""
    append = context.broker.produce.append_partitioned
    identity, scope = context.identity, context.scope
    try:
        return append(
            identity, scope, topic, values, keys, partitions, headers, expires, allow_dead_letters=allow_dead_letters
        )
    except TopicNotFound:
        again = partial(
            append, identity, scope, topic, values, keys, partitions, headers, expires,
            allow_dead_letters=allow_dead_letters,
        )  # fmt: skip
        return _create_and_append(context, topic, values, keys, partitions, again)


def _create_and_append(
    context: FlyMqContext,
    topic: str,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int],
    append: Callable[[], ProducedPartitioned],
) -> ProducedPartitioned:
    """Append to a topic that was missing."""
    check = partial(_check_first, context, topic, values, keys, partitions)
    context.broker.topics.ensure(context.identity, context.scope, topic, prepare=check)
    return append()


def _check_first(
    context: FlyMqContext,
    topic: str,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int],
) -> None:
    """Raise for records that would be refused, before a topic is created for them."""
    context.broker.validator.measure(values, keys)
    for wanted in (max(partitions), min(partitions)):
        if wanted not in (m.ANY_PARTITION, 0):
            raise PartitionNotFound(topic, wanted, 1)


def produce_batch(context: FlyMqContext, request: m.ProduceBatch) -> Reply:
    """All or none: one refused record refuses the batch. Records that become dead letters are reported with offset -1,
    as unsigned."""
    keys = request.keys if any(request.keys) else None
    return _batch_reply(request.topic, append(context, request.topic, request.values, keys, request.partitions))


def produce_records(context: FlyMqContext, request: m.ProduceRecords) -> Reply:
    """As `produce_batch`, with headers, and idempotent if the client is a named producer."""
    topic, values, partitions = request.topic, request.values, request.partitions
    keys = request.keys if any(request.keys) else None
    headers = [tuple(texts) for texts in request.headers] if any(request.headers) else None
    produce, where = context.broker.produce, (context.identity, context.scope, topic)
    context.broker.access.require(context.identity, Permission.WRITE, context.scope, topic)
    if headers is not None:
        context.broker.validator.measure_headers(values, keys, headers)
    if request.producer:
        batch = ProducerBatch(request.producer, request.epoch, request.sequence)
        append = partial(produce.append_once, *where, values, keys, partitions, headers, batch)
    else:
        append = partial(produce.append_partitioned, *where, values, keys, partitions, headers)
    try:
        produced = append()
    except TopicNotFound:
        produced = _create_and_append(context, topic, values, keys, partitions, append)
    return _batch_reply(topic, produced)


def _batch_reply(topic: str, produced: ProducedPartitioned) -> Reply:
    offsets = list(produced.offsets)
    for number in produced.dead_lettered:
        offsets[number] = 2**64 - 1
    reply = m.ProducedBatch(topic, produced.timestamp // 1000, list(produced.partitions), offsets)
    return Reply(reply, produced.group)


def produce_with_schema(context: FlyMqContext, request: m.ProduceWithSchema) -> Reply:
    context.broker.access.require(context.identity, Permission.WRITE, context.scope, request.topic)
    reasons = context.broker.schemas.validate(context.identity, context.scope, request.schema, request.value)
    if reasons:
        raise RecordRejected(reasons)
    return store(context, request.topic, request.value, None, m.ANY_PARTITION)


def produce_with_ttl(context: FlyMqContext, request: m.ProduceWithTtl) -> Reply:
    """Without a TTL in the request, that of the topic applies."""
    if not 0 <= request.ttl_ms <= MAX_LIFE_MS:
        raise InvalidArgument(f"ttl {request.ttl_ms} ms is out of range")
    expires = context.broker.now() + request.ttl_ms * 1000 if request.ttl_ms else None
    return store(context, request.topic, request.value, request.key, request.partition, expires, request.headers)


def produce_delayed(context: FlyMqContext, request: m.ProduceDelayed) -> Reply:
    """The offset in the reply is the id with which the record can be cancelled until it is due."""
    broker = context.broker
    check = partial(_check_first, context, request.topic, [request.value], [request.key], [request.partition])
    broker.topics.ensure(context.identity, context.scope, request.topic, prepare=check)
    record = (request.topic, request.value, request.key, request.partition)
    delayed, group = broker.delays.schedule(
        *(context.identity, context.scope, *record), request.delay_ms * 1000, tuple(request.headers)
    )
    key_size = len(request.key) if request.key else m.NO_KEY
    if isinstance(delayed, int):
        scheduled = (request.topic + SUFFIX, 0, delayed, broker.now() // 1000)
    else:
        scheduled = (request.topic, max(request.partition, 0), delayed.id, delayed.created // 1000)
    return Reply(m.RecordMetadata(*scheduled, key_size, len(request.value)), group)


def cancel_delayed(context: FlyMqContext, request: m.CancelDelayed) -> Reply:
    text = request.message_id
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return Reply(m.Done(), context.broker.delays.cancel(context.identity, context.scope, number))


def consume(context: FlyMqContext, request: m.Consume | m.ConsumeZeroCopy) -> Outcome:
    offset = request.offset
    try:
        plan = context.broker.fetch.plan(
            context.identity, context.scope, request.topic, request.partition, offset, 1, 1
        )
    except OffsetOutOfRange:
        raise EndOfLog from None

    def answer(slices: list[RecordSlice]) -> Reply:
        if not slices or slices[0].base_offset != offset:
            raise EndOfLog
        key, value = slices[0].keys()[0], slices[0].values()[0]
        size = len(key or b"") + len(value)
        if size > MAX_CONSUMED:
            record = RecordUnsendable(offset, size, MAX_CONSUMED)
            context.broker.unsendable.note("flymq", context.peer, request.topic, record)
            raise record
        context.broker.metrics.fetched(1, size, started)
        return Reply(m.Consumed(key, value))

    started = context.broker.metrics.timer()
    return OffloadedReply(context.broker, _reading(plan), answer)


def _reading(plan: VisibleRead) -> Deferred[list[RecordSlice], list[RecordSlice]]:
    return Deferred(plan.run, lambda slices: slices, ready=plan.ready)
