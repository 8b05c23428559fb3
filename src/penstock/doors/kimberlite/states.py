"""The states of a Kimberlite connection, as a table: the action for a request before and after the handshake."""

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
    GREET = enum.auto()  # check the handshake; if it is accepted, the next state is GREETED
    SERVE = enum.auto()
    REFUSE = enum.auto()  # reply with an error; the connection continues


# A refusal changes no state and closes nothing: the client may retry. A second handshake changes the identity.
TABLE: Final[dict[State, dict[Input, Action]]] = {
    State.NEW: {Input.HANDSHAKE: Action.GREET, Input.REQUEST: Action.REFUSE},
    State.GREETED: {Input.HANDSHAKE: Action.GREET, Input.REQUEST: Action.SERVE},
}
