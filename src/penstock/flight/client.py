"""A log over Arrow Flight: the `Log` for the option `bootstrap.servers`.

Calls that fail because a server is unavailable are retried with the next server; an interrupted read continues after
the last record received. Publishing may be retried too: the broker does it exactly once.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from penstock.flight import wire
from penstock.flight.errors import (
    AccessRefused,
    FlightLogError,
    LogUnavailable,
    NotLoggedIn,
    OffsetsLost,
    OptionsUnusable,
    OutcomeUnknown,
    RequestRefused,
    TopicMissing,
)
from penstock.flight.log import Published, SchemaText, Staged, TableInfo, TopicPartition
from penstock.flight.options import BrokerOptions
from penstock.log.engine import Bounds
from penstock.retry import RetryPolicy, no_jitter
from penstock.typed_decoding import decode_json

RETRIES: Final = 3
RETRY_SECONDS: Final = 0.01  # before the first retry; doubled each time
LONGEST_RETRY_SECONDS: Final = 1.0
CALL_SECONDS: Final = 60.0  # timeout of a call
PUBLISH_SECONDS: Final = 600.0
QUERY_SECONDS: Final = 600.0  # the broker's own limit is usually much lower
PLACES: Final = 1_000  # partitions or topics in one request

CHANNEL: Final = [
    # By default the channels of a process share the state of an address, including that it was just unreachable.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

Reply = TypeVar("Reply", bound=wire.Message)
T = TypeVar("T")


class FlightLog:
    """See `penstock.flight.log.Log`. Any thread."""

    def __init__(self, options: BrokerOptions, *, retries: int = RETRIES, retry_seconds: float = RETRY_SECONDS) -> None:
        """Connects on first use. Raises OptionsUnusable if a file named in the options cannot be read."""
        self._options = options
        self._retry = RetryPolicy(retries + 1, retry_seconds, LONGEST_RETRY_SECONDS, no_jitter)
        self._channel = _channel_options(options)
        self._headers = _headers(options)
        self._lock = threading.Lock()
        self._client: Any = None
        self._turn = 0  # index of the current server
        self.stale = False

    # -- metadata

    def topics(self) -> dict[str, int]:
        return self._act("topics", wire.Nothing(), wire.Topics).topics

    def bounds(self, topics: Collection[str]) -> dict[TopicPartition, Bounds]:
        found: dict[TopicPartition, Bounds] = {}
        for names in _chunks(list(topics)):
            answer = self._act("bounds", wire.BoundsOf(tuple(names)), wire.Bounds)
            self.stale = answer.stale
            for part in answer.bounds:
                found[TopicPartition(part.topic, part.partition)] = Bounds(part.start, part.end)
        return found

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for places in _chunks(list(times)):
            at = tuple(wire.At(*tp, times[tp]) for tp in places)
            offsets = self._act("offsets-at", wire.OffsetsAt(at), wire.Offsets).offsets
            found.update(zip(places, offsets, strict=True))
        return found

    def fitting(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_bytes: int
    ) -> dict[TopicPartition, int]:
        places = list(starts)
        ranges = tuple(wire.Range(*tp, starts[tp], max(starts[tp], ends[tp])) for tp in places)
        found = self._act("fitting", wire.Fitting(ranges, max_bytes), wire.Ends).ends
        return dict(zip(places, found, strict=True))

    def schema(self, subject: str, version: int | None = None, *, with_id: bool = False) -> SchemaText:
        found = self._act("schema", wire.SchemaOf(subject, version, with_id), wire.Schema)
        return SchemaText(found.format, found.definition, found.version, found.id)

    def table(self, topic: str) -> TableInfo | None:
        found = self._act("table", wire.TableOf(topic), wire.TableFound).table
        if found is None:
            return None
        return TableInfo(
            found.url,
            found.options,
            found.topic,
            {part.partition: part.end for part in found.partitions},
            found.now,
            found.horizon,
            {part.partition: part.start for part in found.partitions if part.start},
            {part.partition: tuple(part.gone) for part in found.partitions if part.gone},
            found.typed,
        )

    # -- records

    def read(self, tp: TopicPartition, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = list(columns)
        asked = tuple(wanted if "offset" in wanted else [*wanted, "offset"])  # needed to resume
        at, budget = start, _RetryBudget(self._retry)
        while at < end:
            try:
                for batch in self._stream(wire.Ticket(*tp, at, end, asked)):
                    at = int(batch.column("offset")[-1].as_py()) + 1
                    budget.reset()
                    yield batch if len(asked) == len(wanted) else batch.select(wanted)
            except LogUnavailable:
                budget.wait()
            else:
                return

    def _stream(self, ticket: wire.Ticket) -> Iterator[pa.RecordBatch]:
        with self._plainly() as client:
            reader = client.do_get(flight.Ticket(wire.encode(ticket)), self._call_options(None))
            try:
                for chunk in reader:
                    if chunk.data is not None and len(chunk.data):
                        yield chunk.data
            finally:
                with suppress(Exception):  # if the caller stops early, the broker must stop sending
                    reader.cancel()

    def sql(self, text: str, params: Sequence[int | str | bool | None] = (), position: int | None = None) -> pa.Table:
        """The rows of a query; with `position`, of the log as of then. The metadata of their schema names the position
        up to which they are true (`wire.POSITION`), and whether a standby gave them (`wire.STALE`).
        """
        ticket = flight.Ticket(wire.encode(wire.Statement(text, tuple(params), position)))
        budget = _RetryBudget(self._retry)
        while True:
            try:
                with self._plainly() as client:
                    return client.do_get(ticket, self._call_options(QUERY_SECONDS)).read_all()
            except LogUnavailable:
                budget.wait()

    def stage(
        self,
        app: str,
        batch: int,
        task: str,
        topic: str | None,
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
    ) -> Staged:
        """Not retried once records have been sent: `batches` can be consumed only once."""
        self._act("bounds", wire.BoundsOf(()), wire.Bounds)  # finds a server that answers
        command = wire.PutCommand(topic, app, batch, task)
        descriptor = flight.FlightDescriptor.for_command(wire.encode(command))
        with self._plainly() as client:
            writer, answers = client.do_put(descriptor, schema, self._call_options(None))
            answer = None
            try:
                for each in batches:
                    writer.write_batch(each)
                writer.done_writing()
                answer = answers.read()
            except (pa.ArrowException, OSError):
                writer.close()  # raises the actual error
                raise
            writer.close()
            if answer is None:
                raise LogUnavailable("The broker gave no answer to the records that were sent; send them again")
            found = decode_json(answer.to_pybytes(), wire.Staged)
            return Staged(found.ref, found.rows)

    def publish(self, app: str, batch: int, refs: Sequence[str]) -> Published:
        asked = wire.Publication(app, batch, tuple(refs))
        found = self._act("publish", asked, wire.Published, PUBLISH_SECONDS)
        return Published(found.rows, found.repeated)

    def discard(self, app: str, batch: int, refs: Sequence[str]) -> None:
        self._act("discard", wire.Publication(app, batch, tuple(refs)), wire.Nothing)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        for places in _chunks(list(offsets)):
            commits = tuple(wire.Commit(*tp, offsets[tp]) for tp in places)
            self._act("commit-offsets", wire.CommitOffsets(group, commits), wire.Nothing)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- calls

    def _act(self, name: str, request: wire.Message, reply: type[Reply], seconds: float = CALL_SECONDS) -> Reply:
        action = flight.Action(name, wire.encode(request))
        budget = _RetryBudget(self._retry)
        while True:
            try:
                with self._plainly() as client:
                    (result,) = client.do_action(action, self._call_options(seconds))
                    return decode_json(result.body.to_pybytes(), reply)
            except LogUnavailable:
                budget.wait()

    def _call_options(self, seconds: float | None) -> Any:
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)

    @contextmanager
    def _plainly(self) -> Iterator[Any]:
        """A connection. Errors are translated to those of `Log`; after one that may be the connection's, the next call
        uses the next server.
        """
        client = self._connected()
        try:
            yield client
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            said = _said(error, self._servers)
            if isinstance(said, LogUnavailable):
                self._leave(client)
            raise said from None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                host, port = self._options.servers[self._turn % len(self._options.servers)]
                shown = f"[{host}]" if ":" in host else host
                scheme = "grpc+tls" if self._options.tls else "grpc"
                self._client = flight.FlightClient(f"{scheme}://{shown}:{port}", **self._channel)
            return self._client

    def _leave(self, client: Any) -> None:
        """Use another server. Other threads may still read over the connection: it is closed when it is no longer
        referenced.
        """
        with self._lock:
            if self._client is client:
                self._client = None
                self._turn += 1

    @property
    def _servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._options.servers)


class _RetryBudget:
    """The remaining attempts of one call. Used while an error is being handled."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failed = 0

    def reset(self) -> None:
        self._failed = 0

    def wait(self) -> None:
        """Sleep until the next attempt. Re-raises the error if no attempts are left."""
        if self._failed + 1 >= self._policy.attempts:
            raise  # the error being handled
        time.sleep(self._policy.delay(self._failed))
        self._failed += 1


