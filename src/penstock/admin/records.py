"""Records of a topic: `GET /topics/orders/records` reads or follows them, `POST` appends some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.admin.filters import Condition, RecordFilter
from penstock.admin.paging import MAX_PAGE
from penstock.admin.record_scan import PageScan, PositionSearch, ScanTarget, Tail
from penstock.admin.record_view import (
    HeaderTerms,
    Produced,
    ProduceRequest,
    RecordPage,
    RecordPlace,
    RecordTerms,
    decode_cursor,
)
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument, PartitionNotFound
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.replies import (
    EVENT_STREAM,
    JSON,
    JSON_LINES,
    Outcome,
    PendingHttpReply,
    StreamedReply,
    after_commit,
    json_reply,
)
from penstock.doors.http.router import Request, Route
from penstock.log.batch import Headers
from penstock.log.engine import Bounds, CommitGroup

MAX_BODY: Final = 8 << 20

Offset = Annotated[int, Meta(ge=0, lt=1 << 62)]


class RecordSelection(msgspec.Struct, forbid_unknown_fields=True):
    """Records, by start (`offset`, `time`, `position`, `last` or `start`) and by conditions, all of which must hold."""

    partition: Annotated[int, Meta(ge=0, description="Only this partition.")] | None = None
    offset: Offset | None = None
    time: Annotated[int, Meta(ge=0, description="µs since 1970: from the first record that is not older.")] | None = (
        None
    )
    position: Annotated[int, Meta(ge=0, description="Of the whole log: from the first record there.")] | None = None
    last: Annotated[int, Meta(ge=0, description="So many before the end of each partition.")] | None = None
    start: Literal["earliest", "latest"] | None = None
    order: Annotated[Literal["asc", "desc"], Meta(description="desc: the newest first, back from there.")] = "asc"
    key: Annotated[str, Meta(description="In the key; upper and lower case are the same.")] = ""
    value: Annotated[str, Meta(description="In the value.")] = ""
    header: Annotated[list[str], Meta(description="`name`, or `name=text` in its value.", max_length=16)] = []
    text: Annotated[str, Meta(description="In key, value or a header; or a regular expression.")] = ""
    path: Annotated[str, Meta(description="In a JSON value: `$.a.b` is there, or `$.a.b=text`.")] = ""
    where: Annotated[str, Meta(description="An expression of SQL: `status = 'failed' AND amount > 100`.")] = ""

    def condition(self) -> Condition:
        return Condition(self.key, self.value, tuple(self.header), self.text, self.path, self.where)


class RecordsQuery(RecordSelection):
    """The query parameters for reading records. `after` continues after an earlier page."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    after: Annotated[str, Meta(description="`next` of the page before.")] = ""
    follow: Annotated[bool, Meta(description="Go on with what comes, as a stream; not with a limit or `desc`.")] = False


class RecordRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/topics/{topic}/records"
        return (
            Route(
                *("GET", path, self.look, "Look through the records of a topic, or follow them."),
                query=RecordsQuery,
                reply=RecordPage,
                content=(JSON, JSON_LINES, EVENT_STREAM),
            ),
            Route(
                *("POST", path, self.produce, "Append records."),
                body=ProduceRequest,
                reply=Produced,
                status=201,
                max_body=MAX_BODY,
            ),
        )

    # -- reading

    def look(self, request: Request) -> Outcome:
        query: RecordsQuery = request.query
        where = ScanTarget(request.identity, request.scope, request.names["topic"])
        bounds = bounds_of(self._broker, where)
        if query.follow and query.order == "desc":
            raise InvalidArgument("what follows is in the order in which it comes: not 'desc'")

        def begin(matches: RecordFilter | None, at: dict[int, int]) -> Outcome:
            if query.follow:
                events = EVENT_STREAM in request.accept
                source = Tail(self._broker, where, at, matches, events=events)
                return StreamedReply(source, EVENT_STREAM if events else JSON_LINES)
            backwards = query.order == "desc"
            scan = PageScan(*(self._broker, where, at, query.limit, matches), backwards=backwards, conclude=self._shown)
            found: Outcome = scan.step()
            return found

        def filtered(matches: RecordFilter | None) -> Outcome:
            if query.after:
                return begin(matches, _cursor(query.after, len(bounds)))
            found: Outcome = locate(
                self._broker, where, query, bounds, lambda at: begin(matches, at), newest=query.follow
            )
            return found

        outcome: Outcome = record_filter(self._broker, query.condition(), filtered)
        return outcome

    def _shown(self, page: RecordPage) -> Outcome:
        return after_commit(self._broker.pending_commit, json_reply(page))

    # -- appending

    def produce(self, request: Request) -> Outcome:
        body: ProduceRequest = request.body
        delayed = [bool(record.delay_ms) for record in body.records]
        if any(delayed):
            if not all(delayed):
                raise InvalidArgument("records that appear later are not appended together with others")
            return self._schedule(request, body.records)
        now, records = self._broker.now(), body.records
        keys = [_bytes("key", record.key, record.key_text) for record in records]
        headers = [_headers(record.headers) for record in records]
        expires = [now + record.ttl_ms * 1000 if record.ttl_ms else 0 for record in records]
        produced = self._broker.produce.append_partitioned(
            request.identity,
            request.scope,
            request.names["topic"],
            [_bytes("value", record.value, record.value_text) or b"" for record in records],
            keys if any(key is not None for key in keys) else None,
            [-1 if record.partition is None else record.partition for record in records],
            headers if any(headers) else None,
            expires if any(expires) else None,
        )
        self._note(request, len(records))
        places = zip(produced.partitions, produced.offsets, strict=True)
        reply = Produced(
            [
                RecordPlace(partition, offset, index in produced.dead_lettered)
                for index, (partition, offset) in enumerate(places)
            ],
            produced.timestamp,
        )
        return PendingHttpReply(produced.group, json_reply(reply, 201))

    def _schedule(self, request: Request, records: list[RecordTerms]) -> Outcome:
        if len(records) > 1:
            raise InvalidArgument("only one record at a time can appear later: each is a change of its own")
        (record,) = records
        if record.ttl_ms:
            raise InvalidArgument("a record that appears later has no ttl_ms of its own")
        delayed, group = self._broker.delays.schedule(
            request.identity,
            request.scope,
            request.names["topic"],
            _bytes("value", record.value, record.value_text) or b"",
            _bytes("key", record.key, record.key_text),
            -1 if record.partition is None else record.partition,
            record.delay_ms * 1000,
            _headers(record.headers),
        )
        self._note(request, 1)
        now = self._broker.now()
        place = (
            RecordPlace(offset=delayed, dead_letter=True)
            if isinstance(delayed, int)
            else RecordPlace(delayed=delayed.id)
        )
        return _after(group, Produced([place], now))

    def _note(self, request: Request, records: int) -> None:
        if request.by_hand:
            self._broker.audit.note(
                request.identity,
                "record.produce",
                scope=request.scope,
                resource=request.names["topic"],
                action="produce",
                records=str(records),
            )


