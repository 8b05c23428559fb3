"""Requests of BlipMQ as values, a function for each that makes its `RequestSpec`, and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.clients._core.requests import RequestSpec, nothing
from penstock.clients.blipmq.errors import Unsendable
from penstock.clients.blipmq.event_buffer import EventBuffer
from penstock.wire.blipmq import codec
from penstock.wire.blipmq.frames import MAX_PAYLOAD
from penstock.wire.blipmq.messages import MAX_TTL

# -- requests with a reply


class NamedQueue(NamedTuple):
    """A queue found by its name. A message that is not acknowledged within `lease_ms` is delivered again, and the lease
    doubles with each delivery; after `attempts` deliveries it becomes a dead letter (0: never). Both only apply when
    the queue is created."""

    name: str
    lease_ms: int
    attempts: int


@dataclass(slots=True)
class Hello:
    version: int


@dataclass(slots=True)
class Auth:
    key: str


@dataclass(slots=True)
class Subscribe:
    buffer: EventBuffer
    queue: NamedQueue | None = None


@dataclass(slots=True)
class Ping:
    """The PONG arrives when the server has processed everything before it."""


@dataclass(slots=True)
class Poll:
    """Sends, in one write: the collected ACKs, `count` POLLs, and a PING. Version 2 needs no POLL. An `eager` caller
    waits for one message at most, and not for the PONG."""

    buffer: EventBuffer
    count: int
    eager: bool


Request: TypeAlias = Hello | Auth | Subscribe | Ping | Poll


def subscribe(buffer: EventBuffer, queue: NamedQueue | None = None) -> RequestSpec[None]:
    """Subscribe; retried if the connection breaks. The server may then have an unused subscription, which it ends by
    itself; a named queue stays the same."""
    if queue is not None:
        check_queue(queue)

    def accept(subscription: int) -> None:
        buffer.id = subscription

    return RequestSpec(Subscribe(buffer, queue), accept, idempotent=True)


def ping() -> RequestSpec[None]:
    return RequestSpec(Ping(), nothing, idempotent=True)


def poll(buffer: EventBuffer, count: int, *, eager: bool) -> RequestSpec[None]:
    return RequestSpec(Poll(buffer, count, eager), nothing, idempotent=True)


# -- validation


def topic_bytes(topic: str) -> bytes:
    """The encoded topic. Raises Unsendable."""
    try:
        data = topic.encode()
    except UnicodeEncodeError as error:
        raise Unsendable(f"The topic is not text: {error}") from error
    if not 0 < len(data) <= 0xFFFF:
        raise Unsendable(f"A topic of {len(data)} bytes; 1 to 65535 are allowed")
    return data


def check_key(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise ValueError("the key is not text") from error
    if size > 0xFFFF:
        raise ValueError("the key is longer than 65535 bytes")
    return key


def check_queue(queue: NamedQueue) -> None:
    topic_bytes(queue.name)  # the rules for topics apply to queue names too
    if not 1 <= queue.lease_ms <= MAX_TTL or not 0 <= queue.attempts <= 0xFFFF:
        raise Unsendable(f"A queue has a lease of 1 to {MAX_TTL} ms, and 0 to 65535 attempts: not {queue}")


def check_qos(qos: int) -> None:
    if qos not in (0, 1):
        raise Unsendable(f"QoS must be 0 or 1, not {qos}")


def checked_prefix(version: int, topic: str, qos: int, ttl_ms: int | None) -> bytes:
    """Everything in a PUBLISH before its value. Raises Unsendable."""
    check_qos(qos)
    if ttl_ms is not None and version == 1:
        raise Unsendable("A message can have a TTL of its own only in version 2")
    if ttl_ms is not None and not 0 <= ttl_ms <= MAX_TTL:
        raise Unsendable(f"A TTL of {ttl_ms} ms; 0 to {MAX_TTL} are allowed")
    return codec.publish_prefix(qos, topic_bytes(topic), ttl_ms)


def check_values(prefix: bytes, values: Sequence[bytes]) -> None:
    largest = max(map(len, values))
    if len(prefix) + largest > MAX_PAYLOAD:
        raise Unsendable(f"A message of {largest} bytes does not fit a frame")
