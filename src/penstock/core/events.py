"""State events: every change to what `core` knows, as it is kept in the log.

An event says what happened, never what was asked; it is applied by `state.apply`. Tags and the order of fields are the
stored format: a field may be added at the end with a default, nothing may be removed or change its meaning.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.core.access import Permission
from penstock.core.errors import StateUnreadable
from penstock.core.settings import TopicSettings


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Any change of state. Stored as a msgpack array that begins with the tag of its type."""


class TopicCreated(Event, tag="topic+", frozen=True):
    id: int
    tenant: str
    namespace: str
    name: str
    partitions: int
    settings: TopicSettings
    created: int  # µs since 1970


class TopicDeleted(Event, tag="topic-", frozen=True):
    id: int


class TopicSettingsChanged(Event, tag="topic=", frozen=True):
    id: int
    settings: TopicSettings


class OffsetCommitted(Event, tag="offset", frozen=True):
    """By the topic's name and not by its id, because some clients commit before they create the topic."""

    tenant: str
    namespace: str
    group: str
    topic: str
    partition: int
    offset: int


class QueueStarted(Event, tag="queue+", frozen=True):
    id: int
    topic: int
    at_least_once: bool
    starts: list[int]  # of each partition: the first offset that belongs to the queue
    at: int  # µs since 1970


class QueueMoved(Event, tag="queue", frozen=True):
    """What was delivered and acknowledged, by tag; `cursors` as they are now."""

    id: int
    at: int
    cursors: list[int]
    sent: list[int] = []  # in flight, for the first time
    again: list[int] = []  # in flight, once more
    settled: list[int] = []  # no longer in flight


class QueueEnded(Event, tag="queue-", frozen=True):
    id: int


class KeyAdded(Event, tag="key+", frozen=True):
    id: int
    name: str
    hash: bytes  # see `keys.Key`, as for `salt` and `cost`
    tenant: str
    permissions: list[Permission]
    topics: list[str]  # patterns
    namespace: str  # a pattern
    created: int  # µs since 1970
    expires: int | None = None
    salt: bytes = b""
    cost: int = 0


class KeyRevoked(Event, tag="key-", frozen=True):
    id: int
    at: int  # µs since 1970


AnyEvent: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | TopicSettingsChanged
    | OffsetCommitted
    | QueueStarted
    | QueueMoved
    | QueueEnded
    | KeyAdded
    | KeyRevoked
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes) -> AnyEvent:
    """Raises StateUnreadable for anything that `encode` of this version did not write."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StateUnreadable(
            f"the log holds a state event that this version does not know ({error}). "
            "It was probably written by a newer version of Penstock: start that one"
        ) from error
