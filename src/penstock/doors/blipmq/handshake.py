"""The states of a connection, as a table: what each frame leads to before and after HELLO and AUTH.

The handshake answers the frames that are its own, or that come too early. All others are left to the session. How a
key is checked is the caller's business.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from penstock.broker.security.access import Identity
from penstock.wire.blipmq.codec import decode_auth, decode_hello, encode_ack, encode_nack
from penstock.wire.blipmq.errors import (
    ALREADY_AUTHENTICATED,
    HELLO_ALREADY_PERFORMED,
    HELLO_NOT_PERFORMED,
    INVALID_AUTH,
    INVALID_HELLO,
    INVALID_KEY,
    LOCKED_OUT,
    UNAUTHENTICATED,
    UNSUPPORTED_VERSION,
    Nack,
)
from penstock.wire.blipmq.frames import Frame, FrameType

VERSIONS: Final = (1, 2)  # 1: the client polls; 2: the server sends


class State(enum.Enum):
    NEW = enum.auto()
    GREETED = enum.auto()  # HELLO done: the version is known
    READY = enum.auto()  # AUTH done: the identity is known


class Step(enum.Enum):
    GREET = enum.auto()  # read HELLO, and go to GREETED
    AUTHENTICATE = enum.auto()  # read AUTH, and go to READY
    SERVE = enum.auto()  # the session's frame
    IGNORE = enum.auto()  # no reply


_EARLY: Final = {
    FrameType.PUBLISH: UNAUTHENTICATED,
    FrameType.SUBSCRIBE: UNAUTHENTICATED,
    FrameType.ACK: UNAUTHENTICATED,
    FrameType.NACK: UNAUTHENTICATED,
    FrameType.PING: UNAUTHENTICATED,
    FrameType.PONG: UNAUTHENTICATED,
    FrameType.POLL: UNAUTHENTICATED,
}

# A NACK changes no state and closes nothing: the client may try again. No state is ever left but for the next one.
TABLE: Final[dict[State, dict[FrameType, Step | Nack]]] = {
    State.NEW: {FrameType.HELLO: Step.GREET, FrameType.AUTH: HELLO_NOT_PERFORMED, **_EARLY},
    State.GREETED: {FrameType.HELLO: HELLO_ALREADY_PERFORMED, FrameType.AUTH: Step.AUTHENTICATE, **_EARLY},
    State.READY: {
        FrameType.HELLO: HELLO_ALREADY_PERFORMED,
        FrameType.AUTH: ALREADY_AUTHENTICATED,
        FrameType.PUBLISH: Step.SERVE,
        FrameType.SUBSCRIBE: Step.SERVE,
        FrameType.ACK: Step.SERVE,
        FrameType.NACK: Step.IGNORE,
        FrameType.PING: Step.SERVE,
        FrameType.PONG: Step.IGNORE,
        FrameType.POLL: Step.SERVE,
    },
}

KeyCheck: TypeAlias = Callable[[str], Identity | Literal["locked"] | None]
"""Whose key this is; None if nobody's; "locked" if so many attempts failed that none is looked at for a while."""


class Handshake:
    """Where one connection stands. `version` and `identity` hold what HELLO and AUTH have settled."""

    __slots__ = ("_check_key", "identity", "state", "version")

    def __init__(self, check_key: KeyCheck) -> None:
        self._check_key = check_key
        self.state = State.NEW
        self.version = 0
        self.identity: Identity | None = None

    @property
    def ready(self) -> bool:
        return self.state is State.READY

    def step(self, frame: Frame) -> bytes | None:
        """The reply to a frame, which may be empty; None for one that the session has to carry out."""
        kind, correlation, payload = frame
        step = TABLE[self.state][FrameType(kind)]
        if step is Step.SERVE:
            return None
        if step is Step.IGNORE:
            return b""
        refusal = step if isinstance(step, Nack) else self._advance(step, payload)
        if refusal is not None:
            return encode_nack(correlation, *refusal)
        return encode_ack(correlation, 0)

    def _advance(self, step: Step, payload: bytes) -> Nack | None:
        return self._greet(payload) if step is Step.GREET else self._authenticate(payload)

    def _greet(self, payload: bytes) -> Nack | None:
        version = decode_hello(payload)
        if version is None:
            return INVALID_HELLO
        if version not in VERSIONS:
            return UNSUPPORTED_VERSION
        self.version = version
        self.state = State.GREETED
        return None

    def _authenticate(self, payload: bytes) -> Nack | None:
        key = decode_auth(payload)
        if key is None:
            return INVALID_AUTH
        identity = self._check_key(key)
        if identity is None:
            return INVALID_KEY
        if identity == "locked":
            return LOCKED_OUT
        self.identity = identity
        self.state = State.READY
        return None