def _chunks(items: list[T]) -> Iterator[list[T]]:
    return (items[at : at + PLACES] for at in range(0, len(items), PLACES))


# -- options


def _headers(options: BrokerOptions) -> list[tuple[bytes, bytes]]:
    headers = [(wire.TENANT.encode(), options.scope.tenant.encode())]
    headers.append((wire.NAMESPACE.encode(), options.scope.namespace.encode()))
    if options.api_key is not None:
        headers.append((wire.AUTHORIZATION.encode(), b"Bearer " + options.api_key.encode()))
    elif options.user is not None:
        shown = base64.b64encode(f"{options.user}:{options.password}".encode())
        headers.append((wire.AUTHORIZATION.encode(), b"Basic " + shown))
    return headers


def _channel_options(options: BrokerOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"generic_options": CHANNEL}
    if options.tls:
        if options.tls_ca is not None:
            found["tls_root_certs"] = _content("tls.ca", options.tls_ca)
        if options.tls_cert is not None and options.tls_key is not None:
            found["cert_chain"] = _content("tls.cert", options.tls_cert)
            found["private_key"] = _content("tls.key", options.tls_key)
        if options.tls_hostname is not None:
            found["override_hostname"] = options.tls_hostname
    return found


def _content(option: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OptionsUnusable(f"Option `{option}`: {path} cannot be read: {error.strerror}") from None


# -- errors

_MISSING: Final = frozenset({"TopicNotFound", "PartitionNotFound", "SchemaNotFound", "TypedTableNotFound"})
_LATER: Final = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)


