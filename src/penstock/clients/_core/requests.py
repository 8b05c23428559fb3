"""Requests, before and after they are sent. `RequestSpec` is a request and the decoding of its reply; `RequestBatch` is
a set of requests that are sent together, and their outcomes."""

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
"""Represents an outcome that is not available yet."""


@dataclass(slots=True)  # not frozen: that would make construction eight times slower
class RequestSpec(Generic[T]):
    """A request, how to decode its reply, and whether it may be sent twice. A door may add fields for its `encode` in a
    subclass."""

    request: Any  # a message of the door's wire format
    decode: Callable[[Any], T]  # converts the reply message to the result, or raises a PenstockError
    reply: type[Any] = object  # class of the reply message
    idempotent: bool = False  # executing it twice has the same effect as once
    changes: bool = False  # for idempotent requests: it has side effects, so its outcome matters
    conclusive: tuple[type[ReplyError], ...] = ()  # errors of a retry that prove that the first attempt had no effect
    timeout: float | None = None  # seconds to wait for the reply; None: the client's default

    @property
    def name(self) -> str:
        return type(self.request).__name__


def whole(reply: T) -> T:
    """A `decode` for replies that are results themselves."""
    return reply


def nothing(_reply: Any) -> None:
    """A `decode` for replies that only confirm."""


class RequestBatch(Signal):
    """Requests that are sent together on one connection. `outcomes` has a result, a PenstockError or PENDING for each.
    The signal is set when all have an outcome, or when the connection is `lost`: then missing outcomes stay PENDING."""

    __slots__ = ("answered", "count", "data", "deadline", "first_id", "lost", "outcomes", "sent_at", "size", "specs")

    first_id: int  # of `count` consecutive ids, if requests have ids; this and the following are set when it is sent
    sent_at: float
    deadline: float  # when to give it up
    size: int  # bytes on the wire

    def __init__(self, specs: Sequence[RequestSpec[Any]], data: bytes | None = None, count: int | None = None) -> None:
        self.specs = specs
        self.data = data  # already encoded, if the encoding does not depend on the connection
        self.count = count = len(specs) if count is None else count
        self.outcomes: list[Any] = [PENDING] * count
        self.answered = 0
        self.lost: Exception | None = None
        self.is_set = not count
        self._listeners = None

    def decode(self, at: int, frame: Any, message_of: Callable[[RequestSpec[Any], Any], Any]) -> Any:
        """The outcome of one request, from the frame that answers it. Raises BadReply if it does not. A batch of many
        equal requests may override this with a faster way."""
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
        """Record the outcome of one request."""
        self.outcomes[at] = outcome
        self.answered += 1
        if self.answered == self.count:
            self.set()

    def lose(self, reason: Exception) -> None:
        """Record that no more replies will arrive."""
        if not self.is_set:
            self.lost = reason
            self.set()

    def settled(self, unknown: Callable[[Exception], PenstockError]) -> list[Any]:
        """The outcomes if nothing is retried; `unknown` makes the error for missing ones."""
        if self.lost is None:
            return self.outcomes
        missing = unknown(self.lost)
        return [missing if outcome is PENDING else outcome for outcome in self.outcomes]


def result_of(outcome: Any) -> Any:
    """The outcome, raised if it is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def results_of(outcomes: Sequence[Any]) -> Sequence[Any]:
    """The outcomes; the first error is raised."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes
