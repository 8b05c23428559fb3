"""Jobs of the administration API: `/jobs`, `/jobs/7`. Routes that start a job are in the modules of its resource."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.admin.jobs import Jobs, JobView
from penstock.admin.paging import After, Limit, Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.doors.http.replies import Outcome, done, json_reply
from penstock.doors.http.router import Request, Route


class JobsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of the list of jobs."""

    limit: Limit = 100
    after: After = ""
    kind: Annotated[str, Meta(description="Only of this kind.")] = ""
    state: Annotated[str, Meta(description="Only in this state.")] = ""


class JobRoutes:
    def __init__(self, broker: Broker, jobs: Jobs) -> None:
        self._broker = broker
        self._jobs = jobs

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/jobs", "/api/v1/jobs/{job}"
        return (
            Route("GET", path, self.list, "One's own jobs, or all of a tenant.", query=JobsQuery, reply=Page[JobView]),
            Route("GET", one, self.get, "A job: how far it is, and what came of it.", reply=JobView),
            Route("DELETE", one, self.cancel, "Cancel a job, or forget one that is over.", audit="job.cancel"),
        )

    def list(self, request: Request) -> Outcome:
        self._broker.access.require_member(request.identity, request.scope)
        query: JobsQuery = request.query
        views = [
            job.view
            for job in self._jobs.list(request.identity, request.tenant)
            if query.kind in ("", job.view.kind) and query.state in ("", job.view.state)
        ]
        return json_reply(cut(views, lambda view: numbered(view.id), PageQuery(query.limit, query.after)))

    def get(self, request: Request) -> Outcome:
        return json_reply(self._jobs.find(request.identity, number_of(request.names["job"])).view)

    def cancel(self, request: Request) -> Outcome:
        job = self._jobs.find(request.identity, number_of(request.names["job"]))
        self._jobs.cancel(request.identity, job)
        return done(self._broker.pending_commit)
