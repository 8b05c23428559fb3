"""The states of a Felix stream, as tables: the first frame determines the dialect, and `auth` is sent once or never."""

from __future__ import annotations

import enum
from typing import Final


class State(enum.IntEnum):  # an `Enum`'s members are hashed in Python, for every request
    NEW = enum.auto()  # before the first frame
    DOCUMENT = enum.auto()  # the dialect of the document: there is no `auth`
    ORIGINAL = enum.auto()  # the original's dialect: `auth` was received, and is not accepted yet
    AUTHENTICATED = enum.auto()  # the same, after `auth` was accepted: identity and tenant are known


class Input(enum.IntEnum):
    AUTH = enum.auto()
    REQUEST = enum.auto()  # any other, even if it cannot be decoded


class Action(enum.Enum):
    AUTHENTICATE = enum.auto()  # check the token; if it is accepted, the next state is AUTHENTICATED
    SERVE = enum.auto()
    SERVE_UNLESS_REQUIRED = enum.auto()  # serve, unless the configuration requires `auth`
    REFUSE_LATE = enum.auto()  # `auth` has to be the first frame; ends the stream
    REFUSE_AGAIN = enum.auto()  # `auth` was already sent; ends the stream


# When a frame is read: the state that follows NEW. Reading changes no other state.
FIRST_FRAME: Final[dict[Input, State]] = {Input.AUTH: State.ORIGINAL, Input.REQUEST: State.DOCUMENT}

# When a request is executed.
TABLE: Final[dict[State, dict[Input, Action]]] = {
    State.DOCUMENT: {Input.AUTH: Action.REFUSE_LATE, Input.REQUEST: Action.SERVE_UNLESS_REQUIRED},
    State.ORIGINAL: {Input.AUTH: Action.AUTHENTICATE, Input.REQUEST: Action.SERVE_UNLESS_REQUIRED},
    State.AUTHENTICATED: {Input.AUTH: Action.REFUSE_AGAIN, Input.REQUEST: Action.SERVE},
}
