"""SUBSCRIBE: a new queue of what is published to a topic from now on."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.doors.blipmq.request_context import SCOPE, BlipMqContext
from penstock.doors.reply import Reply
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INVALID_QOS, INVALID_SUBSCRIBE


def subscribe(context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply | None:
    _, correlation, payload = frames[0]
    fields = codec.decode_subscribe(payload)
    topic, refusal = ("", INVALID_SUBSCRIBE) if fields is None else context.topic(fields[0], INVALID_SUBSCRIBE)
    if refusal is None and fields is not None and fields[1] not in (0, 1):
        refusal = INVALID_QOS
    if refusal is not None or fields is None:
        context.refuse(correlation, refusal or INVALID_SUBSCRIBE)
        return None
    queue, group = context.broker.queues.create(context.identity, SCOPE, topic, at_least_once=fields[1] == 1)
    context.written = group
    if context.version == 2:
        context.pushes.start(context.identity, queue.id)
    return Reply(codec.encode_ack(correlation, queue.id), group)
