"""A small RustLog server for the client's tests: topics in memory, one reply for each request, and faults on demand."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from enum import Enum, auto

from tests.clients import scripted_server

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

TIMESTAMP = 1_700_000_000_000_000


class Fault(Enum):
    """The treatment of one reply."""

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


class ScriptedServer(scripted_server.ScriptedServer["_Peer"]):
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.store = Store()
        self.requests: list[Request] = []  # all that arrived
        self.faults: deque[Fault] = deque()  # one for each reply to come; none when empty
        self.errors: deque[Exception | None] = deque()  # likewise: the error to answer with
        self.hold = 1  # replies are sent when so many have gathered
        self.split = False  # every byte of a reply is sent by itself

    def peer(self, writer: asyncio.StreamWriter) -> _Peer:
        return _Peer(self, writer)

    def wait_for_requests(self, count: int) -> None:
        self.wait_for(lambda: len(self.requests) >= count)

    def reply(self, payload: bytes) -> bytes:
        dialect = detect(payload)
        request = dialect.decode_request(payload)
        self.requests.append(request)
        try:
            if self.errors and (error := self.errors.popleft()) is not None:
                raise error
            return frame(dialect.encode_response(self.store.answer(request)))
        except (BrokerError, LogError) as error:
            return frame(dialect.encode_error(error_reply(error, request, list(self.store.topics))))


class _Peer(scripted_server.Peer):
    def __init__(self, server: ScriptedServer, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self._server = server
        self._framer = Framer()
        self._held: list[tuple[bytes, Fault]] = []

    def received(self, data: bytes) -> bool:
        server, held = self._server, self._held
        for payload in self._framer.feed(data):
            fault = server.faults.popleft() if server.faults else Fault.NONE
            held.append((server.reply(payload), fault))
        if len(held) >= server.hold:
            sending, self._held = held, []
            return all(self._send(reply, fault) for reply, fault in sending)
        return True

    def _send(self, reply: bytes, fault: Fault) -> bool:
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
        if self._server.split:
            self.write_bytewise(sent)
        else:
            self.writer.write(sent)
        return fault not in (Fault.DROP, Fault.HALF, Fault.CLOSE_AFTER)
