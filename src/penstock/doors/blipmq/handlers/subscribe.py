"""SUBSCRIBE: a queue of messages published to a topic from now on, either new or an existing one by name."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.queues.queue import QueueTerms
from penstock.doors.blipmq.request_context import SCOPE, BlipMqContext
from penstock.doors.reply import Reply
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INVALID_QOS, INVALID_SUBSCRIBE


def subscribe(context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply | None:
    _, correlation, payload = frames[0]
    fields = codec.decode_subscribe(payload)
    topic, refusal = ("", INVALID_SUBSCRIBE) if fields is None else context.topic(fields[0], INVALID_SUBSCRIBE)
    if refusal is None and fields is not None and fields[1] not in (0, 1, codec.NAMED | 1):
        refusal = INVALID_QOS
    terms = None
    if refusal is None and fields is not None and fields[1] & codec.NAMED:
        terms = _terms(payload)
        refusal = INVALID_SUBSCRIBE if terms is None else None
    if refusal is not None or fields is None:
        context.refuse(correlation, refusal or INVALID_SUBSCRIBE)
        return None
    queues, where = context.broker.queues, (context.identity, SCOPE, topic)
    queue, group = queues.create(*where, at_least_once=fields[1] == 1) if terms is None else queues.named(*where, terms)
    context.written = group
    if context.version == 2:
        context.pushes.start(context.identity, queue.id)
    return Reply(codec.encode_ack(correlation, queue.id), group)


def _terms(payload: bytes) -> QueueTerms | None:
    """The name and the terms of a named queue; None if they are malformed."""
    fields = codec.decode_queue_terms(payload)
    if fields is None or not fields[0] or not fields[2]:
        return None
    lease, attempts, name = fields
    try:
        return QueueTerms(name.decode(), lease * 1000, attempts)
    except UnicodeDecodeError:
        return None
