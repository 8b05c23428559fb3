"""Searches: `POST /topics/orders/records/search` searches a topic as a job, and `/jobs/7/records` shows its results so
far.

Unlike a page of `/records`, whose work is bounded, a search continues until it has enough results, or has examined
everything that existed when it began."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.admin.filters import RecordFilter
from penstock.admin.jobs import Job, Jobs, JobView, Steps
from penstock.admin.paging import MAX_PAGE, Page, PageQuery, number_of
from penstock.admin.record_scan import PageScan, ScanTarget
from penstock.admin.record_view import RecordPage, RecordView
from penstock.admin.records import RecordSelection, bounds_of, locate, record_filter
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route

MAX_BYTES: Final = 8 << 20  # of the results of one search, approximately
KIND: Final = "record.search"


class SearchRequest(RecordSelection):
    """A search. It ends at its `limit`, at 8 MiB, or at the end of the topic when it began."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100


class SearchResult(msgspec.Struct):
    """The outcome of a search."""

    found: int
    scanned: int
    next: str | None  # `after` for the records after it; null: there are none


class SearchRoutes:
    def __init__(self, broker: Broker, jobs: Jobs) -> None:
        self._broker = broker
        self._jobs = jobs

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                *("POST", "/api/v1/topics/{topic}/records/search", self.start, "Look through a topic, as a job."),
                body=SearchRequest,
                reply=JobView,
                status=202,
                audit="job.start",
            ),
            Route(
                *("GET", "/api/v1/jobs/{job}/records", self.found, "Records that a search has found so far."),
                query=PageQuery,
                reply=Page[RecordView],
            ),
        )

    def start(self, request: Request) -> Outcome:
        body: SearchRequest = request.body
        where = ScanTarget(request.identity, request.scope, request.names["topic"])
        bounds_of(self._broker, where)

        def begin(_: RecordFilter | None) -> Outcome:
            """The expression is valid: further errors are reported by the job."""
            job = self._jobs.start(
                *(request.identity, KIND, request.scope, where.topic), lambda job: self._steps(job, where, body)
            )
            return json_reply(job.view, 202)

        outcome: Outcome = record_filter(self._broker, body.condition(), begin)
        return outcome

    def _steps(self, job: Job, where: ScanTarget, body: SearchRequest) -> Steps:
        broker, progress = self._broker, job.progress
        backwards = body.order == "desc"
        matches = yield from resolved(record_filter(broker, body.condition(), lambda made: made))
        bounds = bounds_of(broker, where)
        at = yield from resolved(locate(broker, where, body, bounds, lambda found: found))
        total = sum(
            max(0, at[number] - bounds[number].start if backwards else bounds[number].high_watermark - at[number])
            for number in at
        )
        progress.total, cursor = total, None
        while progress.done < total:
            scan = PageScan(
                *(broker, where, at, body.limit - len(job.records), matches),
                backwards=backwards,
                conclude=lambda page: page,
            )
            page: RecordPage = yield from resolved(scan.step())
            job.records += page.records
            job.bytes += sum(2 * (len(each.value) + len(each.key or b"")) + 500 for each in page.records)
            progress.done += page.scanned
            cursor = page.next if page.left else None
            if len(job.records) >= body.limit or job.bytes >= MAX_BYTES or cursor is None or not page.scanned:
                break
        return SearchResult(len(job.records), progress.done, cursor)

    def found(self, request: Request) -> Outcome:
        job = self._jobs.find(request.identity, number_of(request.names["job"]))
        if job.view.kind != KIND:
            raise HttpError(404, "no_records", "This job looks for no records")
        query: PageQuery = request.query
        first = number_of(query.after or "0")
        if first is None:
            raise InvalidArgument("'after' is not the 'next' of a page")
        end = first + query.limit
        more = end < len(job.records) or not job.over
        following = str(min(end, len(job.records))) if more else None
        return json_reply(Page(job.records[first:end], following))


def resolved(outcome: Any) -> Steps:
    """The final value of work that may take several steps."""
    while isinstance(outcome, Deferred):
        outcome = yield outcome
    return outcome
