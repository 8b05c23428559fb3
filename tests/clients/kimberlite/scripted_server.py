"""A small Kimberlite server for the client's tests: streams in memory, every version, and faults on demand.

It speaks through real sockets, on a thread of its own, so that blocking and asyncio clients meet the same server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ServerCodec
from penstock.wire.kimberlite.frames import frame
from penstock.wire.kimberlite.messages import ErrorCode

T = TypeVar("T")

INFO = m.ServerInfoResponse("1.0", 5, ["query"], 7, m.ClusterMode.STANDALONE, 1)
TENANT = m.TenantInfo(7, "seven", 0, None)
KEY = m.ApiKeyInfo("id", "somebody", 7, ["User"], None)
AUDIT = m.AuditEventInfo("1", 5, "login")
CHAIN = m.VerifyAuditChainResponse(True, 3, "ab")
PHI = m.ColumnInfo("name", "TEXT", True, False)


class Fault(Enum):
    """What happens to the reply to one request."""

    NONE = auto()
    DROP = auto()  # it is carried out, and the connection is closed instead of the reply
    REFUSE = auto()  # it is not carried out, and the connection is closed
    HALF = auto()  # half of the reply is sent, then the connection is closed
    SILENCE = auto()  # it is carried out, and no reply is sent
    CLOSE_AFTER = auto()  # the reply is sent, then the connection is closed
    JUNK = auto()  # bytes that are no frame
    BAD_PAYLOAD = auto()  # a frame that cannot be read
    WRONG = auto()  # a reply of another kind
    STRANGER = auto()  # a reply to a request that was never made
    BYTEWISE = auto()  # every byte of it is sent by itself


class Stream:
    def __init__(self) -> None:
        self.events: list[bytes] = []


class ScriptedServer:
    """Use as a context manager. `port` is known from the start; connections to it are refused outside."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.streams: dict[int, Stream] = {}
        self.names: dict[str, int] = {}
        self.requests: list[m.Request] = []  # all that arrived, except handshakes
        self.handshakes: list[m.Handshake] = []
        self.faults: deque[Fault] = deque()  # one for each request to come, handshakes apart; none when empty
        self.errors: deque[m.ErrorResponse] = deque()  # for the requests to come, which are not carried out then
        self.shake_hands: deque[m.Message] = deque()  # replies to the handshakes to come
        self.hold = 1  # replies are sent when so many have gathered, the last first
        self.positions: dict[str, int] = {}  # of groups
        self.token: str | None = None  # that is wanted
        self.connections = 0
        self.pushed = 1  # events in one push
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._arrived = threading.Condition()
        self._peers: set[_Peer] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
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

    # -- what tests call

    def wait_for(self, ready: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(ready, timeout=10)

    def asked(self, kind: type[m.Message]) -> list[Any]:
        """The requests of a kind that have come."""
        return [request.payload for request in self.requests if isinstance(request.payload, kind)]

    def stream(self, name: str = "events", *events: bytes) -> int:
        number = self.names.setdefault(name, len(self.names) + 100)
        self.streams.setdefault(number, Stream()).events.extend(events)
        return number

    def publish(self, number: int, *events: bytes) -> None:
        async def job() -> None:
            self.streams[number].events.extend(events)
            self.push()

        self._run(job())

    def end_subscriptions(self, reason: m.CloseReason) -> None:
        async def job() -> None:
            for peer in self._peers:
                peer.end(reason)

        self._run(job())

    def drop_connections(self) -> None:
        self._run(self._drop())

    @property
    def members(self) -> int:
        """How many subscriptions there are."""
        return sum(len(peer.subscriptions) for peer in list(self._peers))

    @property
    def open(self) -> int:
        return len(self._peers)

    # -- on the thread of the loop

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()
        if self._peers:
            await asyncio.wait([peer.task for peer in self._peers], timeout=10)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = _Peer(self, writer)
        self._peers.add(peer)
        try:
            while data := await reader.read(1 << 20):
                peer.wire.feed(data)
                while (request := peer.wire.next()) is not None:
                    if not peer.carry_out(request):
                        return
                self.push()
                with self._arrived:
                    self._arrived.notify_all()
                await writer.drain()
        except OSError:
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            with self._arrived:
                self._peers.discard(peer)
                self._arrived.notify_all()

    def push(self) -> None:
        for peer in list(self._peers):
            peer.push()


class _Subscription:
    def __init__(self, stream: int, offset: int, credits: int, group: str | None) -> None:  # noqa: A002
        self.stream = stream
        self.offset = offset
        self.credits = credits
        self.group = group


class _Peer:
    """A connection, seen from the server."""

    def __init__(self, server: ScriptedServer, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.writer = writer
        self.wire = ServerCodec()
        self.subscriptions: dict[int, _Subscription] = {}
        self._held: list[bytes] = []
        task = asyncio.current_task()
        assert task is not None
        self.task = task

    def carry_out(self, request: m.Request) -> bool:
        """False if the connection ends with it."""
        server, payload = self.server, request.payload
        if isinstance(payload, m.Handshake):
            server.handshakes.append(payload)
            self.writer.write(self.wire.response(request.id, self._shake_hands(payload)))
            return True
        server.requests.append(request)
        if server.errors:
            self.writer.write(self.wire.response(request.id, server.errors.popleft()))
            return True
        fault = server.faults.popleft() if server.faults else Fault.NONE
        if fault is Fault.REFUSE:
            return False
        data = self.wire.response(request.id, self._answer(payload))
        return self._send(data, fault, request.id)

    def _send(self, data: bytes, fault: Fault, number: int) -> bool:
        if fault in (Fault.DROP, Fault.SILENCE):
            return fault is Fault.SILENCE
        if fault is Fault.HALF:
            data = data[: len(data) // 2]
        elif fault is Fault.JUNK:
            data = b"HTTP/1.1 400 Bad Request\r\n"
        elif fault is Fault.BAD_PAYLOAD:
            data = frame(bytearray(b"\x01\xff"), self.wire.version)
        elif fault is Fault.WRONG:
            data = self.wire.response(number, m.CreateStreamResponse(1))
        elif fault is Fault.STRANGER:
            data = self.wire.response(4_000_000, m.SyncResponse(True))
        elif fault is Fault.BYTEWISE:
            for byte in data:
                self.writer.write(bytes([byte]))
            return True
        self._held.append(data)
        if len(self._held) >= self.server.hold:
            self.writer.write(b"".join(reversed(self._held)))
            self._held.clear()
        return fault not in (Fault.HALF, Fault.CLOSE_AFTER)

    def _shake_hands(self, hello: m.Handshake) -> m.Message:
        server = self.server
        if server.shake_hands:
            return server.shake_hands.popleft()
        if server.token is not None and hello.auth_token not in (None, server.token):
            return m.ErrorResponse(ErrorCode.AUTHENTICATION_FAILED, "bad token")
        return m.HandshakeResponse(self.wire.version, server.token == hello.auth_token, ["query", "append"])

    def _answer(self, payload: m.Message) -> m.Message:
        if (fixed := _FIXED.get(type(payload))) is not None:
            return fixed
        answers: dict[type[m.Message], Callable[[Any], m.Message]] = {
            m.CreateStream: self._create_stream,
            m.AppendEvents: self._append_events,
            m.ReadEvents: self._read_events,
            m.StreamInfo: self._stream_info,
            m.Query: self._query,
            m.QueryAt: self._query_at,
            m.DescribeTable: self._describe_table,
            m.Subscribe: self._subscribe,
            m.SubscribeCredit: self._subscribe_credit,
            m.Unsubscribe: self._unsubscribe,
        }
        return answers[type(payload)](payload)

    def _create_stream(self, request: m.CreateStream) -> m.Message:
        if request.name in self.server.names and self.wire.version == 1:
            return m.ErrorResponse(ErrorCode.STREAM_ALREADY_EXISTS, "stream already exists")
        return m.CreateStreamResponse(self.server.stream(request.name))

    def _append_events(self, request: m.AppendEvents) -> m.Message:
        stream = self.server.streams.get(request.stream_id)
        if stream is None:
            return m.ErrorResponse(ErrorCode.STREAM_NOT_FOUND, "no such stream")
        end = len(stream.events)
        if request.expected_offset not in (None, end):
            text = f"offset mismatch for stream {request.stream_id}: expected {request.expected_offset}, actual {end}"
            return m.ErrorResponse(ErrorCode.OFFSET_MISMATCH, text)
        stream.events += request.events
        return m.AppendEventsResponse(end, len(request.events))

    def _read_events(self, request: m.ReadEvents) -> m.Message:
        events = self.server.streams[request.stream_id].events[request.from_offset :]
        size, count = 0, 0
        for event in events:
            size += len(event)
            if count and size > request.max_bytes:
                break
            count += 1
        end = request.from_offset + count
        return m.ReadEventsResponse(events[:count], end if count < len(events) else None)

    def _stream_info(self, request: m.StreamInfo) -> m.Message:
        return m.StreamInfoResponse(len(self.server.streams[request.stream_id].events))

    def _query(self, request: m.Query) -> m.Message:
        if request.sql.startswith("INSERT"):
            return m.QueryResponse(["rows_affected", "log_offset"], [[1, 42]])
        return m.QueryResponse([f"${number}" for number in range(1, len(request.params) + 1)], [request.params])

    def _query_at(self, request: m.QueryAt) -> m.Message:
        return m.QueryAtResponse(["position"], [[request.position]])

    def _describe_table(self, request: m.DescribeTable) -> m.Message:
        return m.DescribeTableResponse(request.table_name, [PHI])

    def _subscribe(self, request: m.Subscribe) -> m.Message:
        if request.stream_id not in self.server.streams:
            return m.ErrorResponse(ErrorCode.STREAM_NOT_FOUND, "no such stream")
        group = request.consumer_group
        start = request.from_offset if group is None else self.server.positions.setdefault(group, request.from_offset)
        number = 1000 + len(self.subscriptions)
        if self.wire.pushes:
            self.subscriptions[number] = _Subscription(request.stream_id, start, request.initial_credits, group)
        return m.SubscribeResponse(number, start, request.initial_credits)

    def _subscribe_credit(self, request: m.SubscribeCredit) -> m.Message:
        found = self.subscriptions.get(request.subscription_id)
        if found is None:
            return m.ErrorResponse(ErrorCode.SUBSCRIPTION_NOT_FOUND, "no such subscription")
        found.credits += request.additional_credits
        if found.group is not None:
            self.server.positions[found.group] += request.additional_credits
        return m.SubscriptionAck(request.subscription_id, found.credits)

    def _unsubscribe(self, request: m.Unsubscribe) -> m.Message:
        del self.subscriptions[request.subscription_id]
        self.writer.write(self.wire.push(m.SubscriptionClosed(request.subscription_id, m.CloseReason.CLIENT_CANCELLED)))
        return m.SubscriptionAck(request.subscription_id, 0)

    def push(self) -> None:
        if self._held:
            return  # perhaps the reply to a Subscribe
        for number, each in self.subscriptions.items():
            events = self.server.streams[each.stream].events
            while each.credits and each.offset < len(events):
                some = events[each.offset : each.offset + min(each.credits, self.server.pushed)]
                each.credits -= len(some)
                self.writer.write(self.wire.push(m.SubscriptionEvents(number, each.offset, some, each.credits)))
                each.offset += len(some)

    def end(self, reason: m.CloseReason) -> None:
        for number in self.subscriptions:
            self.writer.write(self.wire.push(m.SubscriptionClosed(number, reason)))
        self.subscriptions.clear()


_FIXED: dict[type[m.Message], m.Message] = {
    m.Sync: m.SyncResponse(True),
    m.GetServerInfo: INFO,
    m.ListTables: m.ListTablesResponse([m.TableSummary("events", 4)]),
    m.ListIndexes: m.ListIndexesResponse([m.IndexInfo("by_name", ["name"])]),
    m.TenantCreate: m.TenantCreateResponse(TENANT, True),
    m.TenantList: m.TenantListResponse([TENANT]),
    m.TenantGet: m.TenantGetResponse(TENANT),
    m.TenantDelete: m.TenantDeleteResponse(True, 2),
    m.ApiKeyRegister: m.ApiKeyRegisterResponse("secret", KEY),
    m.ApiKeyRevoke: m.ApiKeyRevokeResponse(True),
    m.ApiKeyList: m.ApiKeyListResponse([KEY]),
    m.ApiKeyRotate: m.ApiKeyRotateResponse("newer", KEY),
    m.AuditQuery: m.AuditQueryResponse([AUDIT]),
    m.VerifyAuditChain: CHAIN,
}
