"""Repairs of tables: `POST /tables/orders/repair` asks for one, `GET` says how far it has come and, in the end, what
came of it.
"""

from __future__ import annotations

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.tables.repairs import RepairStatus
from penstock.doors.http.replies import Outcome, after_commit, json_reply
from penstock.doors.http.router import Request, Route


class RepairRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A repair to be done."""

    checksums: bool = False  # also write files of earlier versions again, which have none


class RepairRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/tables/{topic}/repair"
        return (
            Route(
                *("POST", path, self.ask, "Repair the table of a topic, as far as the journal has what is damaged."),
                body=RepairRequest,
                reply=RepairStatus,
                status=202,
                audit="table.repair",
            ),
            Route("GET", path, self.get, "The progress of the last repair, or its outcome.", reply=RepairStatus),
        )

    def ask(self, request: Request) -> Outcome:
        tables, topic, identity = self._broker.tables, request.names["topic"], request.identity
        status = tables.repair(identity, request.scope, topic, checksums=request.body.checksums)
        self._broker.audit.note(identity, "table.repair", scope=request.scope, resource=topic, action="repair")
        return after_commit(self._broker.pending_commit, json_reply(status, 202))

    def get(self, request: Request) -> Outcome:
        return json_reply(self._broker.tables.repair_status(request.identity, request.scope, request.names["topic"]))
