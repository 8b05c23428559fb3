"""Pipelines, `/pipelines`: progress of the queries of all pipelines whose project folders are known to this broker.

Their state is read from the files that Spark and its process write into these folders, without loading Spark. A running
pipeline can be restarted: its process ends gracefully, and its supervisor (`penstock up`, `penstock pipeline run`)
starts another. To start, stop or reset one: `penstock pipeline`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.admin.environment import Environment, PipelineRestart, PipelineView
from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.names import Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route


class PipelineRoutes:
    def __init__(self, broker: Broker, environment: Environment) -> None:
        self._broker = broker
        self._environment = environment

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                *("GET", "/api/v1/pipelines", self.list, "Pipelines of this broker, and how far their queries are."),
                query=PageQuery,
                reply=Page[PipelineView],
            ),
            Route(
                *("POST", "/api/v1/pipelines/{pipeline}/restart", self.restart, "Restart a pipeline that runs."),
                reply=PipelineRestart,
                status=202,
                audit="pipeline.restart",
            ),
        )

    def list(self, request: Request) -> Outcome:
        """For administrators of all tenants: a pipeline may use topics of any tenant."""
        self._broker.require_operator(request.identity)

        def in_scopes(scopes: Collection[tuple[str, str]]) -> Outcome:
            known = {place: self._ends(request.identity, Scope(*place)) for place in scopes}

            def look() -> Page[PipelineView]:
                views = self._environment.pipelines(lambda place, _: known.get(place))
                return cut(views, lambda view: view.name, request.query)

            return Deferred(look, json_reply)

        return Deferred(self._environment.pipeline_scopes, in_scopes)

    def _ends(self, identity: Identity, scope: Scope) -> Mapping[tuple[str, int], int]:
        names = [topic.name for topic in self._broker.topics.list(identity, scope)]
        return {
            (name, partition): each.high_watermark
            for name, of_topic in self._broker.topics.bounds(identity, scope, names).items()
            for partition, each in enumerate(of_topic)
        }

    def restart(self, request: Request) -> Outcome:
        self._broker.require_operator(request.identity)
        name = request.names["pipeline"]

        def ask() -> int:
            try:
                process = self._environment.restart_pipeline(name)
            except LookupError:
                raise HttpError(404, "pipeline_not_found", f"There is no pipeline {name[:100]}") from None
            except OSError as error:
                raise HttpError(409, "pipeline_not_restarted", f"Its process cannot be reached: {error}") from None
            if process is None:
                raise HttpError(409, "pipeline_not_running", f"{name} does not run: penstock pipeline run starts it")
            return process

        def done(process: int) -> Outcome:
            self._broker.audit.note(request.identity, "pipeline.restart", resource=name, action="restart")
            return json_reply(PipelineRestart(name, process), 202)

        return Deferred(ask, done)
