"""Repairs and verifications of tables, as jobs: `POST /tables/orders/repair`, `POST /tables/orders/verify`. `GET
/tables/orders/repair` shows the last repair, whoever requested it.

The table worker executes them one by one: a job that has started there cannot be cancelled."""

from __future__ import annotations

from functools import partial

import msgspec

from penstock.admin.jobs import Job, Jobs, JobView, Steps
from penstock.broker.broker import Broker
from penstock.broker.tables.repairs import RepairStatus
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import Outcome, after_commit, json_reply
from penstock.doors.http.router import Request, Route


class RepairRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a repair."""

    checksums: bool = False  # also rewrite files of earlier versions, which have no checksums


class RepairRoutes:
    def __init__(self, broker: Broker, jobs: Jobs) -> None:
        self._broker = broker
        self._jobs = jobs

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/tables/{topic}/repair"
        return (
            Route(
                *("POST", path, self.ask, "Repair the table of a topic, as far as the journal has what is damaged."),
                body=RepairRequest,
                reply=JobView,
                status=202,
                audit="table.repair",
            ),
            Route("GET", path, self.get, "The progress of the last repair, or its outcome.", reply=RepairStatus),
            Route(
                *("POST", "/api/v1/tables/{topic}/verify", self.verify, "Compare the table of a topic with the log."),
                reply=JobView,
                status=202,
                audit="job.start",
            ),
        )

    def ask(self, request: Request) -> Outcome:
        return self._begin(request, "table.repair")

    def verify(self, request: Request) -> Outcome:
        return self._begin(request, "table.verify")

    def _begin(self, request: Request, kind: str) -> Outcome:
        identity, scope, topic = request.identity, request.scope, request.names["topic"]
        tables = self._broker.tables

        def steps(job: Job) -> Steps:
            verify = kind == "table.verify"
            if verify:
                tables.verify(identity, scope, topic)
            else:
                tables.repair(identity, scope, topic, checksums=request.body.checksums)
                self._broker.audit.note(identity, "table.repair", scope=scope, resource=topic, action="repair")
            watch, withdraw = tables.watch(identity, scope, topic, partial(_report_progress, job), verify=verify)
            job.on_cancel(withdraw)

            def wait() -> Steps:
                status: RepairStatus = yield watch
                if status.report is None:
                    raise HttpError(409, "not_done", status.error)
                return status.report

            return wait()

        job = self._jobs.start(identity, kind, scope, topic, steps)
        return after_commit(self._broker.pending_commit, json_reply(job.view, 202))

    def get(self, request: Request) -> Outcome:
        return json_reply(self._broker.tables.repair_status(request.identity, request.scope, request.names["topic"]))


def _report_progress(job: Job, checked: int, total: int) -> None:
    job.progress.done, job.progress.total = checked, total
