"""The administration API: all routes below `/api/v1`, and their OpenAPI document.

The routes are the same everywhere: on the HTTP port with the identity of the request, on the admin socket with the
administrator's."""

from __future__ import annotations

from typing import Any

from penstock.admin.acls import AclRoutes
from penstock.admin.audit import AuditRoutes
from penstock.admin.backups import BackupRoutes
from penstock.admin.broker import BrokerRoutes
from penstock.admin.caches import CacheRoutes
from penstock.admin.dead_letters import DeadLetterRoutes
from penstock.admin.delayed import DelayedRoutes
from penstock.admin.environment import Environment
from penstock.admin.groups import GroupRoutes
from penstock.admin.job_routes import JobRoutes
from penstock.admin.jobs import Jobs
from penstock.admin.keys import KeyRoutes
from penstock.admin.openapi import openapi
from penstock.admin.pipelines import PipelineRoutes
from penstock.admin.queues import QueueRoutes
from penstock.admin.records import RecordRoutes
from penstock.admin.registry.application import Registry
from penstock.admin.repairs import RepairRoutes
from penstock.admin.roles import RoleRoutes
from penstock.admin.schemas import SchemaRoutes
from penstock.admin.searches import SearchRoutes
from penstock.admin.sessions import SessionRoutes
from penstock.admin.sql import SqlRoutes
from penstock.admin.tables import TableRoutes
from penstock.admin.tenants import TenantRoutes
from penstock.admin.topics import TopicRoutes
from penstock.admin.transactions import TransactionRoutes
from penstock.admin.unity.application import UnityCatalog
from penstock.admin.users import UserRoutes
from penstock.broker.broker import Broker
from penstock.doors.http.replies import JSON, HttpReply, document
from penstock.doors.http.request import AcceptedRequest, Admission, RequestHead
from penstock.doors.http.router import Route, Router

DOCUMENT = "/api/openapi.json"
MISSING = "there is nothing at this path; /api/openapi.json tells what there is"


def routes(broker: Broker, environment: Environment) -> tuple[Route, ...]:
    """All routes, in the order of the document."""
    jobs = Jobs(broker)
    nouns: tuple[Any, ...] = (
        BrokerRoutes(broker, environment),
        TopicRoutes(broker),
        RecordRoutes(broker),
        SearchRoutes(broker, jobs),
        GroupRoutes(broker),
        SessionRoutes(broker),
        UserRoutes(broker),
        KeyRoutes(broker),
        RoleRoutes(broker),
        AclRoutes(broker),
        TenantRoutes(broker),
        SchemaRoutes(broker),
        SqlRoutes(broker),
        DeadLetterRoutes(broker, jobs),
        QueueRoutes(broker),
        DelayedRoutes(broker),
        TransactionRoutes(broker),
        CacheRoutes(broker),
        TableRoutes(broker),
        RepairRoutes(broker, jobs),
        AuditRoutes(broker),
        BackupRoutes(broker, environment, jobs),
        JobRoutes(broker, jobs),
        PipelineRoutes(broker, environment),
    )
    return tuple(route for noun in nouns for route in noun.routes())


class Api:
    """The routes of one broker, and the document, which is public: it contains nothing about this broker."""

    def __init__(self, broker: Broker, environment: Environment) -> None:
        self.broker = broker
        self.router = Router(broker, routes(broker, environment), MISSING, environment.enforced)
        self.registry = Registry(broker)
        self.unity = UnityCatalog(broker)
        self._document = b""

    def open(self, head: RequestHead) -> Admission:
        if head.path == DOCUMENT and head.method in ("GET", "HEAD"):
            return AcceptedRequest(0, lambda _: self._described())
        return self.router.open(head)

    def _described(self) -> HttpReply:
        if not self._document:
            self._document = document(openapi(self.router.routes))
        return HttpReply(200, self._document, JSON)


def shared_api(broker: Broker, environment: Environment) -> Api:
    """The single API object of a broker, so that all ways to it have the same jobs and the same backup."""
    known = environment.api
    if not isinstance(known, Api) or known.broker is not broker:
        known = environment.api = Api(broker, environment)
    return known
