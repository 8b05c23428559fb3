"""What an operation of a protocol answers: at once, or later. How an answer becomes bytes is the session's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.log.engine import CommitGroup

T = TypeVar("T")


class Reply(NamedTuple):
    """A reply that is true once `group` is committed; without one, once every earlier change of state is."""

    reply: Any  # a message of the protocol; bytes: the whole frame
    group: CommitGroup | None = None


class PendingReply(Protocol):
    """An answer that takes its time. Nothing else of the connection is carried out until it is there."""

    def start(self, done: Callable[[Reply | Exception], None]) -> None:
        """`done` is called once, perhaps at once, on the broker's thread."""

    def cancel(self) -> None:
        """The connection is gone: `done` need not be called any more."""


class OffloadedReply:
    """An answer that is made of a `Deferred`."""

    __slots__ = ("_answer", "_broker", "_work")

    def __init__(self, broker: Broker, work: Deferred[Any, T], answer: Callable[[T], Reply]) -> None:
        self._broker = broker
        self._work = work
        self._answer = answer

    def start(self, done: Callable[[Reply | Exception], None]) -> None:
        def finish() -> None:
            try:
                answer = self._answer(self._work.finish())
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                done(error)
            else:
                done(answer)

        self._work.start(self._broker.executor, finish)

    def cancel(self) -> None:
        """What has begun is done to its end; nobody hears of it."""


Outcome: TypeAlias = Reply | PendingReply
