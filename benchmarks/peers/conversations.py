"""Conversations: what a client sends to each server to store one record, and how its replies are counted.

Requests are bytes that are made before the clock runs. A reply costs the generator the same whoever sent it: it has a
fixed size, or is two lines. What replies say is checked for the first of each connection, and by the number of records
that the server has in the end.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

from benchmarks import blip_wire, fly_wire, wire

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TENANT: Final = 1  # of Kimberlite
SUBJECTS: Final = "bench"  # that a stream of NATS takes begin with it
CONNECTION: Final = b"@@@@@@"  # stands for the number of the connection, in a conversation that is `numbered`


@dataclass(frozen=True, slots=True)
class Conversation:
    """One connection's side of it."""

    requests: list[bytes]  # sent in turn
    unit: int  # bytes of a reply, or its lines
    lines: bool = False  # whether lines are counted
    first: bytes = b""  # that the first reply begins with
    greeting: bytes = b""
    greeted: bytes = b""  # that the reply to the greeting ends with; empty: it is one piece
    numbered: bool = False

    def numbered_for(self, connection: int) -> Conversation:
        """The same, with the number of a connection."""
        if not self.numbered:
            return self
        number = b"%06d" % connection
        requests = [request.replace(CONNECTION, number, 2) for request in self.requests]
        greeting = self.greeting.replace(CONNECTION, number)
        return Conversation(requests, self.unit, self.lines, self.first, greeting, self.greeted)


def topic(door: str, number: int) -> str:
    """Names of one length, so that replies are, too; each door has its own."""
    return f"{door.lower()}{number:05d}"


def rustlog(size: int, topics: int = 1) -> Conversation:
    value = os.urandom(size)
    return _rustlog([wire.binary_produce(topic("RustLog", number), [value]) for number in range(topics)])


def rustlog_partitions(size: int, count: int) -> Conversation:
    """One partition after the other of the topic with this number."""
    value, name = os.urandom(size), topic("RustLog", count)
    return _rustlog([wire.binary_produce(name, [value], partition) for partition in range(count)])


def rustlog_commit(number: int) -> bytes:
    """The offset of a consumer group, on a connection that speaks JSON."""
    commit = {"type": "OffsetCommit", "group": f"group{number:05d}", "topic": topic("RustLog", 0)}
    return wire.framed(json.dumps({**commit, "partition": 0, "offset": 0}).encode())


def _rustlog(requests: list[bytes]) -> Conversation:
    reply = wire.REPLY["binary"]
    return Conversation(requests, len(reply), first=reply[:5])


def flymq(size: int, topics: int = 1) -> Conversation:
    value = os.urandom(size)
    reply = fly_wire.produced(topic("FlyMQ", 0), size)
    return Conversation(
        [fly_wire.produce(topic("FlyMQ", number), value) for number in range(topics)], len(reply), first=reply[:8]
    )


def blipmq(size: int, topics: int = 1) -> Conversation:
    """A publication is silent; the PONG behind it says that it is stored."""
    value = os.urandom(size)
    return Conversation(
        [blip_wire.publish(topic("BlipMQ", number), value) + blip_wire.BARRIER for number in range(topics)],
        len(blip_wire.PASSED),
        first=blip_wire.PASSED,
        greeting=blip_wire.GREETING,
        greeted=blip_wire.GREETED,
    )


def kimberlite(size: int, streams: list[int]) -> Conversation:
    codec, value = ClientCodec("v0.1"), os.urandom(size)
    greeting = codec.request(1, TENANT, m.Handshake(1))
    requests = [codec.request(2, TENANT, m.AppendEvents(stream, [value])) for stream in streams]
    return Conversation(requests, wire.APPENDED, greeting=greeting)


def redis(size: int, topics: int = 1) -> Conversation:
    """XADD; the reply is the record's id, as a bulk string: two lines."""
    value = os.urandom(size)
    requests = [redis_call(b"XADD", topic("", number).encode(), b"*", b"v", value) for number in range(topics)]
    return Conversation(requests, 2, lines=True, first=b"$")


def redis_call(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


def nats(size: int, topics: int = 1) -> Conversation:
    """A publication to a stream, with an inbox of the connection's own for the acknowledgement: two lines."""
    value, inbox = os.urandom(size), b"_INBOX." + CONNECTION
    requests = [
        b"PUB %s.%s %s %d\r\n%s\r\n" % (SUBJECTS.encode(), topic("", number).encode(), inbox, size, value)
        for number in range(topics)
    ]
    greeting = NATS_CONNECT + b"SUB %s 1\r\nPING\r\n" % inbox
    return Conversation(requests, 2, lines=True, first=b"MSG ", greeting=greeting, greeted=b"PONG\r\n", numbered=True)


NATS_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":false,"protocol":0}\r\n'
