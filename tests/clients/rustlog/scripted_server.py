"""A small RustLog server for the client's tests: topics in memory, one reply for each request, and faults on demand.

It speaks through real sockets, on a thread of its own, so that blocking and asyncio clients meet the same server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Coroutine
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.broker.errors import BrokerError, PartitionNotFound, TopicExists, TopicNotFound
from penstock.doors.rustlog.errors import error_reply
from penstock.log.errors import LogError
from penstock.wire.rustlog.codec.dialect import detect
from penstock.wire.rustlog.frames import Framer, frame
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Fetch,
    FetchedRecord,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionSummary,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    Request,
    Response,
    TopicSummary,
)

T = TypeVar("T")

TIMESTAMP = 1_700_000_000_000_000


class Fault(Enum):
    """What happens to one reply."""

    NONE = auto()
    DROP = auto()  # the connection is closed instead
    HALF = auto()  # half of it is sent, then the connection is closed
    SILENCE = auto()  # it is never sent
    CLOSE_AFTER = auto()  # it is sent, then the connection is closed
    JUNK = auto()  # a payload that is no message is sent instead
    WRONG = auto()  # a Pong is sent instead
    BAD_LENGTH = auto()  # a length that no frame has is sent instead
    TWICE = auto()  # it is sent twice


class Store:
    """Topics, their records, and committed offsets."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[bytes]]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}

    def _partition(self, topic: str, partition: int) -> list[bytes]:
        partitions = self.topics.get(topic)
        if partitions is None:
            raise TopicNotFound(topic)
        if partition >= len(partitions):
            raise PartitionNotFound(topic, partition, len(partitions))
        return partitions[partition]

    def answer(self, request: Request) -> Response:
        match request:
            case Produce():
                log = self._partition(request.topic, request.partition)
                log.extend(request.records)
                return ProduceResponse(len(log) - len(request.records), len(request.records))
            case Fetch():
                log = self._partition(request.topic, request.partition)
                found = log[request.offset :]
                records = [FetchedRecord(request.offset + i, TIMESTAMP, value) for i, value in enumerate(found)]
                return FetchResponse(records, request.offset + len(found))
            case OffsetCommit():
                self.offsets[request.group, request.topic, request.partition] = request.offset
                return OffsetCommitResponse(True)
            case OffsetFetch():
                return OffsetFetchResponse(self.offsets.get((request.group, request.topic, request.partition)))
            case CreateTopic():
                if request.topic in self.topics:
                    raise TopicExists(request.topic, len(self.topics[request.topic]))
                self.topics[request.topic] = [[] for _ in range(request.partition_count)]
                return CreateTopicResponse(True, request.partition_count)
            case ListTopics():
                return ListTopicsResponse([TopicSummary(name, len(parts)) for name, parts in self.topics.items()])
            case DescribeTopic():
                self._partition(request.topic, 0)
                partitions = self.topics[request.topic]
                return DescribeTopicResponse(
                    request.topic, [PartitionSummary(i, len(log), 0, 1) for i, log in enumerate(partitions)]
                )
            case DescribePartition():
                log = self._partition(request.topic, request.partition)
                return DescribePartitionResponse(request.topic, request.partition, len(log), 0, 1)
            case MetricsFetch():
                return MetricsFetchResponse("up 1\n")
            case Ping():
                return Pong()


class ScriptedServer:
    """Use as a context manager. `port` is known from the start; connections to it are refused outside."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.requests: list[Request] = []  # all that arrived
        self.connections = 0
        self.faults: deque[Fault] = deque()  # one for each reply to come; none when empty
        self.errors: deque[Exception | None] = deque()  # likewise: the error to answer with
        self.hold = 1  # replies are sent when so many have gathered
        self.split = False  # every byte of a reply is sent by itself
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._arrived = threading.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # A client that does nothing does not answer TLS's goodbye either: do not wait for it.
        patience = None if self._tls is None else 0.01
        self._server = self._run(
            asyncio.start_server(self._handle, sock=self._socket, ssl=self._tls, ssl_shutdown_timeout=patience)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, timeout=10)

    def drop_connections(self) -> None:
        """Close all connections from this side."""
        self._run(self._drop())

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.close()
        if self._handlers:
            await asyncio.wait(list(self._handlers), timeout=10)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        self._handlers.add(task)
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except OSError:
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._writers.discard(writer)
            self._handlers.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framer = Framer()
        held: list[tuple[bytes, Fault]] = []
        while data := await reader.read(65536):
            held += [(self._reply(payload), self._fault()) for payload in framer.feed(data)]
            if len(held) < self.hold:
                continue
            for reply, fault in held:
                if not await self._send(writer, reply, fault):
                    return
            held.clear()

    def _fault(self) -> Fault:
        return self.faults.popleft() if self.faults else Fault.NONE

    def _reply(self, payload: bytes) -> bytes:
        dialect = detect(payload)
        request = dialect.decode_request(payload)
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        try:
            if self.errors and (error := self.errors.popleft()) is not None:
                raise error
            return frame(dialect.encode_response(self.store.answer(request)))
        except (BrokerError, LogError) as error:
            return frame(dialect.encode_error(error_reply(error, request, list(self.store.topics))))

    async def _send(self, writer: asyncio.StreamWriter, reply: bytes, fault: Fault) -> bool:
        """Send one reply as the fault has it. False if the connection ends with it."""
        pong = b"\xff" if reply[4:5] != b"{" else b'{"type":"Pong"}'
        sent = {
            Fault.DROP: b"",
            Fault.SILENCE: b"",
            Fault.HALF: reply[: len(reply) // 2],
            Fault.JUNK: frame(b"\xfdjunk"),
            Fault.WRONG: frame(pong),
            Fault.BAD_LENGTH: b"\xff\xff\xff\xff",
            Fault.TWICE: reply * 2,
        }.get(fault, reply)
        pieces = [sent] if not self.split else [bytes([byte]) for byte in sent]
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return fault not in (Fault.DROP, Fault.HALF, Fault.CLOSE_AFTER)
