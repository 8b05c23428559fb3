"""Requests, before and after they are sent. `RequestSpec` says what to send and what its reply means; `RequestBatch` is
requests that go out together, and their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.clients._core.errors import BadReply, PenstockError, ReplyError
from penstock.clients._core.signal import Signal

T = TypeVar("T")


class _Pending:
    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()
"""Stands for an outcome that is not there yet."""


@dataclass(slots=True)  # not frozen, which would take eight times as long to make
class RequestSpec(Generic[T]):
    """A request, what its reply means to the caller, and whether it may be sent twice. A door may derive from it to
    add what its `encode` needs."""

    request: Any  # a message of the door's wire format
    decode: Callable[[Any], T]  # makes the result of the message that answers it, or raises a PenstockError
    reply: type[Any] = object  # the class of that message
    idempotent: bool = False  # to carry it out twice is the same as once
    changes: bool = False  # of what is idempotent: it leaves something behind, so that its outcome matters
    conclusive: tuple[type[ReplyError], ...] = ()  # errors of a repetition that prove that the first time did nothing
    timeout: float | None = None  # seconds to wait for the reply; None: the client's

    @property
    def name(self) -> str:
        return type(self.request).__name__


def whole(reply: T) -> T:
    """A `decode` for replies that are results as they are."""
    return reply


def nothing(_reply: Any) -> None:
    """A `decode` for replies that only say that it is done."""


class RequestBatch(Signal):
    """Requests that go out together on one connection. `outcomes` has a result or a PenstockError for each, or PENDING.
    The signal is set when all are there, or when the connection is `lost`: then the outcomes that are missing stay
    PENDING."""

    __slots__ = ("answered", "count", "data", "deadline", "first_id", "lost", "outcomes", "sent_at", "size", "specs")

    first_id: int  # of `count` in a row, where requests have ids; this and the following are known when it is sent
    sent_at: float
    deadline: float  # when to give it up
    size: int  # bytes on the wire

    def __init__(self, specs: Sequence[RequestSpec[Any]], data: bytes | None = None, count: int | None = None) -> None:
        self.specs = specs
        self.data = data  # encoded beforehand, where that does not depend on the connection
        self.count = count = len(specs) if count is None else count
        self.outcomes: list[Any] = [PENDING] * count
        self.answered = 0
        self.lost: Exception | None = None
        self.is_set = not count
        self._listeners = None

    def decode(self, at: int, frame: Any, message_of: Callable[[RequestSpec[Any], Any], Any]) -> Any:
        """The outcome of one request by the frame that answers it. BadReply if that is no answer. A batch of many equal
        requests may override this by a quicker way."""
        spec = self.specs[at]
        try:
            message = message_of(spec, frame)
        except BadReply:
            raise
        except PenstockError as error:
            return error
        try:
            return spec.decode(message)
        except PenstockError as error:
            return error

    def settle(self, at: int, outcome: Any) -> None:
        """One request has its outcome."""
        self.outcomes[at] = outcome
        self.answered += 1
        if self.answered == self.count:
            self.set()

    def lose(self, reason: Exception) -> None:
        """No more replies will come."""
        if not self.is_set:
            self.lost = reason
            self.set()

    def settled(self, unknown: Callable[[Exception], PenstockError]) -> list[Any]:
        """The outcomes where nothing is sent again: those that were lost are unknown."""
        if self.lost is None:
            return self.outcomes
        missing = unknown(self.lost)
        return [missing if outcome is PENDING else outcome for outcome in self.outcomes]


def result_of(outcome: Any) -> Any:
    """The outcome, if it is a result."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def results_of(outcomes: Sequence[Any]) -> Sequence[Any]:
    """The outcomes, if all are results."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes
