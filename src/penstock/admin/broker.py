"""The broker itself: `/broker`, `/doors`, `/metrics`; and for its operators `/config` and `/connections`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock import __version__
from penstock.admin.environment import ConfigValue, ConnectionView, DoorView, Environment
from penstock.admin.paging import After, Limit, Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.broker.limits import Limits
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import HttpReply, Outcome, json_reply
from penstock.doors.http.router import Request, Route

_LIMITS = tuple(field.name for field in dataclasses.fields(Limits))


class HealthView(msgspec.Struct):
    """Whether the broker accepts writes, and why not."""

    writable: bool
    reason: str
    phase: str  # starting, serving or stopping
    missing: list[str]  # parts that are unavailable at the moment
    tables: str  # the problem with tables; empty: none


class BrokerView(msgspec.Struct):
    """The broker."""

    version: str
    started: int  # µs since 1970
    uptime_seconds: float
    durability: str
    position: int  # of the log
    security: bool
    health: HealthView
    doors: list[DoorView]
    limits: dict[str, Any]


class MetricSample(msgspec.Struct):
    """A metric sample."""

    name: str
    labels: dict[str, str]
    value: float | None  # null: not a number


class MetricsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters for metrics."""

    limit: Limit = 1000
    after: After = ""
    prefix: Annotated[str, Meta(description="Only figures whose name begins like this.")] = ""


class BrokerRoutes:
    def __init__(self, broker: Broker, environment: Environment) -> None:
        self._broker = broker
        self._environment = environment

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1"
        connections, one = f"{path}/connections", f"{path}/connections/{{connection}}"
        return (
            Route("GET", f"{path}/broker", self.show, "Version, health, doors and limits.", reply=BrokerView),
            Route("GET", f"{path}/doors", self.list_doors, "Open doors.", query=PageQuery, reply=Page[DoorView]),
            Route(
                *("GET", f"{path}/metrics", self.metrics, "The figures of /metrics, for charts."),
                query=MetricsQuery,
                reply=Page[MetricSample],
            ),
            Route(
                *("GET", f"{path}/config", self.config, "Configuration in effect; secrets are left out."),
                query=PageQuery,
                reply=Page[ConfigValue],
            ),
            Route(
                *("GET", connections, self.list_connections, "Open connections."),
                query=PageQuery,
                reply=Page[ConnectionView],
            ),
            Route("DELETE", one, self.close_connection, "Close a connection.", audit="connection.close"),
        )

    def show(self, request: Request) -> Outcome:
        health, position, phase, missing = self._broker.describe(request.identity, request.scope)
        environment, now = self._environment, self._broker.now()
        trouble = self._broker.tables.trouble()
        view = BrokerView(
            __version__,
            environment.started,
            max(0, now - environment.started) / 1e6 if environment.started else 0.0,
            environment.durability,
            position,
            request.enforced,
            HealthView(health.writable, health.reason, str(phase), missing, trouble),
            list(environment.doors()),
            {name: getattr(self._broker.limits, name) for name in _LIMITS},
        )
        return json_reply(view)

    def list_doors(self, request: Request) -> Outcome:
        self._broker.describe(request.identity, request.scope)
        return json_reply(cut(self._environment.doors(), lambda door: door.name, request.query))

    def metrics(self, request: Request) -> Outcome:
        query: MetricsQuery = request.query
        samples = [
            MetricSample(name, labels, value if abs(value) < float("inf") else None)
            for name, labels, value in self._broker.metric_samples(request.identity)
            if name.startswith(query.prefix)
        ]
        return json_reply(cut(samples, _sample_name, PageQuery(query.limit, query.after)))

    def config(self, request: Request) -> Outcome:
        self._broker.require_operator(request.identity)
        return json_reply(cut(self._environment.config(), lambda value: value.key, request.query))

    def list_connections(self, request: Request) -> Outcome:
        self._broker.require_operator(request.identity)
        return json_reply(cut(self._environment.connections(), lambda each: numbered(each.id), request.query))

    def close_connection(self, request: Request) -> Outcome:
        self._broker.require_operator(request.identity)
        text = request.names["connection"]
        if not self._environment.close_connection(number_of(text) or 0):
            raise HttpError(404, "connection_not_found", f"There is no connection {text[:30]}")
        self._broker.audit.note(request.identity, "connection.close", resource=text, action="close")
        return HttpReply(200, b"{}\n", "application/json")


def _sample_name(sample: MetricSample) -> str:
    return " ".join((sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))))
