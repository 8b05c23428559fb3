"""Results of the BlipMQ clients: messages and refusals."""

from __future__ import annotations

from typing import Literal, NamedTuple


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
