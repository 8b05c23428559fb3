"""The states of a Felix stream, as tables: the first frame decides on the dialect, and `auth` is said once or never."""

from __future__ import annotations

import enum
from typing import Final


class State(enum.IntEnum):  # members of a plain `Enum` are hashed by a function in Python: every request would pay
    NEW = enum.auto()  # no frame was read yet
    DOCUMENT = enum.auto()  # the dialect of the document: there is no `auth`
    ORIGINAL = enum.auto()  # the original's dialect: `auth` was read, and not accepted yet
    AUTHENTICATED = enum.auto()  # the same, once `auth` was accepted: identity and tenant are known


class Input(enum.IntEnum):
    AUTH = enum.auto()
    REQUEST = enum.auto()  # any other, even one that cannot be decoded


class Action(enum.Enum):
    AUTHENTICATE = enum.auto()  # check the token; if it is accepted, go to AUTHENTICATED
    SERVE = enum.auto()
    SERVE_UNLESS_REQUIRED = enum.auto()  # serve, unless the configuration requires `auth`
    REFUSE_LATE = enum.auto()  # `auth` has to be the first frame; ends the stream
    REFUSE_AGAIN = enum.auto()  # `auth` was said already; ends the stream


# When a frame is read: where a stream goes from NEW. No other state is left by reading.
FIRST_FRAME: Final[dict[Input, State]] = {Input.AUTH: State.ORIGINAL, Input.REQUEST: State.DOCUMENT}

# When a request is executed.
TABLE: Final[dict[State, dict[Input, Action]]] = {
    State.DOCUMENT: {Input.AUTH: Action.REFUSE_LATE, Input.REQUEST: Action.SERVE_UNLESS_REQUIRED},
    State.ORIGINAL: {Input.AUTH: Action.AUTHENTICATE, Input.REQUEST: Action.SERVE_UNLESS_REQUIRED},
    State.AUTHENTICATED: {Input.AUTH: Action.REFUSE_AGAIN, Input.REQUEST: Action.SERVE},
}
