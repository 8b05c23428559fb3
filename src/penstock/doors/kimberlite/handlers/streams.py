"""Streams: creating one, appending to it, and its length.

A stream is a partition of a topic. Its number is the topic's id, with the number of the partition in the bits from 32
on. Topics created by Kimberlite have one partition, so a stream and its topic have the same number.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.broker.errors import InvalidArgument, TenantNotFound, TopicExists
from penstock.broker.names import check_topic
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m

MAX_EVENTS: Final = 10_000
MAX_BYTES: Final = 4 << 20
MAX_REGION: Final = 255  # characters

GLOBAL: Final = "global"
PHI: Final = m.DataClass.PHI
_ALIASES: Final[dict[str | None, str]] = {m.DataClass.NON_PHI: m.DataClass.PUBLIC}  # one class, two names
_FIRST_NAMES: Final = re.compile(r"[A-Za-z0-9_]{1,256}")
_REGIONS: Final[dict[type[m.Message], str]] = {m.UsEast1: "us-east-1", m.ApSoutheast2: "ap-southeast-2"}


def create(context: KimberliteContext, request: m.CreateStream) -> Reply:
    """Version 1 refuses an existing name, by the specification; later versions return the existing stream if it has the
    same settings, like the original."""
    with context.broker.audit.attempt(context.identity, "topic.create", scope=context.scope, resource=request.name):
        return _create(context, request)


def _create(context: KimberliteContext, request: m.CreateStream) -> Reply:
    broker, identity, scope, name = context.broker, context.identity, context.scope, request.name
    if context.version == 1 and not _FIRST_NAMES.fullmatch(name):
        raise InvalidArgument("a stream's name is 1 to 256 letters, digits and '_'")
    check_topic(name)  # before a tenant is created needlessly
    settings = TopicSettings(data_class=str(request.data_class), placement=placement(request.placement))
    broker.access.require(identity, Permission.CREATE, scope, name)
    if request.data_class == PHI:
        broker.access.require(identity, Permission.PHI, scope, name)
    try:
        _check_tenant(context)
        topic, group = broker.topics.create(identity, scope, name, 1, settings)
    except TopicExists:
        if not broker.access.allows(identity, Permission.DESCRIBE, scope, name):
            raise
        found = broker.topics.describe(identity, scope, name).topic
        if context.version == 1 or not _fits(found.settings, settings):
            raise RequestRefused(m.ErrorCode.STREAM_ALREADY_EXISTS, _exists(found)) from None
        return Reply(m.CreateStreamResponse(found.id))
    return Reply(m.CreateStreamResponse(topic.id), group)


def _check_tenant(context: KimberliteContext) -> None:
    if context.settings.auto_create_tenants:
        context.broker.tenants.ensure(context.identity, context.scope.tenant)
    elif not context.broker.tenants.exists(context.scope.tenant):
        raise TenantNotFound(context.scope.tenant)


def placement(wanted: m.Placement) -> str:
    """The placement as stored with the topic."""
    if isinstance(wanted, m.Everywhere):
        return GLOBAL
    if wanted.region is None:
        return "region"
    name = wanted.region.name if isinstance(wanted.region, m.CustomRegion) else _REGIONS[type(wanted.region)]
    if not 1 <= len(name) <= MAX_REGION or not name.isprintable():
        raise InvalidArgument(f"a region's name is 1 to {MAX_REGION} printable characters")
    return f"region:{name}"


def _fits(found: TopicSettings, wanted: TopicSettings) -> bool:
    """Whether an existing topic has the settings of the request. One created at another door has no class or placement:
    it is accepted if the request has no strict requirements."""
    if (found.placement or GLOBAL) != wanted.placement:
        return False
    if found.data_class is None:
        return wanted.data_class != PHI
    return _ALIASES.get(found.data_class, found.data_class) == _ALIASES.get(wanted.data_class, wanted.data_class)


def _exists(topic: Topic) -> str:
    """The error text. It contains the number: version 1 has no other way to get it."""
    return f"Stream '{topic.name}' already exists: it is stream {topic.id}"


def append(context: KimberliteContext, request: m.AppendEvents) -> Reply:
    events = request.events
    if not 0 < len(events) <= MAX_EVENTS:
        raise InvalidArgument(f"a batch of {len(events)} events: 1 to {MAX_EVENTS:,} are allowed")
    size = sum(map(len, events))
    if size > MAX_BYTES:
        raise InvalidArgument(f"a batch of {size} bytes is larger than the limit of {MAX_BYTES} bytes")
    topic, partition = context.broker.topics.stream(context.identity, context.scope, request.stream_id)
    appended = context.broker.produce.append(
        context.identity,
        context.scope,
        topic.name,
        partition,
        events,
        expected_offset=request.expected_offset,
        allow_dead_letters=False,
    )
    noted = context.note("stream.append", topic.name)
    return Reply(m.AppendEventsResponse(appended.base_offsets[0], len(events)), noted or appended.group)


def info(context: KimberliteContext, request: m.StreamInfo) -> Reply:
    """The length of a stream, for clients that may read or append: appends contain the expected offset."""
    broker, identity, scope = context.broker, context.identity, context.scope
    topic, partition = broker.topics.stream(identity, scope, request.stream_id)
    if broker.access.allows(identity, Permission.WRITE, scope, topic.name):
        length = broker.topics.end_offset(identity, scope, topic.name, partition)
    else:
        length = broker.topics.bounds(identity, scope, [topic.name])[topic.name][partition].high_watermark
    return Reply(m.StreamInfoResponse(length))
