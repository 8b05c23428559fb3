"""The catalog as a part of the HTTP door: its paths and its router."""

from __future__ import annotations

from typing import Final

from penstock.admin.unity.errors import READ_ONLY
from penstock.admin.unity.routes import ROOT, UnityRoutes
from penstock.broker.broker import Broker
from penstock.broker.runtime.clock import wall_clock
from penstock.doors.http.request import Admission, RequestHead
from penstock.doors.http.router import Router

MISSING: Final = f"there is nothing at this path; {READ_ONLY}"


class UnityCatalog:
    def __init__(self, broker: Broker) -> None:
        self.router = Router(broker, UnityRoutes(broker, wall_clock).routes(), MISSING)

    def open(self, head: RequestHead) -> Admission:
        return self.router.open(head)


def serves(path: str) -> bool:
    return path.startswith(f"{ROOT}/")
