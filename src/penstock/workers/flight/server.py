"""The Arrow Flight door, in its own process: topics are flights, partitions their endpoints, and a ticket is an offset
range of a partition.

Every call is authenticated first (`callers`), then the broker checks the caller's permissions (`rpc_handlers`). Records
are read from the files (`penstock.flight.reading`), so that reads cost the broker nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyarrow import flight

from penstock.broker.security.access import ANONYMOUS
from penstock.broker.security.lockout import host_of
from penstock.flight import wire
from penstock.flight.reading import Lost, PartitionSource, Reader, shares
from penstock.log.arrow import STORED, schema_of
from penstock.log.tables.location import TYPED_SUFFIX
from penstock.retry import RetryPolicy, no_jitter
from penstock.workers.flight import rpc_messages
from penstock.workers.flight.callers import Caller, Callers, Headers, Unauthenticated, plain_peer
from penstock.workers.flight.concurrency import ConcurrencyLimit, Slot, end_stalled
from penstock.workers.flight.errors import Refused, client_error
from penstock.workers.flight.rpc_messages import FlightSettings
from penstock.workers.read_view_source import source_of, view_of
from penstock.workers.rpc import RemoteError, RpcClient
from penstock.workers.supervisor import Empty

if TYPE_CHECKING:  # takes a while to load: only when a typed table is read
    from penstock.workers.flight.typed_flight import TypedFlight

CHUNK: Final = 32  # topics per request to the broker, which bounds its time
LAG_SECONDS: Final = 5.0  # that a standby has to reach the end of a read
LAG_STEP: Final = 0.05
LAG_RETRY: Final = RetryPolicy(base=LAG_STEP, cap=LAG_SECONDS, random=no_jitter)  # until `LAG_SECONDS` are over
RECHECK_SECONDS: Final = 5.0  # between permission checks of a stream
SECRET: Final = ("secret", "password", "token", "key", "sas", "credential")

T = TypeVar("T")


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, settings: FlightSettings, broker: RpcClient, reader: Reader, **options: Any) -> None:
        """Raises OSError or pyarrow's ArrowException if the port cannot be opened."""
        self._broker = broker
        self._reader = reader
        self._callers = Callers(lambda login: broker.call("flight.login", login, rpc_messages.LoggedIn))
        self._settings = settings
        self._calls = ConcurrencyLimit(settings.calls, "calls", settings.share)
        self._streams = ConcurrencyLimit(settings.streams, "streams", settings.share)
        threading.Thread(
            target=end_stalled, args=(self._streams, settings.unread_seconds), name="stalled", daemon=True
        ).start()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "grpc+tls" if settings.cert else "grpc"
        super().__init__(
            f"{scheme}://{host}:{settings.port}",
            auth_handler=_NoHandshake(),
            middleware={"headers": _HeaderMiddleware(self._callers)},
            **_tls(settings),
            **options,
        )

    # -- metadata

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._authenticated(context) as caller:
            if len(criteria) > wire.MAX_BODY:
                raise wire.Unusable("the criteria are too long")
            prefix = criteria.decode("utf-8", "replace")
            found = self._topics(caller)
            known = schema_of(wire.COLUMNS)
        for name in sorted([*found.topics, *found.typed]):
            if name.startswith(prefix):  # the schemas of typed tables are in their files: `get_schema` reads them
                schema = known if name in found.topics else None
                yield flight.FlightInfo(schema, flight.FlightDescriptor.for_path(name), [], -1, -1)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._authenticated(context) as caller:
            request = _command(descriptor)
            if (typed := self._typed(caller, request.topic)) is not None:
                return typed.info(descriptor, request.columns)
            columns = request.columns or wire.COLUMNS
            schema = _schema(columns)
            found = self._bounds(caller, [request.topic])
            if request.topic not in found:
                raise Refused("TopicNotFound", f"Topic '{request.topic}' not found")
            endpoints = [
                flight.FlightEndpoint(wire.encode(wire.Ticket(request.topic, number, start, end, columns)), [])
                for number, (start, end) in enumerate(found[request.topic])
            ]
            total = sum(end - start for start, end in found[request.topic])
            return flight.FlightInfo(schema, descriptor, endpoints, total, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._authenticated(context) as caller:
            request = _command(descriptor)
            if (typed := self._typed(caller, request.topic)) is not None:
                return flight.SchemaResult(typed.schema(request.columns))
            if request.topic not in self._bounds(caller, [request.topic]):
                raise Refused("TopicNotFound", f"Topic '{request.topic}' not found")
            return flight.SchemaResult(_schema(request.columns or wire.COLUMNS))

    # -- records

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._authenticated(context) as caller:
            request = wire.decode_ticket(ticket.ticket)
            if isinstance(request, wire.Statement):
                return self._rows(caller, request)
            if (typed := self._typed(caller, request.topic)) is not None:
                return self._typed_stream(context, caller, request, typed)
            columns = request.columns or wire.COLUMNS
            schema = _schema(columns)
            read_view = self._reaching(caller, request)
            source, view = source_of(read_view, 0), view_of(read_view, 0)
            end = source.end if request.end is None else request.end
            if end > source.end:
                raise Refused("OffsetsAhead", f"the partition ends at offset {source.end}, before {end}")
            if request.start < source.start and request.start < end:
                raise Lost(request.start, source.start)
            slot = self._stream_slot(caller)
            check = self._checking(context, slot, lambda: self._read_view(caller, request.topic, request.partition))
            batches = self._reader.read(source, request.start, end, columns, view, check)
            # The generator holds the slot, which is released when Arrow drops the generator, even if it was never
            # started.
            return flight.GeneratorStream(schema, _stream(batches, slot, anonymous=caller.anonymous))

    def _typed_stream(self, context: Any, caller: Caller, request: wire.Ticket, typed: TypedFlight) -> Any:
        slot = self._stream_slot(caller)
        check = self._checking(context, slot, lambda: self._typed_view(caller, request.topic))
        batches = typed.rows(request, check)
        schema = typed.schema(request.columns)
        return flight.GeneratorStream(schema, _stream(batches, slot, anonymous=caller.anonymous))

    def _reaching(self, caller: Caller, request: wire.Ticket) -> rpc_messages.ReadViewMessage:
        """The read view of a request. A standby waits until it has the end that is asked for, or refuses."""
        wanted = max(request.start, request.end or 0)
        give_up = time.monotonic() + LAG_SECONDS
        while True:
            read_view = self._read_view(caller, request.topic, request.partition)
            end = source_of(read_view, 0).end
            if wanted <= end or not self._settings.standby:
                return read_view
            if time.monotonic() > give_up:
                raise Refused(
                    "Lagging",
                    f"this broker is a standby, and has partition {request.partition} of {request.topic!r} up to "
                    f"offset {end}, and not yet up to {wanted}: try again, or ask the owner of the journal",
                )
            time.sleep(LAG_STEP)

    def _rows(self, caller: Caller, statement: wire.Statement) -> Any:
        """The rows of a query, which holds the place of a stream while it runs."""
        from penstock.broker.queries.arrow_rows import arrow_table

        with self._stream_slot(caller):
            found = self._query(caller, statement)
        about = {wire.POSITION: str(found.position), wire.STALE: "true" if self._settings.standby else "false"}
        return flight.RecordBatchStream(arrow_table(found.columns, found.rows).replace_schema_metadata(about))

    def _query(self, caller: Caller, statement: wire.Statement) -> rpc_messages.QueryRows:
        """Run a query. A standby waits until it has the position that is asked for, or refuses."""
        request = rpc_messages.QueryRequest(
            caller.identity, caller.scope, statement.sql, list(statement.params), statement.position
        )
        give_up, attempt = time.monotonic() + LAG_SECONDS, 0
        while True:
            try:
                return self._broker.call("flight.query", request, rpc_messages.QueryRows)
            except RemoteError as error:
                if error.kind != "PositionAhead" or not self._settings.standby:
                    raise
                if time.monotonic() > give_up:
                    text = f"this broker is a standby. {error}: try again, or ask the owner of the journal"
                    raise Refused("Lagging", text) from None
            time.sleep(LAG_RETRY.delay(attempt))
            attempt += 1

    def _stream_slot(self, caller: Caller) -> Slot:
        """A stream slot, by tenant and caller. Anonymous callers are distinguished by their connection."""
        identity = caller.identity
        who = f"anonymous@{identity.peer}" if identity.name == ANONYMOUS.name else identity.name
        return self._streams.acquire(caller.scope.tenant, who, peer=identity.peer)

    def _checking(self, context: Any, slot: Slot, check_permission: Callable[[], object]) -> Callable[[], None]:
        """A check that ends a stream if its client has disconnected, or has lost the permission to read."""
        checked = time.monotonic()

        def check() -> None:
            nonlocal checked
            slot.touch()
            if context.is_cancelled():
                raise flight.FlightCancelledError("the client has gone")
            if time.monotonic() - checked > RECHECK_SECONDS:
                check_permission()
                checked = time.monotonic()

        return check

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        from penstock.workers.flight.put import put

        with self._authenticated(context) as caller:
            command = wire.decode(bytes(descriptor.command or b""), wire.PutCommand, "the command")
            slot = self._stream_slot(caller)
            with slot:
                moving = _MovingReader(reader, slot.touch)
                put(self._broker, self._settings, caller, command, moving, writer, context.is_cancelled)

    # -- actions

    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002 - not a secret
        return list(wire.ACTIONS.items())

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        with self._authenticated(context) as caller:
            known = _ACTIONS.get(action.type)
            if known is None:
                raise Refused("ActionUnknown", f"there is no action {action.type[:100]!r}; see list_actions")
            kind, perform = known
            size = 0 if action.body is None else action.body.size
            if size > wire.MAX_BODY:
                raise wire.Unusable(f"the body of the action has {size} bytes; {wire.MAX_BODY} are allowed")
            body = b"" if action.body is None else action.body.to_pybytes()
            request = wire.decode(body, kind, "the body of the action")
            return [wire.encode(perform(self, caller, request))]

    def _act_topics(self, caller: Caller, _: wire.Nothing) -> wire.Topics:
        return wire.Topics(self._topics(caller).topics)

    def _act_bounds(self, caller: Caller, request: wire.BoundsOf) -> wire.Bounds:
        found = self._bounds(caller, request.topics)
        return wire.Bounds(
            [
                wire.PartitionBounds(topic, number, start, end)
                for topic, partitions in found.items()
                for number, (start, end) in enumerate(partitions)
            ],
            stale=self._settings.standby,
        )

    def _act_offsets_at(self, caller: Caller, request: wire.OffsetsAt) -> wire.Offsets:
        read_views: dict[str, rpc_messages.ReadViewMessage] = {}
        found: list[int | None] = []
        for at in request.at:
            source = self._source_of(read_views, caller, at.topic, at.partition)
            found.append(self._reader.offset_at(source, at.timestamp) if source.start < source.end else None)
        return wire.Offsets(found)

    def _act_fitting(self, caller: Caller, request: wire.Fitting) -> wire.Ends:
        read_views: dict[str, rpc_messages.ReadViewMessage] = {}
        sources = [self._source_of(read_views, caller, part.topic, part.partition) for part in request.ranges]
        waiting = {which: max(0, part.end - part.start) for which, part in enumerate(request.ranges)}
        ends = [part.start for part in request.ranges]
        for which, share in shares(waiting, request.max_bytes).items():
            part, source = request.ranges[which], sources[which]
            if part.start < source.start:
                raise Lost(part.start, source.start)
            ends[which] = self._reader.offset_after(source, part.start, min(part.end, source.end), share)
        return wire.Ends(ends)

    def _act_schema(self, caller: Caller, request: wire.SchemaOf) -> wire.Schema:
        message = rpc_messages.SchemaRequest(caller.identity, caller.scope, request.subject, request.version)
        found = self._broker.call("flight.schema", message, rpc_messages.Schema)
        return wire.Schema(found.format, found.definition, found.version, found.id if request.with_id else 0)

    def _act_table(self, caller: Caller, request: wire.TableOf) -> wire.TableFound:
        if (view := self._typed_view(caller, request.topic)) is not None:
            return wire.TableFound(_open_typed(request.topic, view).table(_public_options(view)))
        read_view = self._read_view(caller, request.topic)
        table = read_view.table
        if table is None or not table.ends:
            return wire.TableFound(None)
        partitions = [
            wire.PartitionView(part.number, max(part.start, part.deleted_below), table.ends[part.number], part.deleted)
            for part in read_view.partitions
            if part.number in table.ends
        ]
        options = _public_options(read_view)
        return wire.TableFound(
            wire.Table(table.url, options, read_view.topic, read_view.now, read_view.horizon, partitions)
        )

    def _act_publish(self, caller: Caller, request: wire.Publication) -> wire.Published:
        from penstock.workers.flight.put import publish

        return publish(self._broker, caller, request)

    def _act_discard(self, caller: Caller, request: wire.Publication) -> wire.Nothing:
        from penstock.workers.flight.put import discard

        discard(self._broker, caller, request)
        return wire.Nothing()

    def _act_commit_offsets(self, caller: Caller, request: wire.CommitOffsets) -> wire.Nothing:
        offsets = [(one.topic, one.partition, one.offset) for one in request.offsets]
        message = rpc_messages.CommitRequest(caller.identity, caller.scope, request.group, offsets)
        self._broker.call("flight.commit", message, Empty)
        return wire.Nothing()

    # -- requests to the broker

    @contextmanager
    def _authenticated(self, context: Any) -> Iterator[Caller]:
        """The caller of a request. Errors are converted for the client."""
        anonymous = False
        try:
            with self._calls.acquire(host_of(plain_peer(context.peer()))):
                caller = self._callers.caller(context.get_middleware("headers").headers, context.peer())
                anonymous = caller.anonymous
                yield caller
        except Exception as error:  # noqa: BLE001 - `client_error` logs unexpected ones
            raise client_error(error, anonymous=anonymous) from None

    def _topics(self, caller: Caller) -> rpc_messages.Topics:
        request = rpc_messages.ScopedRequest(caller.identity, caller.scope)
        return self._broker.call("flight.topics", request, rpc_messages.Topics)

    def _bounds(self, caller: Caller, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for at in range(0, len(names), CHUNK):
            request = rpc_messages.BoundsRequest(caller.identity, caller.scope, list(names[at : at + CHUNK]))
            found.update(self._broker.call("flight.bounds", request, rpc_messages.Bounds).bounds)
        return found

    def _read_view(self, caller: Caller, topic: str, partition: int | None = None) -> rpc_messages.ReadViewMessage:
        request = rpc_messages.ReadViewRequest(caller.identity, caller.scope, topic, partition)
        return self._broker.call("flight.read_view", request, rpc_messages.ReadViewMessage)

    def _typed(self, caller: Caller, name: str) -> TypedFlight | None:
        """The typed table of this name; None if it is the name of a topic."""
        view = self._typed_view(caller, name)
        return None if view is None else _open_typed(name, view)

    def _typed_view(self, caller: Caller, name: str) -> rpc_messages.ReadViewMessage | None:
        if not name.endswith(TYPED_SUFFIX):
            return None
        request = rpc_messages.ReadViewRequest(caller.identity, caller.scope, name)
        return self._broker.call("flight.typed_view", request, rpc_messages.TypedView).view

    def _source_of(
        self, read_views: dict[str, rpc_messages.ReadViewMessage], caller: Caller, topic: str, partition: int
    ) -> PartitionSource:
        read_view = read_views.get(topic)
        if read_view is None:
            read_view = read_views[topic] = self._read_view(caller, topic)
        if partition >= len(read_view.partitions):
            raise Refused("PartitionNotFound", f"Partition {partition} not found in topic '{topic}'")
        return source_of(read_view, partition)


_ACTIONS: Final[dict[str, tuple[type[Any], Callable[[FlightServer, Caller, Any], wire.Message]]]] = {
    "topics": (wire.Nothing, FlightServer._act_topics),
    "bounds": (wire.BoundsOf, FlightServer._act_bounds),
    "offsets-at": (wire.OffsetsAt, FlightServer._act_offsets_at),
    "fitting": (wire.Fitting, FlightServer._act_fitting),
    "schema": (wire.SchemaOf, FlightServer._act_schema),
    "table": (wire.TableOf, FlightServer._act_table),
    "publish": (wire.Publication, FlightServer._act_publish),
    "discard": (wire.Publication, FlightServer._act_discard),
    "commit-offsets": (wire.CommitOffsets, FlightServer._act_commit_offsets),
}


def _schema(columns: Sequence[str]) -> pa.Schema:
    known = STORED.names
    unknown = [name for name in columns if name not in known]
    if unknown or len(set(columns)) < len(columns):
        wrong = f"there is no column {unknown[0][:100]!r}" if unknown else "a column is there twice"
        raise Refused("ColumnUnknown", f"{wrong}; the columns are {', '.join(known)}")
    return schema_of(columns)


def _command(descriptor: Any) -> wire.TopicCommand:
    """The topic of a descriptor, from its path or a command in JSON."""
    if descriptor.path:
        if len(descriptor.path) > 1:
            raise wire.Unusable("the path of a flight has one part, the name of a topic")
        name = descriptor.path[0]
        data = wire.encode({"topic": name.decode("utf-8", "replace") if isinstance(name, bytes) else name})
        return wire.decode(data, wire.TopicCommand, "the path")
    return wire.decode(bytes(descriptor.command or b""), wire.TopicCommand, "the command")


def _open_typed(name: str, view: rpc_messages.ReadViewMessage) -> TypedFlight:
    from penstock.workers.flight.typed_flight import TypedFlight

    return TypedFlight(name, view)


def _public_options(view: rpc_messages.ReadViewMessage) -> dict[str, str]:
    """The store's options without secrets: readers of a topic may know where its table is, but need their own keys to
    the store."""
    options = {} if view.table is None else view.table.options
    return {name: text for name, text in options.items() if not any(part in name.lower() for part in SECRET)}


class _MovingReader:
    """A reader of record batches that reports its progress."""

    def __init__(self, reader: Any, touch: Callable[[], None]) -> None:
        self._reader = reader
        self._touch = touch
        self.schema = reader.schema

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._reader:
            self._touch()
            yield chunk


def _stream(batches: Iterator[pa.RecordBatch], slot: Slot, *, anonymous: bool) -> Iterator[pa.RecordBatch]:
    with slot:
        try:
            for batch in batches:
                yield batch
                slot.touch()  # it was sent
        except Exception as error:  # noqa: BLE001 - `client_error` logs unexpected ones
            raise client_error(error, anonymous=anonymous) from None


def _tls(settings: FlightSettings) -> dict[str, Any]:
    if not settings.cert:
        return {}
    options: dict[str, Any] = {"tls_certificates": [(_content(settings.cert), _content(settings.key))]}
    if settings.client_ca:
        options |= {"verify_client": True, "root_certificates": _content(settings.client_ca)}
    return options


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class _NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Accepts the handshake. Without a handler Arrow rejects the call by which `authenticate_basic_token` requests a
    token."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> bytes:  # noqa: ARG002 - headers identify the caller
        return b""


class _Headers(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, headers: Headers, token: str = "") -> None:
        self.headers = headers
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {wire.AUTHORIZATION: f"Bearer {self._token}"} if self._token else {}


class _HeaderMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Keeps the headers of a call for its method, which also knows the peer."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def start_call(self, info: Any, headers: Headers) -> _Headers:
        if info.method != flight.FlightMethod.HANDSHAKE:
            return _Headers(headers)
        try:
            return _Headers(headers, self._callers.issue_token(headers))
        except Unauthenticated as error:
            raise client_error(error) from None
