"""What an operation is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.core.access import ANONYMOUS, Identity
from penstock.core.broker import Broker
from penstock.core.names import DEFAULT_SCOPE
from penstock.core.offload import Work
from penstock.log.engine import CommitGroup
from penstock.protocols.flymq.messages import AuthStyle, Reply

SCOPE: Final = DEFAULT_SCOPE  # FlyMQ has no tenants

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlyMqSettings:
    """What the configuration has to say about this door."""

    auth_style: AuthStyle = AuthStyle.BOTH
    fetch_wait: int = 0  # µs that a fetch waits that finds nothing, unless its topic says otherwise
    address: str = ""  # where clients reach this node
    node: str = "penstock"


class Call:
    """The connection on whose behalf operations are carried out. A login changes its identity."""

    __slots__ = ("broker", "identity", "owner", "peer", "settings")

    def __init__(self, broker: Broker, identity: Identity, peer: str, settings: FlyMqSettings) -> None:
        self.broker = broker
        self.identity = identity
        self.peer = peer
        self.settings = settings
        self.owner = object()  # what belongs to this connection and ends with it is known by this

    def forget(self) -> None:
        """The connection has ended: so have its transactions and its memberships."""
        self.broker.transactions.abandon(self.owner)
        self.broker.members.leave(self.owner)

    @property
    def anonymous(self) -> bool:
        return self.identity.name == ANONYMOUS.name


class Answer(NamedTuple):
    """A reply that is true once `group` is committed; without one, once every earlier change of state is."""

    reply: Reply | bytes  # bytes: the whole frame
    group: CommitGroup | None = None


class Later(Protocol):
    """An answer that takes its time. Nothing else of the connection is carried out until it is there."""

    def start(self, done: Callable[[Answer | Exception], None]) -> None:
        """`done` is called once, perhaps at once, on the broker's thread."""

    def cancel(self) -> None:
        """The connection is gone: `done` need not be called any more."""


class Slowly:
    """An answer that is made of a `Work`."""

    __slots__ = ("_answer", "_broker", "_work")

    def __init__(self, broker: Broker, work: Work[Any, T], answer: Callable[[T], Answer]) -> None:
        self._broker = broker
        self._work = work
        self._answer = answer

    def start(self, done: Callable[[Answer | Exception], None]) -> None:
        def finish() -> None:
            try:
                answer = self._answer(self._work.finish())
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                done(error)
            else:
                done(answer)

        self._work.start(self._broker.offload, finish)

    def cancel(self) -> None:
        """What has begun is done to its end; nobody hears of it."""


Outcome: TypeAlias = Answer | Later
Handler: TypeAlias = Callable[[Call, Any], Outcome]
