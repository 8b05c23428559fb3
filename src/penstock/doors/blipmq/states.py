"""The states of a BlipMQ connection, as a table: the action for each frame before and after HELLO and AUTH.

The handshake replies to its own frames, and to frames that arrive too early. All others have handlers. The caller
checks keys.
"""

from __future__ import annotations

import enum
from base64 import b64decode
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

BASIC: Final = "Basic "
VERSIONS: Final = (1, 2)  # 1: the client polls; 2: the server pushes


class State(enum.Enum):
    NEW = enum.auto()
    GREETED = enum.auto()  # after HELLO: the version is known
    READY = enum.auto()  # after AUTH: the identity is known


class Action(enum.Enum):
    GREET = enum.auto()  # decode HELLO; next state: GREETED
    AUTHENTICATE = enum.auto()  # decode AUTH; next state: READY
    SERVE = enum.auto()  # call the frame's handler
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

# A NACK changes no state and closes nothing: the client may retry. A connection never returns to an earlier state.
TABLE: Final[dict[State, dict[FrameType, Action | Nack]]] = {
    State.NEW: {FrameType.HELLO: Action.GREET, FrameType.AUTH: HELLO_NOT_PERFORMED, **_EARLY},
    State.GREETED: {FrameType.HELLO: HELLO_ALREADY_PERFORMED, FrameType.AUTH: Action.AUTHENTICATE, **_EARLY},
    State.READY: {
        FrameType.HELLO: HELLO_ALREADY_PERFORMED,
        FrameType.AUTH: ALREADY_AUTHENTICATED,
        FrameType.PUBLISH: Action.SERVE,
        FrameType.SUBSCRIBE: Action.SERVE,
        FrameType.ACK: Action.SERVE,
        FrameType.NACK: Action.IGNORE,
        FrameType.PING: Action.SERVE,
        FrameType.PONG: Action.IGNORE,
        FrameType.POLL: Action.SERVE,
    },
}

KeyCheck: TypeAlias = Callable[[str], Identity | Literal["locked"] | None]
"""The owner of an API key; None if it is unknown; "locked" while attempts are refused after too many failures."""


class Handshake:
    """The state of one connection. `version` and `identity` are known after HELLO and AUTH."""

    __slots__ = ("_check_key", "identity", "ready", "state", "version")

    def __init__(self, check_key: KeyCheck) -> None:
        self._check_key = check_key
        self.state = State.NEW
        self.version = 0
        self.identity: Identity | None = None
        self.ready = False  # whether the state is READY; read for every frame

    def step(self, frame: Frame) -> bytes | None:
        """The reply to a frame, which may be empty; None for one that has a handler."""
        kind, correlation, payload = frame
        action = TABLE[self.state][FrameType(kind)]
        if action is Action.SERVE:
            return None
        if action is Action.IGNORE:
            return b""
        refusal = action if isinstance(action, Nack) else self._advance(action, payload)
        if refusal is not None:
            return encode_nack(correlation, *refusal)
        return encode_ack(correlation, 0)

    def _advance(self, action: Action, payload: bytes) -> Nack | None:
        return self._greet(payload) if action is Action.GREET else self._authenticate(payload)

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
        return self._admit(self._check_key(key))

    def _admit(self, verdict: Identity | Literal["locked"] | None) -> Nack | None:
        if verdict is None:
            return INVALID_KEY
        if verdict == "locked":
            return LOCKED_OUT
        self.identity = verdict
        self.state = State.READY
        self.ready = True
        return None

    def credentials(self, frame: Frame) -> tuple[str, str] | None:
        """The name and the password of an AUTH that has them instead of a key, encoded as in HTTP: `Basic` and base64.
        None for everything else; then `step` replies."""
        kind, _, payload = frame
        if self.state is not State.GREETED or kind != FrameType.AUTH:
            return None
        key = decode_auth(payload)
        if key is None or not key.startswith(BASIC):
            return None
        try:
            name, _, password = b64decode(key.removeprefix(BASIC), validate=True).decode().partition(":")
        except ValueError:  # treat it as a key
            return None
        return name, password

    def conclude(self, correlation: int, verdict: Identity | Literal["locked"] | None) -> bytes:
        """The reply to an AUTH with `credentials`."""
        refusal = self._admit(verdict)
        return encode_ack(correlation, 0) if refusal is None else encode_nack(correlation, *refusal)