def _after(group: CommitGroup, produced: Produced) -> PendingHttpReply:
    return PendingHttpReply(group, json_reply(produced, 201))


def bounds_of(broker: Broker, where: ScanTarget) -> list[Bounds]:
    """The bounds of all partitions. Raises AccessDenied, TopicNotFound."""
    broker.fetch.max_wait(*where)  # checks the permission to read, and that the topic exists
    return list(broker.topics.bounds(where.identity, where.scope, [where.topic])[where.topic])


def record_filter(broker: Broker, condition: Condition, go_on: Callable[[RecordFilter | None], Any]) -> Any:
    """The outcome of `go_on` with the filter, or work that results in it. Raises InvalidArgument."""
    if condition.where:
        return Deferred(lambda: RecordFilter(condition), go_on, executor=broker.scan_executor)
    return go_on(RecordFilter(condition) if condition.anything else None)


def locate(
    broker: Broker,
    where: ScanTarget,
    query: RecordSelection,
    bounds: list[Bounds],
    begin: Callable[[dict[int, int]], Any],
    *,
    newest: bool = False,
) -> Any:
    """The outcome of `begin` with the start offsets, or work that results in it. `newest`: start at the end by
    default."""
    chosen = _chosen(query, len(bounds))
    if query.position is not None:
        between = {at: (bounds[at].start, bounds[at].high_watermark) for at in chosen}
        return PositionSearch(broker, where, between, query.position, begin).step()
    if query.time is not None:
        reads = {at: broker.topics.offset_at(*where, at, query.time) for at in chosen}

        def find() -> None:
            for read in reads.values():
                read.run()

        return Deferred(find, lambda _: begin({at: read.finish() for at, read in reads.items()}))
    return begin(_start(query, bounds, chosen, newest=newest))


def _chosen(query: RecordSelection, count: int) -> list[int]:
    """The requested partitions. Raises PartitionNotFound."""
    if query.partition is None:
        return list(range(count))
    if query.partition >= count:
        raise PartitionNotFound("", query.partition, count)
    return [query.partition]


def _cursor(text: str, count: int) -> dict[int, int]:
    at = decode_cursor(text)
    if any(not 0 <= partition < count for partition in at):
        raise InvalidArgument("'after' is of another topic")
    return at


def _start(query: RecordSelection, bounds: list[Bounds], chosen: list[int], *, newest: bool) -> dict[int, int]:
    """The start offsets, by partition."""
    backwards = query.order == "desc"
    newest = backwards or newest if query.start is None else query.start == "latest"
    found = {}
    for partition in chosen:
        start, end = bounds[partition]
        if query.offset is not None:
            found[partition] = query.offset + 1 if backwards else query.offset
        elif query.last is not None:
            found[partition] = max(start, end - query.last)
        else:
            found[partition] = end if newest else start
    return found


def _bytes(what: str, data: bytes | None, text: str | None) -> bytes | None:
    if data is not None and text is not None:
        raise InvalidArgument(f"give '{what}' or '{what}_text', not both")
    return data if text is None else text.encode()


def _headers(terms: list[HeaderTerms]) -> Headers:
    return tuple((each.name, _bytes("value", each.value, each.text) or b"") for each in terms)
