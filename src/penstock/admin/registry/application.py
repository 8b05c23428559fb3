"""The registry as a part of the HTTP door: its paths and its router."""

from __future__ import annotations

from typing import Final

from penstock.admin.registry.errors import CONTENT_TYPE
from penstock.admin.registry.routes import RegistryRoutes
from penstock.broker.broker import Broker
from penstock.doors.http.replies import JSON
from penstock.doors.http.request import Admission, RequestHead
from penstock.doors.http.router import Router

ROOTS: Final = frozenset({"subjects", "schemas", "compatibility", "config", "mode", "contexts"})
BODIES: Final = (JSON, CONTENT_TYPE, "application/vnd.schemaregistry+json")
MISSING: Final = "HTTP 404 Not Found"


class Registry:
    def __init__(self, broker: Broker) -> None:
        # Another site's page cannot make a browser send PUT, DELETE or bodies of these types without a CORS preflight,
        # which is never granted.
        self.router = Router(broker, RegistryRoutes(broker).routes(), MISSING, bodies=BODIES, forgeable=("POST",))

    def open(self, head: RequestHead) -> Admission:
        return self.router.open(head)


def serves(path: str) -> bool:
    return path.partition("/")[2].partition("/")[0] in ROOTS
