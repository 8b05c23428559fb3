"""Requests in flight on one connection, without a socket: matches replies to requests, and finds overdue ones.

A door derives from `OrderedRequests`, where replies arrive in the order of the requests, or from `NumberedRequests`,
where they carry the request's id and arrive in any order. A driver calls `begin` before it sends, `feed` with received
data, `expire` at the `deadline`, and `lose` when the connection is lost. `now` is `time.monotonic()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from penstock.clients._core.errors import ErrorFamily
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec

Frame = TypeVar("Frame")


class InFlightRequests(Generic[Frame]):
    """State of one connection. `timeout` is how many seconds to wait for a reply."""

    def __init__(self, timeout: float, errors: ErrorFamily) -> None:
        self.timeout = timeout
        self.errors = errors
        self.heard = 0.0  # when data was last received
        self.bytes_in_flight = 0  # of unanswered requests

    def __len__(self) -> int:
        """The number of unanswered requests."""
        raise NotImplementedError

    # -- supplied by the door

    def frames(self, data: bytes) -> Iterable[Frame]:
        """Split received data into frames. Raises BadReply, after the complete ones, if it cannot be split."""
        raise NotImplementedError

    def message(self, spec: RequestSpec[Any], frame: Frame) -> Any:
        """The message that answers this request, for `spec.decode`. Raises the door's ReplyError if the server refused
        the request, and BadReply, which ends the connection, if the frame does not answer it."""
        raise NotImplementedError

    @property
    def accepting(self) -> bool:
        """Whether to keep reading while no caller waits: False if too much pushed data is waiting to be consumed."""
        return True

    @property
    def listening(self) -> bool:
        """Whether the server may send frames without a request: then a retired connection stays open."""
        return False

    # -- called by drivers

    def begin(self, batch: RequestBatch, now: float) -> bytes:
        """The bytes to send. Raises Unsendable, with nothing begun, if a request cannot be encoded."""
        raise NotImplementedError

    def feed(self, data: bytes, now: float) -> None:
        """Process received data. A PenstockError (mostly BadReply) ends the connection."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """The time at which to call `expire` if nothing is received before; None if nothing is due."""
        raise NotImplementedError

    def expire(self, now: float) -> RequestBatch | None:
        """Give up overdue requests. A TimeoutError ends the connection. Returns a request to send now, to probe the
        server."""
        raise NotImplementedError

    def lose(self, reason: Exception) -> None:
        """Record that the connection is lost: no more replies will arrive."""
        raise NotImplementedError


class OrderedRequests(InFlightRequests[Frame]):
    """Replies without ids, in the order of the requests. A reply that does not arrive in time ends the connection: a
    late one could be mistaken for the reply to another request."""

    def __init__(self, timeout: float, errors: ErrorFamily) -> None:
        super().__init__(timeout, errors)
        self._waiting: deque[RequestBatch] = deque()

    def __len__(self) -> int:
        return sum(batch.count - batch.answered for batch in self._waiting)

    @property
    def buffered(self) -> bool:
        """Whether an incomplete frame has been received; supplied by the door."""
        return False

    def begin(self, batch: RequestBatch, now: float) -> bytes:
        data = batch.data
        assert data is not None, "batches of ordered requests are encoded when they are made"
        if batch.count:
            if not self._waiting:
                self.heard = now  # nothing was due before
            batch.sent_at = now
            batch.deadline = now + self.timeout
            batch.size = len(data)
            self.bytes_in_flight += batch.size
            self._waiting.append(batch)
        return data

    def feed(self, data: bytes, now: float) -> None:
        self.heard = now
        waiting = self._waiting
        for frame in self.frames(data):
            if not waiting:
                raise self.errors.bad_reply("The server sent a reply that nobody asked for")
            batch = waiting[0]
            at = batch.answered
            batch.outcomes[at] = batch.decode(at, frame, self.message)
            batch.answered = at + 1
            if at + 1 == batch.count:
                waiting.popleft()
                self.bytes_in_flight -= batch.size
                batch.set()
        if not waiting and self.buffered:
            raise self.errors.bad_reply("The server sent more than anybody asked for")

    def deadline(self) -> float | None:
        return self.heard + self.timeout if self._waiting else None

    def expire(self, now: float) -> RequestBatch | None:
        if self._waiting and now - self.heard >= self.timeout:
            raise TimeoutError(f"no reply in {self.timeout:g} seconds")
        return None

    def lose(self, reason: Exception) -> None:
        self.bytes_in_flight = 0
        while self._waiting:
            self._waiting.popleft().lose(reason)


class NumberedRequests(InFlightRequests[Frame]):
    """Replies with ids, in any order. A request without a timely reply is given up by itself, unless the server has
    been silent since it was sent: then the connection counts as lost. Late replies are ignored.

    `encode` makes the bytes of a request with its id. With `keepalive`, a `probe` is sent after this many seconds of
    silence while no reply is due but the server may push something."""

    def __init__(
        self,
        timeout: float,
        errors: ErrorFamily,
        encode: Callable[[RequestSpec[Any], int], bytes],
        keepalive: float | None = None,
    ) -> None:
        super().__init__(timeout, errors)
        self._encode = encode
        self._keepalive = keepalive
        self._last_id = 0
        self._waiting: dict[int, RequestBatch] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    # -- supplied by the door

    def request_id(self, frame: Frame) -> int | None:
        """The id of the request that this frame answers; None if the server pushed it."""
        raise NotImplementedError

    def pushed(self, frame: Frame) -> None:  # noqa: ARG002
        """Handle a frame that answers no request. BadReply ends the connection."""
        raise self.errors.bad_reply("The server pushed what nobody asked for")

    def unexpected(self, request_id: int, frame: Frame) -> Exception:  # noqa: ARG002
        """The error that ends the connection after a reply to a request that is not in flight."""
        return self.errors.bad_reply(f"The server sent a reply to request {request_id}, which nobody made")

    def late(self, spec: RequestSpec[Any], frame: Frame) -> None:
        """Handle a reply to a request that was given up. BadReply ends the connection."""

    def probe(self) -> RequestSpec[Any] | None:
        """A request that any server answers at once, or None."""
        return None

    def allocate(self, count: int) -> int:
        """The first of `count` consecutive new ids."""
        first = self._last_id + 1
        self._last_id += count
        return first

    # -- called by drivers

    def begin(self, batch: RequestBatch, now: float) -> bytes:
        """The bytes to send. A request that cannot be encoded gets Unsendable as its outcome."""
        number = batch.first_id = self.allocate(batch.count)
        batch.sent_at = now
        shortest = self.timeout
        parts = []
        for spec in batch.specs:
            try:
                parts.append(self._encode(spec, number))
            except self.errors.unsendable as error:
                batch.settle(number - batch.first_id, error)
            else:
                self._waiting[number] = batch
            if spec.timeout is not None:
                shortest = spec.timeout if batch.count == 1 else min(shortest, spec.timeout)
            number += 1
        batch.deadline = now + shortest
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        batch.size = len(data)
        self.bytes_in_flight += batch.size
        return data

    def feed(self, data: bytes, now: float) -> None:
        self.heard = now
        for frame in self.frames(data):
            number = self.request_id(frame)
            if number is None:
                self.pushed(frame)
            else:
                self.answer(number, frame)

    def answer(self, number: int, frame: Frame) -> None:
        """Process the reply to the request with this id."""
        batch = self._waiting.pop(number, None)
        if batch is None:
            raise self.unexpected(number, frame)
        at = number - batch.first_id
        if batch.count == 1 or not self._in_flight(batch):
            self.bytes_in_flight -= batch.size
        if batch.outcomes[at] is not PENDING:  # it was given up
            self.late(batch.specs[at], frame)
            return
        try:
            outcome = batch.decode(at, frame, self.message)
        except self.errors.bad_reply as error:
            batch.settle(at, error)
            raise
        batch.settle(at, outcome)

    def _in_flight(self, batch: RequestBatch) -> bool:
        return any(number in self._waiting for number in range(batch.first_id, batch.first_id + batch.count))

    def deadline(self) -> float | None:
        due = min((batch.deadline for batch in self._waiting.values() if not batch.is_set), default=None)
        if self._keepalive is not None and self.listening:
            silent = self.heard + self._keepalive
            return silent if due is None else min(due, silent)
        return due

    def expire(self, now: float) -> RequestBatch | None:
        overdue = {id(batch): batch for batch in self._waiting.values() if batch.deadline <= now and not batch.is_set}
        for batch in overdue.values():
            self._give_up_overdue(batch, now)
        if any(self.heard <= batch.sent_at for batch in overdue.values()):
            raise TimeoutError("the server has been silent for too long")
        if self._keepalive is not None and self.listening and not self._waiting and now >= self.heard + self._keepalive:
            probe = self.probe()
            return None if probe is None else RequestBatch([probe])
        return None

    def _give_up_overdue(self, batch: RequestBatch, now: float) -> None:
        """Give up the overdue requests of a batch; each has its own timeout."""
        timeouts = [self._timeout_of(spec) for spec in batch.specs]
        for at, outcome in enumerate(batch.outcomes):
            if outcome is PENDING and batch.sent_at + timeouts[at] <= now:
                text = f"No reply to {batch.specs[at].name} in {timeouts[at]:g} seconds"
                batch.settle(at, self.errors.timed_out(text))
        left = [timeouts[at] for at, outcome in enumerate(batch.outcomes) if outcome is PENDING]
        batch.deadline = batch.sent_at + min(left, default=0.0)

    def _timeout_of(self, spec: RequestSpec[Any]) -> float:
        return self.timeout if spec.timeout is None else spec.timeout

    def lose(self, reason: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        self.bytes_in_flight = 0
        for batch in waiting.values():
            batch.lose(reason)
