"""Publishing: adjacent requests to one stream are appended together, and acknowledged after the commit.

For a client that does not wait for acknowledgements, all requests of a batch cost one append and one reply. If the
batch is refused, the session executes its requests one by one, so that each gets its own reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.errors import PartitionNotFound, TopicNotFound
from penstock.broker.names import Scope
from penstock.broker.security.access import WRITE
from penstock.doors.felix.errors import TOO_MUCH, RequestRefused
from penstock.doors.felix.produce_batch import ProduceBatch, PublishRequest
from penstock.doors.felix.request_context import FelixContext
from penstock.doors.felix.stream_names import StreamTarget, ensure_topic, locate
from penstock.doors.reply import Reply
from penstock.wire.felix.codec.binary import MAX_PAYLOADS
from penstock.wire.felix.routing import shard_for


def publish(context: FelixContext, batch: ProduceBatch) -> Reply:
    _check(batch, original=context.original)
    tenant, namespace, stream = batch.names
    scope = context.scope(tenant, namespace, len(batch.publications))
    target = locate(context, scope, stream, WRITE)
    values = batch.values()
    if not values:
        context.broker.access.require(context.identity, WRITE, scope, target.topic)
        return Reply(batch.acknowledgement(context.dialect))
    append = _append_directed if batch.directed else _append
    try:
        return append(context, batch, values, scope, target)
    except TopicNotFound:
        ensure_topic(context, scope, target.topic, WRITE)
        return append(context, batch, values, scope, target)


def _append(
    context: FelixContext, batch: ProduceBatch, values: Sequence[bytes], scope: Scope, target: StreamTarget
) -> Reply:
    """Append all values to one partition."""
    appended = context.broker.produce.append(
        context.identity, scope, target.topic, target.partition or 0, values,
        allow_dead_letters=len(batch.publications) == 1,
    )  # fmt: skip
    offsets = appended.base_offsets
    offset = offsets[0] if len(offsets) == 1 else None  # dead letters have other offsets
    return Reply(batch.acknowledgement(context.dialect, offset), appended.group)


def _append_directed(
    context: FelixContext, batch: ProduceBatch, values: Sequence[bytes], scope: Scope, target: StreamTarget
) -> Reply:
    """Append each publication to the partition that it names, or else to the one for its key, as one log entry."""
    broker = context.broker
    broker.access.require(context.identity, WRITE, scope, target.topic)
    count = broker.topics.partition_count(scope, target.topic)
    keys: list[bytes | None] = []
    partitions: list[int] = []
    for publication in batch.publications:
        number = len(publication.values)
        keys += [publication.key] * number
        partitions += [_partition(publication, target, count)] * number
    produced = broker.produce.append_partitioned(
        context.identity, scope, target.topic, list(values), keys, partitions,
        allow_dead_letters=len(batch.publications) == 1,
    )  # fmt: skip
    if produced.dead_lettered:
        return Reply(batch.acknowledgement(context.dialect), produced.group)
    return Reply(batch.acknowledgement_of_each(context.dialect, produced.offsets), produced.group)


def _partition(publication: PublishRequest, target: StreamTarget, count: int) -> int:
    """The partition of a publication, for a topic with `count` partitions. Raises PartitionNotFound."""
    shard, named = publication.shard, target.partition
    if shard is None:
        return shard_for(count, publication.key) if named is None else named
    if named is not None and named != shard:
        raise RequestRefused(f"shard {shard} of a stream that is partition {named}")
    if shard >= count:
        raise PartitionNotFound(target.topic, shard, count)
    return shard


def _check(batch: ProduceBatch, *, original: bool) -> None:
    """Check ids and limits: the original's clients match acknowledgements by their ids alone."""
    for publication in batch.publications:
        if original and publication.acked and publication.request_id is None:
            raise RequestRefused(f"missing request_id for acked {publication.request_name}")
        if (count := len(publication.values)) > MAX_PAYLOADS:
            text = f"a batch of {count} payloads; the most is {MAX_PAYLOADS}: send several"
            raise RequestRefused(text, advice=TOO_MUCH)
