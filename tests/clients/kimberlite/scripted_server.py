"""A small Kimberlite server for the client's tests: streams in memory, every version, and faults on demand."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from tests.clients import scripted_server

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ServerCodec
from penstock.wire.kimberlite.frames import frame
from penstock.wire.kimberlite.messages import ErrorCode

INFO = m.ServerInfoResponse("1.0", 5, ["query"], 7, m.ClusterMode.STANDALONE, 1)
TENANT = m.TenantInfo(7, "seven", 0, None)
KEY = m.ApiKeyInfo("id", "somebody", 7, ["User"], None)
AUDIT = m.AuditEventInfo("1", 5, "login")
CHAIN = m.VerifyAuditChainResponse(True, 3, "ab")
PHI = m.ColumnInfo("name", "TEXT", True, False)


class Fault(Enum):
    """The treatment of the reply to one request."""

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


class ScriptedServer(scripted_server.ScriptedServer["_Peer"]):
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.streams: dict[int, Stream] = {}
        self.names: dict[str, int] = {}
        self.requests: list[m.Request] = []  # all that arrived, except handshakes
        self.handshakes: list[m.Handshake] = []
        self.faults: deque[Fault] = deque()  # one for each request to come, handshakes apart; none when empty
        self.errors: deque[m.ErrorResponse] = deque()  # for the requests to come, which are not carried out then
        self.handshake_replies: deque[m.Message] = deque()  # to the handshakes to come
        self.hold = 1  # replies are sent when so many have gathered, the last first
        self.positions: dict[str, int] = {}  # of groups
        self.token: str | None = None  # that is wanted
        self.pushed = 1  # events in one push

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def peer(self, writer: asyncio.StreamWriter) -> _Peer:
        return _Peer(self, writer)

    def received(self, kind: type[m.Message]) -> list[Any]:
        """The requests of a kind that have come."""
        return [request.payload for request in self.requests if isinstance(request.payload, kind)]

    def stream(self, name: str = "events", *events: bytes) -> int:
        number = self.names.setdefault(name, len(self.names) + 100)
        self.streams.setdefault(number, Stream()).events.extend(events)
        return number

    def publish(self, number: int, *events: bytes) -> None:
        def job() -> None:
            self.streams[number].events.extend(events)
            self.push()

        self.call(job)

    def end_subscriptions(self, reason: m.CloseReason) -> None:
        def job() -> None:
            for peer in self.peers:
                peer.end_subscriptions(reason)

        self.call(job)

    @property
    def members(self) -> int:
        """The number of subscriptions."""
        return sum(len(peer.subscriptions) for peer in list(self.peers))

    def push(self) -> None:
        for peer in list(self.peers):
            peer.push()


class _Subscription:
    def __init__(self, stream: int, offset: int, credits: int, group: str | None) -> None:  # noqa: A002
        self.stream = stream
        self.offset = offset
        self.credits = credits
        self.group = group


class _Peer(scripted_server.Peer):
    def __init__(self, server: ScriptedServer, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self.server = server
        self.codec = ServerCodec()
        self.subscriptions: dict[int, _Subscription] = {}
        self._held: list[bytes] = []

    def received(self, data: bytes) -> bool:
        self.codec.feed(data)
        while (request := self.codec.next()) is not None:
            if not self._execute(request):
                return False
        self.server.push()
        return True

    def _execute(self, request: m.Request) -> bool:
        """False if the connection ends with it."""
        server, payload = self.server, request.payload
        if isinstance(payload, m.Handshake):
            server.handshakes.append(payload)
            self.writer.write(self.codec.response(request.id, self._handshake(payload)))
            return True
        server.requests.append(request)
        if server.errors:
            self.writer.write(self.codec.response(request.id, server.errors.popleft()))
            return True
        fault = server.faults.popleft() if server.faults else Fault.NONE
        if fault is Fault.REFUSE:
            return False
        data = self.codec.response(request.id, self._answer(payload))
        return self._send(data, fault, request.id)

    def _send(self, data: bytes, fault: Fault, number: int) -> bool:
        if fault in (Fault.DROP, Fault.SILENCE):
            return fault is Fault.SILENCE
        if fault is Fault.HALF:
            data = data[: len(data) // 2]
        elif fault is Fault.JUNK:
            data = b"HTTP/1.1 400 Bad Request\r\n"
        elif fault is Fault.BAD_PAYLOAD:
            data = frame(bytearray(b"\x01\xff"), self.codec.version)
        elif fault is Fault.WRONG:
            data = self.codec.response(number, m.CreateStreamResponse(1))
        elif fault is Fault.STRANGER:
            data = self.codec.response(4_000_000, m.SyncResponse(True))
        elif fault is Fault.BYTEWISE:
            self.write_bytewise(data)
            return True
        self._held.append(data)
        if len(self._held) >= self.server.hold:
            self.writer.write(b"".join(reversed(self._held)))
            self._held.clear()
        return fault not in (Fault.HALF, Fault.CLOSE_AFTER)

    def _handshake(self, hello: m.Handshake) -> m.Message:
        server = self.server
        if server.handshake_replies:
            return server.handshake_replies.popleft()
        if server.token is not None and hello.auth_token not in (None, server.token):
            return m.ErrorResponse(ErrorCode.AUTHENTICATION_FAILED, "bad token")
        return m.HandshakeResponse(self.codec.version, server.token == hello.auth_token, ["query", "append"])

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
        if request.name in self.server.names and self.codec.version == 1:
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
        if self.codec.pushes:
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
        self.writer.write(
            self.codec.push(m.SubscriptionClosed(request.subscription_id, m.CloseReason.CLIENT_CANCELLED))
        )
        return m.SubscriptionAck(request.subscription_id, 0)

    def push(self) -> None:
        if self._held:
            return  # perhaps the reply to a Subscribe
        for number, each in self.subscriptions.items():
            events = self.server.streams[each.stream].events
            while each.credits and each.offset < len(events):
                some = events[each.offset : each.offset + min(each.credits, self.server.pushed)]
                each.credits -= len(some)
                self.writer.write(self.codec.push(m.SubscriptionEvents(number, each.offset, some, each.credits)))
                each.offset += len(some)

    def end_subscriptions(self, reason: m.CloseReason) -> None:
        for number in self.subscriptions:
            self.writer.write(self.codec.push(m.SubscriptionClosed(number, reason)))
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
