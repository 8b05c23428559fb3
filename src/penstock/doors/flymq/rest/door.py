"""The door of FlyMQ's administration: all its routes, on HTTP sessions."""

from __future__ import annotations

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.rest.cluster import ClusterRoutes
from penstock.doors.flymq.rest.groups import GroupRoutes
from penstock.doors.flymq.rest.health import HealthRoutes
from penstock.doors.flymq.rest.schemas import SchemaRoutes
from penstock.doors.flymq.rest.topics import TopicRoutes
from penstock.doors.http.router import MAX_BODY, Router
from penstock.doors.http.session import MAX_HEAD, HttpSession
from penstock.doors.session import Channel, Door

NAME: Final = "flymq_admin"
MISSING: Final = (
    "there are /api/v1/cluster, /topics, /consumer-groups and /schemas of FlyMQ's administration, and /health; users, "
    "roles, access lists, dead letters and the audit log are opcodes of FlyMQ, and in Penstock's own administration"
)


def flymq_admin_router(broker: Broker, settings: FlyMqSettings) -> Router:
    tables = (
        HealthRoutes(broker),
        ClusterRoutes(broker, settings),
        TopicRoutes(broker),
        GroupRoutes(broker),
        SchemaRoutes(broker),
    )
    return Router(broker, [route for table in tables for route in table.routes()], MISSING)


def flymq_admin_door(settings: FlyMqSettings) -> Door:
    routers: dict[Broker, Router] = {}  # a single entry: the broker that the door belongs to

    def opened(broker: Broker, channel: Channel, identity: Identity) -> HttpSession:
        if broker not in routers:
            routers[broker] = flymq_admin_router(broker, settings)
        return HttpSession(broker, channel, identity, routers[broker])

    return Door(NAME, opened, MAX_HEAD + MAX_BODY, speaks="http")
