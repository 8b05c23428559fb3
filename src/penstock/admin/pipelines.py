"""Pipelines: `/pipelines`: how far the queries of the pipelines are whose project folders this broker knows.

Their state is read from their folders, from what Spark and the process that runs it keep there; nothing of Spark is
loaded, and nothing is asked of a pipeline. To start, stop or begin one anew: `penstock pipeline`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.admin.environment import Environment, PipelineView
from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.runtime.executor import Deferred
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
        )

    def list(self, request: Request) -> Outcome:
        """For administrators of all tenants: a pipeline's folder may have topics of any of them."""
        self._broker.require_operator(request.identity)
        topics = {topic.name: topic.partitions for topic in self._broker.topics.list(request.identity, DEFAULT_SCOPE)}
        bounds = self._broker.topics.bounds(request.identity, DEFAULT_SCOPE, list(topics))
        known = {
            (name, partition): each.high_watermark
            for name, of_topic in bounds.items()
            for partition, each in enumerate(of_topic)
        }

        def ends(_: Collection[str]) -> Mapping[tuple[str, int], int]:
            return known

        def look() -> Page[PipelineView]:
            return cut(self._environment.pipelines(ends), lambda view: view.name, request.query)

        return Deferred(look, json_reply)
