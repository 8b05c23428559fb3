"""The tenant and namespace of a connection. FlyMQ has none: without this extension all is in `default`."""

from __future__ import annotations

from penstock.broker.names import scope
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m


def use(context: FlyMqContext, request: m.UseScope) -> Reply:
    """Make what follows about topics, groups and users there. Whether one may do anything there is asked of each
    request, as ever; transactions that are open stay where they began."""
    context.scope = scope(request.tenant, request.namespace)
    return Reply(m.Done())
