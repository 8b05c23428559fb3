"""Schemas: all versions, and one version with its definition."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.doors.flymq.request_context import SCOPE
from penstock.doors.flymq.rest import documents as d
from penstock.doors.flymq.rest.lists import list_reply
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route


class SchemaRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        root = "/api/v1/schemas"
        return [
            Route("GET", root, self.list_all, "All versions of all schemas."),
            Route("GET", f"{root}/{{name}}", self.get, "The latest version of a schema, with its definition."),
        ]

    def list_all(self, request: Request) -> Outcome:
        found = self._broker.schemas.list(request.identity, SCOPE, None)
        return list_reply(d.Schema(schema.name, schema.version, schema.kind) for schema in found)

    def get(self, request: Request) -> Outcome:
        schema = self._broker.schemas.get(request.identity, SCOPE, request.names["name"])
        text = schema.definition.decode(errors="replace")
        return json_reply(d.Schema(schema.name, schema.version, schema.kind, text))
