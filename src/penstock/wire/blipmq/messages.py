"""Payloads with several fields, as values. Plain tuples, since there is one for every message."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

NO_TTL: Final = -1  # no TTL in the message; 0 means already expired
MAX_TTL: Final = 0xFFFF_FFFF  # milliseconds

Publish: TypeAlias = tuple[int, int, bytes, int]
"""QoS, TTL in ms or NO_TTL, topic, and the start of the value. Topic and QoS are not validated."""


class Delivered(NamedTuple):
    """A message as it is delivered. `tag` is 0 for QoS 0."""

    qos: int
    tag: int
    topic: bytes
    value: bytes
