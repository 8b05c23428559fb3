"""What a client gives to its caller: messages, refusals, and the exceptions that both clients raise.

Here is also what may be sent at all. Nothing here does input or output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from penstock.wire.blipmq.codec import publish_prefix
from penstock.wire.blipmq.frames import MAX_PAYLOAD
from penstock.wire.blipmq.messages import MAX_TTL

MAX_PREFETCH: Final = 1024  # polls in flight; as many messages as a subscription of the original can hold


class Message(NamedTuple):
    """A message as it arrived. `tag` acknowledges it; it is 0 with QoS 0, where there is nothing to acknowledge."""

    topic: str
    value: bytes
    qos: int
    tag: int


class Refusal(NamedTuple):
    """A NACK to a frame whose reply nobody waits for. `id` is what `publish` returned, or the tag of the ACK."""

    request: Literal["publish", "ack", "poll"]
    id: int
    code: int
    text: str


class BlipMQError(Exception):
    """Any failure."""


class Unsendable(BlipMQError):
    """The request cannot be written in this version, or does not fit a frame. Nothing was sent."""


class ReplyError(BlipMQError):
    """The server answered with a NACK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (code {code})")
        self.code = code
        self.text = text


class ClientError(ReplyError):
    """The request was wrong: to send it again would not help."""


class ServerError(ReplyError):
    """The server could not do it now. It may be sent again after a while."""


class PublishRefused(BlipMQError):
    """Messages were not stored. `refusals` has one entry for each, by the id that `publish` returned; of very many it
    has the last ones, and `count` says how many there were."""

    def __init__(self, refusals: Sequence[Refusal], count: int) -> None:
        super().__init__(f"{count} messages were refused, the last one with: {refusals[-1].text}")
        self.refusals = list(refusals)
        self.count = count


class BadReply(BlipMQError):
    """The server sent something that is no answer. The connection was closed."""


class ConnectionFailed(BlipMQError):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows."""


class OutcomeUnknown(BlipMQError):
    """The connection was lost while it was not known what became of `count` messages: each may be stored, or not."""

    def __init__(self, count: int) -> None:
        super().__init__(f"The connection was lost: {count} messages may be stored, or not")
        self.count = count


def reply_error(code: int, text: str) -> ReplyError:
    return (ServerError if code >= 500 else ClientError)(code, text)


def check_version(version: int) -> None:
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2, not {version}")


def check_prefetch(count: int) -> None:
    if not 1 <= count <= MAX_PREFETCH:
        raise ValueError(f"prefetch must be from 1 to {MAX_PREFETCH}")


def topic_bytes(topic: str) -> bytes:
    """The topic as it goes out."""
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


def check_qos(qos: int) -> None:
    if qos not in (0, 1):
        raise Unsendable(f"QoS must be 0 or 1, not {qos}")


def checked_prefix(version: int, topic: str, qos: int, ttl_ms: int | None) -> bytes:
    """All of a PUBLISH before its value, or Unsendable."""
    check_qos(qos)
    if ttl_ms is not None and version == 1:
        raise Unsendable("A message can have a TTL of its own only in version 2")
    if ttl_ms is not None and not 0 <= ttl_ms <= MAX_TTL:
        raise Unsendable(f"A TTL of {ttl_ms} ms; 0 to {MAX_TTL} are allowed")
    return publish_prefix(qos, topic_bytes(topic), ttl_ms)


def check_values(prefix: bytes, values: Sequence[bytes]) -> None:
    largest = max(map(len, values))
    if len(prefix) + largest > MAX_PAYLOAD:
        raise Unsendable(f"A message of {largest} bytes does not fit a frame")
