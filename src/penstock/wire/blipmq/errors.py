"""Errors of BlipMQ: every NACK with its code and exact text, and the framing errors.

A NACK answers one frame and never closes the connection; a frame error closes it without a reply. No bytes are encoded
here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Nack(NamedTuple):
    code: int
    text: str


# -- the handshake
HELLO_ALREADY_PERFORMED: Final = Nack(400, "HELLO already performed")
INVALID_HELLO: Final = Nack(400, "invalid HELLO payload")
UNSUPPORTED_VERSION: Final = Nack(426, "unsupported protocol version")
HELLO_NOT_PERFORMED: Final = Nack(400, "HELLO not performed")
ALREADY_AUTHENTICATED: Final = Nack(400, "already authenticated")
INVALID_AUTH: Final = Nack(400, "invalid AUTH payload")
INVALID_KEY: Final = Nack(401, "invalid API key")
LOCKED_OUT: Final = Nack(401, "too many failed attempts, try again later")  # the original has no lock-out
UNAUTHENTICATED: Final = Nack(401, "unauthenticated")

# -- requests
INVALID_PUBLISH: Final = Nack(400, "invalid PUBLISH payload")
INVALID_SUBSCRIBE: Final = Nack(400, "invalid SUBSCRIBE payload")
INVALID_ACK: Final = Nack(400, "invalid ACK payload")
INVALID_POLL: Final = Nack(400, "invalid POLL payload")
EMPTY_TOPIC: Final = Nack(400, "empty topic")
INVALID_QOS: Final = Nack(400, "invalid QoS value")
NUL_IN_TOPIC: Final = Nack(400, "topic contains NUL byte")
ZERO_SUBSCRIPTION: Final = Nack(400, "subscription_id must be non-zero")
UNKNOWN_DELIVERY: Final = Nack(404, "unknown subscription or delivery tag")
UNSENDABLE: Final = 413  # code of the reply to a POLL if a message fits no frame and was skipped; not in the original
INTERNAL_ERROR: Final = Nack(500, "internal error")


OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The end of a NACK's text if it is unknown whether the request was stored: it must not be retried, unless duplicates
are harmless. Every other NACK means that nothing was stored."""


class FrameError(Exception):
    """An impossible frame. Nothing behind it can be decoded: the connection is closed without a reply."""


class EmptyFrame(FrameError):
    def __init__(self) -> None:
        super().__init__("a frame of length 0")


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of length {length} (max: {limit})")


class FrameTooShort(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of length {length} (min: {limit})")


class UnknownFrameType(FrameError):
    def __init__(self, kind: int) -> None:
        super().__init__(f"a frame of the unknown type 0x{kind:02X}")
