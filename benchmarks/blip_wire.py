"""BlipMQ frames as bytes, made before the clock runs. Version 1 of the protocol; nothing is taken apart here.

Written from the protocol document and not with the broker's own codec, for the reason given in `wire`.
"""

from __future__ import annotations

import struct
from typing import Final

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, PING, PONG, POLL = 1, 2, 3, 4, 5, 7, 8, 9
AT_LEAST_ONCE: Final = b"\x01"

SUBSCRIPTION_FRAME: Final = 21  # bytes of an ACK or a POLL
TAG: Final = slice(5, 13)  # where a delivery has its tag


def frame(kind: int, correlation: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload


def text(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">H", len(data)) + data


def publish(topic: str, message: bytes, correlation: int = 7) -> bytes:
    """Also what a delivery looks like, with its tag as correlation id."""
    return frame(PUBLISH, correlation, AT_LEAST_ONCE + text(topic) + message)


def subscribe(topic: str) -> bytes:
    return frame(SUBSCRIBE, 3, text(topic) + AT_LEAST_ONCE)


def poll(subscription: int) -> bytes:
    return frame(POLL, 8, struct.pack(">Q", subscription))


def ack(subscription: int, tag: int) -> bytes:
    return frame(ACK, tag, struct.pack(">Q", subscription))


GREETING: Final = frame(HELLO, 1, b"\0\1") + frame(AUTH, 2, text("any"))
GREETED: Final = ack(0, 1) + ack(0, 2)
BARRIER: Final = frame(PING, 9)
PASSED: Final = frame(PONG, 9)
