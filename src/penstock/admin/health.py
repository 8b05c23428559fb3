"""Health and metrics for monitoring: `GET /health`, `/health/live`, `/health/ready` and `/metrics`.

Health is public; metrics require a permission, and accept credentials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.readiness import Phase
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import HttpError
from penstock.doors.http.login import API_KEY, AUTHORIZATION
from penstock.doors.http.replies import HttpReply, json_reply
from penstock.doors.http.request import AcceptedRequest, Admission, RequestHead

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_BODY: Final = 64 << 10


def health_document(broker: Broker, durability: str) -> dict[str, Any]:
    health = broker.health()
    return {
        "status": "ok" if health.writable else "read-only",
        "writable": health.writable,
        "reason": health.reason,
        "durability": durability,
        "position": broker.position,
        "tables": broker.tables.trouble() or "ok",
        "version": __version__,
    }


def readiness_document(broker: Broker) -> dict[str, Any]:
    readiness, health = broker.readiness, broker.health()
    missing = readiness.missing()
    if readiness.phase is not Phase.SERVING:
        status, reason = str(readiness.phase), f"the broker is {readiness.phase}"
    elif not health.writable:
        status, reason = "read-only", health.reason
    elif missing:
        status, reason = "incomplete", f"not there at the moment: {', '.join(missing)}"
    else:
        status, reason = "ready", ""
    return {"status": status, "ready": not reason, "reason": reason}


class HealthApplication:
    """Serves monitoring requests, on every HTTP port."""

    def __init__(self, broker: Broker, durability: str, identity: Identity) -> None:
        """`identity`: of the connection, for metrics."""
        self._broker = broker
        self._durability = durability
        self._identity = identity
        self._latest: tuple[tuple[int, Identity], HttpReply] | None = None  # metrics, and for which requests
        self._routes: dict[str, Callable[[], HttpReply]] = {
            "/health": self._health,
            "/health/live": self._live,
            "/health/ready": self._ready,
        }

    def open(self, head: RequestHead) -> Admission:
        route = self._routes.get(head.path)
        if route is None and head.path != "/metrics":
            raise HttpError(404, "not_found", "there are /, /health, /health/live, /health/ready, /metrics and /api")
        if head.method not in ("GET", "HEAD"):
            raise HttpError(405, "method_not_allowed", "only GET and HEAD", (("Allow", "GET, HEAD"),))
        if route is not None:
            return AcceptedRequest(MAX_BODY, lambda _: route())
        if AUTHORIZATION not in head.headers and API_KEY not in head.headers:
            return self._figures(head, self._identity)
        identity = head.login.identify(head.headers, None)
        figures = partial(self._figures, head)
        return identity.then(figures) if isinstance(identity, Deferred) else figures(identity)

    def _figures(self, head: RequestHead, identity: Identity) -> AcceptedRequest:
        """Requests of one sender that arrived together share one metrics reply, from after they arrived."""

        def run(_: bytes) -> HttpReply:
            asker = head.arrival, identity
            if self._latest is None or self._latest[0] != asker:
                text = self._broker.metrics_text(identity)
                self._latest = asker, HttpReply(200, text.encode(), PROMETHEUS)
            return self._latest[1]

        return AcceptedRequest(MAX_BODY, run)

    def _health(self) -> HttpReply:
        document = health_document(self._broker, self._durability)
        return json_reply(document, 200 if document["writable"] else 503)

    def _live(self) -> HttpReply:
        """Liveness: the process responds, nothing else. A read-only or stopping broker should not be restarted."""
        return json_reply({"status": "live"})

    def _ready(self) -> HttpReply:
        """Readiness: clients may connect, as every open door responds and accepts writes."""
        document = readiness_document(self._broker)
        return json_reply(document, 200 if document["ready"] else 503)
