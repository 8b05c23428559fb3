"""Publishing: neighbouring requests to one stream are appended as one, and acknowledged when that is committed.

A client that does not wait for acknowledgements costs one append and one reply for all requests of a batch. If they are
refused together, the session executes each alone, so that each gets its own reply.
"""

from __future__ import annotations

from penstock.broker.errors import TopicNotFound
from penstock.broker.security.access import Permission
from penstock.doors.felix.errors import RequestRefused
from penstock.doors.felix.produce_batch import ProduceBatch
from penstock.doors.felix.request_context import FelixContext
from penstock.doors.felix.stream_names import ensure_topic, locate
from penstock.doors.reply import Reply
from penstock.log.engine import Appended
from penstock.wire.felix.codec.binary import MAX_PAYLOADS


def publish(context: FelixContext, batch: ProduceBatch) -> Reply:
    several = len(batch.publications) > 1
    _check(batch, original=context.original)
    tenant, namespace, stream = batch.names
    scope = context.scope(tenant, namespace, len(batch.publications))
    topic, partition = locate(context, scope, stream, Permission.WRITE)
    reply = batch.acknowledgement(context.dialect)
    if not batch.values:
        context.broker.access.require(context.identity, Permission.WRITE, scope, topic)
        return Reply(reply)

    def produce() -> Appended:
        return context.broker.produce.append(
            context.identity, scope, topic, partition or 0, batch.values, allow_dead_letters=not several
        )

    try:
        appended = produce()
    except TopicNotFound:
        ensure_topic(context, scope, topic, Permission.WRITE)
        appended = produce()
    return Reply(reply, appended.group)


def _check(batch: ProduceBatch, *, original: bool) -> None:
    """The original's clients tell acknowledgements apart by nothing but their ids."""
    for publication in batch.publications:
        if original and publication.acked and publication.request_id is None:
            raise RequestRefused(f"missing request_id for acked {publication.request_name}")
        if (count := len(publication.values)) > MAX_PAYLOADS:
            raise RequestRefused(f"a batch of {count} payloads; the most is {MAX_PAYLOADS}: send several")
