"""Results of the BlipMQ clients: messages and refusals."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Message(NamedTuple):
    """A received message. `tag` acknowledges it; with QoS 0 it is 0, as there is nothing to acknowledge."""

    topic: str
    value: bytes
    qos: int
    tag: int


class Refusal(NamedTuple):
    """A NACK to a frame that has no waiting caller. `id` is the value that `publish` returned, or the tag of the
    ACK."""

    request: Literal["publish", "ack", "poll"]
    id: int
    code: int
    text: str
