"""PUBLISH: adjacent messages to one topic are appended together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Final

from penstock.broker.errors import RecordRejected, RecordTooLarge, TopicNotFound
from penstock.broker.queues.dequeue import AT_MOST_ONCE
from penstock.doors.blipmq.errors import EXPECTED, publish_refused
from penstock.doors.blipmq.produce_batch import ProduceBatch, Publication
from penstock.doors.blipmq.request_context import SCOPE, BlipMqContext
from penstock.doors.blipmq.single_publish import SinglePublish
from penstock.log.engine import CommitGroup
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
    """Append the messages of adjacent PUBLISH frames, those to one topic together, unless a frame between them must
    keep its order (a refused one, or another QoS or TTL). Success is silent."""
    if len(frames) == 1 and _publish_one(context, frames[0]):
        return
    at = 0
    decode = codec.decode_publish if context.version == 1 else codec.decode_publish_v2
    collected: dict[str, ProduceBatch] = {}  # by topic
    while at < len(frames):
        _, correlation, payload = frames[at]
        fields = decode(payload)
        if fields is None:
            _store(context, collected)
            context.refuse(correlation, INVALID_PUBLISH)
            at += 1
            continue
        prefix = payload[: fields[3]]
        ids, values = codec.collect_publishes(frames, at, prefix)
        publication = context.publications.get(prefix) or _check(context, prefix)
        if publication.refusal is not None or max(map(len, values)) > publication.limit:
            _store(context, collected)
            _store_one_by_one(context, publication, ids, values)
        else:
            batch = collected.get(publication.topic)
            if batch is not None and batch.publication is not publication:
                _store(context, collected)
                batch = None
            if batch is None:
                batch = collected[publication.topic] = ProduceBatch(publication)
            batch.runs.append((at, ids))
            batch.values += values
        at += len(ids)
    _store(context, collected)


def _publish_one(context: BlipMqContext, frame: f.Frame) -> bool:
    """Append the message of a single frame, the fast path for publishers that send one at a time. False, and nothing is
    done, unless this connection has published with the same topic, QoS and TTL before."""
    _, correlation, payload = frame
    fields = codec.decode_publish(payload) if context.version == 1 else codec.decode_publish_v2(payload)
    if fields is None:
        return False
    publication, value = context.publications.get(payload[: fields[3]]), payload[fields[3] :]
    if publication is None or publication.refusal is not None or len(value) > publication.limit:
        return False
    runs = [(0, [correlation])] if publication.qos else []
    try:
        group = _append(context, publication, [value])
    except EXPECTED as error:
        nack = publish_refused(error, context.version)
        if runs or nack.code < INTERNAL_ERROR.code:
            context.refuse(correlation, nack)
    else:
        context.replies.enqueue(b"", group, partial(_failed, context, runs), len(value))
    return True


def _store_one_by_one(context: BlipMqContext, publication: Publication, ids: list[int], values: list[bytes]) -> None:
    """Append messages one by one because some are refused: replies keep the order of the frames."""
    for at, (correlation, value) in enumerate(zip(ids, values, strict=True)):
        if publication.refusal is not None:
            context.refuse(correlation, publication.refusal)
        elif len(value) > publication.limit:
            error = RecordTooLarge(len(value), publication.limit)
            context.refuse(correlation, publish_refused(error, context.version))
        else:
            _store(context, {publication.topic: ProduceBatch(publication, [(at, [correlation])], [value])})


def _store(context: BlipMqContext, collected: dict[str, ProduceBatch]) -> None:
    """Append the collected messages, and clear the collection. Refusals are sent in the order of the frames. A message
    with QoS 0 may be lost: its publisher is not told about failed commits."""
    refused: list[tuple[int, list[int], Nack]] = []
    stored: dict[CommitGroup, list[ProduceBatch]] = {}
    waiting = list(collected.values())
    for batch in waiting:
        try:
            group = _append(context, batch.publication, batch.values)
        except EXPECTED as error:
            if isinstance(error, RecordRejected) and len(batch.values) > 1:
                waiting += batch.split()  # one of them is rejected: each gets its own reply
                continue
            nack = publish_refused(error, context.version)
            if batch.publication.qos or nack.code < INTERNAL_ERROR.code:
                refused += [(at, ids, nack) for at, ids in batch.runs]
        else:
            stored.setdefault(group, []).append(batch)
    collected.clear()
    for group, batches in stored.items():
        size, runs = 0, []
        for batch in batches:
            size += sum(map(len, batch.values))
            if batch.publication.qos:
                runs += batch.runs
        context.replies.enqueue(b"", group, partial(_failed, context, runs), size)
    for _, ids, nack in sorted(refused) if refused else ():
        for correlation in ids:
            context.refuse(correlation, nack)


def _check(context: BlipMqContext, prefix: bytes) -> Publication:
    """Check topic and QoS, in the order of the original. The result is valid for all messages with this prefix."""
    decode = codec.decode_publish if context.version == 1 else codec.decode_publish_v2
    fields = decode(prefix)
    assert fields is not None
    qos, ttl, name, _ = fields
    topic, refusal = context.topic(name, INVALID_PUBLISH)
    if refusal is None and qos not in (0, 1):
        refusal = INVALID_QOS
    publication = Publication(topic, qos, ttl, context.broker.limits.record_bytes, refusal)
    if len(context.publications) >= MAX_PUBLICATIONS:
        context.publications.clear()  # bounds the memory of a client that keeps using new topics
    context.publications[prefix] = publication
    return publication


def _append(context: BlipMqContext, publication: Publication, values: list[bytes]) -> CommitGroup:
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


def _failed(context: BlipMqContext, runs: list[tuple[int, list[int]]], error: Exception) -> bytes:
    nack = publish_refused(error, context.version)
    return b"".join([codec.encode_nack(correlation, *nack) for _, ids in sorted(runs) for correlation in ids])
