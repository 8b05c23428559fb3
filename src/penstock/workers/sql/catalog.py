"""The catalog of one statement, in the SQL process: what the broker permits it to see and do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from penstock.broker.queries.query import Declared
from penstock.flight.reading import Reader
from penstock.sql.catalog import Stream
from penstock.workers.rpc import RemoteError, RpcClient
from penstock.workers.sql.rpc_messages import (
    Append,
    BreakGlass,
    Declaration,
    Names,
    Opened,
    OpenRequest,
    OpenStream,
    Position,
    StatementRequest,
    rebuilt,
)
from penstock.workers.sql.streams import ExpiryScan, ReadContext, TopicStream, statement_error
from penstock.workers.sql.typed_stream import TypedTopicStream
from penstock.workers.supervisor import Empty

CHUNK: Final = 256  # streams per request to the broker, which bounds its time; those of a join are in one

T = TypeVar("T")


class BrokerCatalog:
    """The `Catalog` of the statement with this number."""

    def __init__(
        self, client: RpcClient, reader: Reader, expiry_scan: ExpiryScan, number: int, check: Callable[[], None]
    ) -> None:
        """`check` is called regularly, and raises if the statement must end."""
        self._client = client
        self._check = check
        self._reading = ReadContext(reader, expiry_scan, check, self._record_failure)
        self._number = number
        self._head: int | None = None  # log position of the statement's snapshot, once it has one
        self.failure: Exception | None = None  # the first one while records were read

    def head(self) -> int:
        if self._head is None:
            self._head = self._call("sql.head", StatementRequest(self._number), Position).position
            assert self._head is not None
        return self._head

    def refresh(self) -> None:
        self._head = None

    def names(self) -> list[str]:
        return self._call("sql.names", StatementRequest(self._number), Names).names

    def open(self, names: Sequence[str]) -> dict[str, Stream]:
        found: dict[str, Stream] = {}
        for at in range(0, len(names), CHUNK):
            request = OpenRequest(self._number, list(names[at : at + CHUNK]))
            opened = self._call("sql.open", request, Opened)
            self._head = opened.head if self._head is None else self._head
            streams = {
                one.typed or one.read_view.name: self._stream(one, opened.head, self._head)
                for one in opened.streams
                if one.created < self._head
            }
            found.update(streams)
        return found

    def _stream(self, opened: OpenStream, head: int, at: int) -> Stream:
        topic = TopicStream(opened.read_view, opened.declarations, opened.created, head, self._reading).as_of(at)
        return TypedTopicStream(opened.typed, topic, opened.read_view, self._reading) if opened.typed else topic

    def declare(self, name: str, declared: Declared | None, *, create: bool) -> int:
        found = self._call("sql.declare", Declaration(self._number, name, declared, create), Position).position
        assert found is not None
        return found

    def append(
        self, name: str, events: Sequence[bytes], keys: Sequence[bytes | None] | None, expected: int | None
    ) -> int | None:
        request = Append(self._number, name, list(events), None if keys is None else list(keys), expected)
        return self._call("sql.append", request, Position).position

    def break_glass(self, reason: str) -> None:
        self._call("sql.break_glass", BreakGlass(self._number, reason), Empty)

    def _call(self, name: str, request: msgspec.Struct, kind: type[T]) -> T:
        self._check()
        try:
            return self._client.call(name, request, kind)
        except RemoteError as error:
            raise rebuilt(error.kind, str(error)) from None

    def _record_failure(self, error: Exception) -> Exception:
        reported = statement_error(error)
        if self.failure is None:
            self.failure = reported
        return reported
