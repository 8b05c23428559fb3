"""The states of a Kimberlite connection, as a table: what a request leads to before and after the handshake."""

from __future__ import annotations

import enum
from typing import Final


class State(enum.Enum):
    NEW = enum.auto()
    GREETED = enum.auto()  # a handshake was accepted: identity and tenant are known


class Input(enum.Enum):
    HANDSHAKE = enum.auto()
    REQUEST = enum.auto()  # any other


class Action(enum.Enum):
    GREET = enum.auto()  # check the handshake; if it is accepted, go to GREETED
    SERVE = enum.auto()
    REFUSE = enum.auto()  # an error, and the connection goes on


# A refusal changes no state and closes nothing: the client may try again. A second handshake changes who the client is.
TABLE: Final[dict[State, dict[Input, Action]]] = {
    State.NEW: {Input.HANDSHAKE: Action.GREET, Input.REQUEST: Action.REFUSE},
    State.GREETED: {Input.HANDSHAKE: Action.GREET, Input.REQUEST: Action.SERVE},
}
