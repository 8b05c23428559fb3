"""Committed offsets of consumer groups."""

from __future__ import annotations

from penstock.broker.errors import PartitionNotFound, TopicNotFound
from penstock.doors.reply import Reply
from penstock.doors.rustlog.request_context import SCOPE, RustLogContext
from penstock.wire.rustlog.messages import OffsetCommit, OffsetCommitResponse, OffsetFetch, OffsetFetchResponse


def commit(context: RustLogContext, request: OffsetCommit) -> Reply:
    try:
        group = context.broker.groups.commit(
            context.identity,
            SCOPE,
            request.group,
            request.topic,
            request.partition,
            request.offset,
            topic_must_exist=context.dialect.reports_unknown_commit,
        )
    except (TopicNotFound, PartitionNotFound):
        return Reply(OffsetCommitResponse(False))
    return Reply(OffsetCommitResponse(True), group)


def fetch(context: RustLogContext, request: OffsetFetch) -> Reply:
    groups = context.broker.groups
    offset = groups.committed(context.identity, SCOPE, request.group, request.topic, request.partition)
    return Reply(OffsetFetchResponse(offset))
