"""Produce. Adjacent Produces to one partition are appended together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from penstock.broker.errors import RecordTooLarge
from penstock.doors.reply import Reply
from penstock.doors.rustlog.request_context import SCOPE, RustLogContext
from penstock.wire.rustlog.messages import Produce, ProduceResponse


class EmptyProduce:
    """Represents a Produce without records in the table of handlers: it only returns the end offset of the
    partition."""


def produce(context: RustLogContext, request: Produce, following: Sequence[list[bytes]] = ()) -> Reply:
    """Append the records of a Produce together with those of the following Produces to the same partition, given as one
    list of records each. The records of each stay contiguous."""
    values = request.records if not following else list(chain(request.records, *following))
    appended = context.broker.produce.append(
        context.identity, SCOPE, request.topic, request.partition, values, allow_dead_letters=len(values) == 1
    )
    counts = [len(request.records), *map(len, following)]
    if len(appended.base_offsets) > 1:
        counts = [0]  # it became a dead letter, so the topic got no records
    return Reply(context.dialect.encode_produced(appended.base_offsets[0], counts), appended.group)


def check_sizes(request: Produce, max_record: int) -> None:
    """Raise RecordTooLarge for a record that could not be fetched in the same dialect, independent of the broker's
    limit."""
    if (largest := max(map(len, request.records))) > max_record:
        raise RecordTooLarge(largest, max_record)


def end_offset(context: RustLogContext, request: Produce) -> Reply:
    end = context.broker.topics.end_offset(context.identity, SCOPE, request.topic, request.partition)
    return Reply(ProduceResponse(end, 0))
