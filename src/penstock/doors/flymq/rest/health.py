"""Health checks for the original's command line and probes: without a login, and with the status that they expect."""

from __future__ import annotations

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.runtime.readiness import Phase
from penstock.doors.flymq.rest import documents as d
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route

HEALTHY = "healthy"
UNHEALTHY = "unhealthy"


class HealthRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/api/v1/health", self.live, "The process answers."),
            Route("GET", "/health/live", self.live, "The process answers."),
            Route("GET", "/health/ready", self.ready, "Clients may be sent here."),
            Route("GET", "/health", self.ready, "The same."),
        ]

    def live(self, _request: Request) -> Outcome:
        return json_reply(d.Health(HEALTHY, self._now(), __version__))

    def ready(self, _request: Request) -> Outcome:
        readiness, health = self._broker.readiness, self._broker.health()
        serving = readiness.phase is Phase.SERVING
        checks = [
            _check("broker", "" if serving else f"it is {readiness.phase}"),
            _check("storage", health.reason if not health.writable else ""),
            *(_check(part, "not there at the moment") for part in readiness.missing()),
        ]
        healthy = all(check.status == HEALTHY for check in checks)
        document = d.Health(HEALTHY if healthy else UNHEALTHY, self._now(), __version__, checks)
        return json_reply(document, 200 if healthy else 503)

    def _now(self) -> str:
        return d.timestamp(self._broker.now())


def _check(name: str, trouble: str) -> d.Check:
    return d.Check(name, UNHEALTHY if trouble else HEALTHY, trouble)