def _said(error: Exception, servers: str) -> FlightLogError:
    """The domain error that a Flight error stands for."""
    text, detail = _parts(error)
    if detail is None:
        return _unexplained(error, text, servers)
    kind = detail.error
    if kind == "CommitFailed":
        return OutcomeUnknown(f"The broker at {servers}: {text}")
    if isinstance(error, flight.FlightUnavailableError):
        return LogUnavailable(f"The broker at {servers}: {text}")
    if isinstance(error, flight.FlightUnauthenticatedError):
        return NotLoggedIn(f"The broker at {servers}: {text}. Give the options `user` and `password`, or `api.key`")
    if isinstance(error, flight.FlightUnauthorizedError):
        return AccessRefused(f"The broker at {servers}: {text}. Ask its administrator for a grant, or use another user")
    if kind == "OffsetsLost":
        return OffsetsLost(text, detail.start or 0)
    if kind in _MISSING:
        return TopicMissing(text)
    if isinstance(error, flight.FlightInternalError):
        return FlightLogError(f"The broker at {servers}: {text}")
    return RequestRefused(text)


def _unexplained(error: Exception, text: str, servers: str) -> FlightLogError:
    """The error for one that does not come from Penstock: most likely of the connection."""
    if isinstance(error, (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError)):
        return RequestRefused(f"{servers}: {text}")
    if isinstance(error, (*_LATER, flight.FlightServerError, flight.FlightInternalError, OSError)):
        return LogUnavailable(
            f"No broker answers at {servers} ({text}). Is it running, is this its Flight port (`flight` in what it "
            "prints at its start), and does it want TLS (options `tls.…`)?"
        )
    return FlightLogError(f"{servers}: {text}")


def _parts(error: Exception) -> tuple[str, wire.Detail | None]:
    """The text for people, and the details for programs."""
    whole = str(error)
    text = whole.split(". gRPC client debug context")[0].split(". Detail: ")[0]
    given = getattr(error, "extra_info", None) or b""
    if not given and wire.DETAIL in whole:
        given = whole.split(wire.DETAIL, 1)[1].encode()
        given = given[: given.find(b"}") + 1]
    try:
        return text, decode_json(given, wire.Detail)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return text, None
