"""The tenant and namespace of a connection: an extension of FlyMQ. Without it everything is in `default`."""

from __future__ import annotations

from penstock.broker.names import scope
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m


def use(context: FlyMqContext, request: m.UseScope) -> Reply:
    """Apply later requests to topics, groups and users in this scope. Each request checks access, as always; open
    transactions keep their scope."""
    context.scope = scope(request.tenant, request.namespace)
    return Reply(m.Done())
