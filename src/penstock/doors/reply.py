"""Replies of request handlers, immediate or pending. The session encodes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.log.engine import CommitGroup

T = TypeVar("T")

COMMITTED: Final = CommitGroup()
"""The group of a reply that depends on nothing."""
COMMITTED.finish()


class Reply(msgspec.Struct, frozen=True):
    """A reply that is valid once `group` is committed; without one, once all earlier state changes are."""

    message: Any  # a message of the protocol; bytes: whole frames
    group: CommitGroup | None = None


Completion: TypeAlias = Callable[[Reply | Exception | None], None]
"""Called once with the outcome of a `PendingReply`: the reply, the error, or None if everything was already sent."""


class PendingReply(Protocol):
    """A reply that is not available yet. The connection executes nothing else until it is."""

    def start(self, on_complete: Completion) -> None:
        """`on_complete` is called once, possibly immediately, on the broker's thread."""

    def cancel(self) -> None:
        """The connection is lost: `on_complete` need not be called."""


class OffloadedReply:
    """A reply computed from the result of a `Deferred`."""

    __slots__ = ("_broker", "_reply", "_work")

    def __init__(self, broker: Broker, work: Deferred[Any, T], reply: Callable[[T], Reply]) -> None:
        self._broker = broker
        self._work = work
        self._reply = reply

    def start(self, on_complete: Completion) -> None:
        metrics = self._broker.metrics
        caller = metrics.caller

        def finish() -> None:
            before, metrics.caller = metrics.caller, caller
            try:
                reply = self._reply(self._work.finish())
            except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's
                on_complete(error)
            else:
                on_complete(reply)
            finally:
                metrics.caller = before

        self._work.start(self._broker.executor, finish)

    def cancel(self) -> None:
        """Running work completes; its result is ignored."""


Outcome: TypeAlias = Reply | PendingReply
