"""Names of streams: which topic, or which partition of it, a name stands for; and creating one that is missing.

A stream is the topic of its name. `orders#2` is partition 2 of the topic `orders`, as other doors made it, unless there
is a topic of that full name. Where there is neither, it is a name like any other.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.broker.errors import TenantNotFound
from penstock.broker.names import Scope, check_topic
from penstock.broker.security.access import Permission
from penstock.doors.felix.request_context import FelixContext

_NUMBERED: Final = re.compile(r"(.+)#(0|[1-9][0-9]{0,8})", re.DOTALL)


class StreamTarget(NamedTuple):
    topic: str
    partition: int | None = None  # None: the name says nothing of one


def locate(context: FelixContext, scope: Scope, stream: str, permission: Permission) -> StreamTarget:
    """The topic of a stream, for one who needs this permission. Whether it is there is no secret of a
    partition's name either: who may not use the topic is refused in the words for a name like any other. All else is
    looked at with whatever the client asks for. Raises AccessDenied."""
    if "#" not in stream or (found := _NUMBERED.fullmatch(stream)) is None:
        return StreamTarget(stream)
    broker = context.broker
    if broker.topics.exists(scope, stream) or not broker.topics.exists(scope, found[1]):
        return StreamTarget(stream)
    if not broker.access.allows(context.identity, permission, scope, found[1]):
        broker.access.require(context.identity, permission, scope, stream)
    return StreamTarget(found[1], int(found[2]))


def ensure_topic(context: FelixContext, scope: Scope, topic: str, use: Permission) -> None:
    """Create a topic that is missing, and its tenant, for one who may use it like this. Raises TopicNotFound or
    TenantNotFound where nothing is created on first use."""
    broker, identity = context.broker, context.identity

    def ensure_tenant() -> None:
        check_topic(topic)  # so that no tenant is created for nothing
        broker.access.require(identity, Permission.CREATE, scope, topic)
        if context.settings.auto_create_tenants:
            broker.tenants.ensure(identity, *scope)
        elif not broker.tenants.exists(scope.tenant):
            raise TenantNotFound(scope.tenant)

    broker.topics.ensure(identity, scope, topic, use, ensure_tenant)
