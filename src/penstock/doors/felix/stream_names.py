"""Names of streams: the topic, or the partition of a topic, that a name refers to; and creating missing topics.

A stream is the topic with its name. `orders#2` is partition 2 of the topic `orders`, if another door created that,
unless a topic has the full name. If neither exists, it is an ordinary name.
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
    partition: int | None = None  # None: the name contains none


def locate(context: FelixContext, scope: Scope, stream: str, permission: Permission) -> StreamTarget:
    """The topic of a stream, for a client that needs this permission. The name of a partition must not reveal whether
    its topic exists: without access to it, the error is the same as for an ordinary name. All other checks are left to
    the request. Raises AccessDenied."""
    if "#" not in stream or (found := _NUMBERED.fullmatch(stream)) is None:
        return StreamTarget(stream)
    broker = context.broker
    if broker.topics.exists(scope, stream) or not broker.topics.exists(scope, found[1]):
        return StreamTarget(stream)
    if not broker.access.allows(context.identity, permission, scope, found[1]):
        broker.access.require(context.identity, permission, scope, stream)
    return StreamTarget(found[1], int(found[2]))


def ensure_topic(context: FelixContext, scope: Scope, topic: str, use: Permission) -> None:
    """Create a missing topic, and its tenant, for a client that needs this permission. Raises TopicNotFound or
    TenantNotFound if the configuration does not create them on first use."""
    broker, identity = context.broker, context.identity

    def ensure_tenant() -> None:
        check_topic(topic)  # before a tenant is created needlessly
        broker.access.require(identity, Permission.CREATE, scope, topic)
        if context.settings.auto_create_tenants:
            broker.tenants.ensure(identity, *scope)
        elif not broker.tenants.exists(scope.tenant):
            raise TenantNotFound(scope.tenant)

    broker.topics.ensure(identity, scope, topic, use, ensure_tenant)
