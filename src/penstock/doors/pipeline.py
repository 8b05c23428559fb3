"""The dispatch loop of every door: the requests of one connection are carried out and answered strictly in order.

`feed` keeps the requests that bytes complete. `dispatch` takes one after the other: look its handler up in the door's
table, wait if it must (a read waits for earlier writes, everything for a client that does not take its replies),
execute it inside the one error boundary, and queue its reply behind the commit that it depends on. A reply that takes
its time holds up the requests behind it. Input is fed in slices and requests are executed one by one, each only while
the connection's share of the turn lasts (`broker/runtime/turns`); then other connections have theirs. A client that has
to log in and does not is closed after a few requests (`login_allowance`). `discard` drops what was not carried out.

Whatever goes on later, after a read, a commit, a wait or another's turn, comes back through `work`, `_complete` or
`guard`, and so into the same boundary: an error that nobody expected is counted, logged once, told in the protocol's
own words where a request waits for its reply, and ends this connection alone.

A door's session says how bytes become requests, and how replies and errors become bytes.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.runtime.turns import Turn
from penstock.doors.handlers import Handler
from penstock.doors.login_allowance import LoginAllowance
from penstock.doors.reply import Outcome, PendingReply, Reply
from penstock.doors.reply_queue import OnFailure, ReplyQueue
from penstock.doors.request_context import RequestContext
from penstock.doors.session import CLOSED, DRAINING, OPEN, TRANSITIONS, Channel, ConnectionEvent
from penstock.log.engine import CommitGroup

logger = logging.getLogger(__name__)

FLUSH_BYTES: Final = 256 << 10  # replies of this size are not collected any further before they are sent
FEED_BYTES: Final = 256 << 10  # of input that are cut into frames at once: 15 ms, if there are only the smallest
STRANGER_FEED_BYTES: Final = 64 << 10  # the same for those who have not logged in
NO_SLICES: Final = 1 << 62  # where frames are cut one at a time


class RequestPipeline(ABC):
    """The requests of one connection; a `Session`."""

    door: str = ""
    """The name of the door, for log lines."""

    feed_bytes: int = FEED_BYTES
    """Bytes of input that are fed at once."""

    expected: tuple[type[Exception], ...] = ()
    """Errors that the client is told. Anything else is a mistake of ours: logged, told as such, and the end of the
    connection."""

    def __init__(self, broker: Broker, channel: Channel) -> None:
        self.broker = broker
        self._state_log = broker.state_log
        self.channel = channel
        self.replies = ReplyQueue(channel.send, self._replied, self._abandon)
        self.state = OPEN
        self._dispatching = False
        self._metrics = broker.metrics
        self.figures = broker.metrics.door(self.door)
        self.figures.sessions += 1
        self.figures.sessions_opened += 1
        self._turns = broker.turns
        self._turn = Turn(broker.turns, self._resume)
        self._allowance: LoginAllowance | None = None  # of a client that has to log in and has not
        self._inbox: deque[bytes] = deque()  # input that was not fed yet,
        self._fed = 0  # but for so many bytes of its first piece
        self._inbox_bytes = 0
        self._cost = 1  # of the request that `_peek` gave, out of `MAX_PER_TURN`
        self._running: Handler | None = None  # of the last request that was executed
        self._pending: PendingReply | None = None  # the reply to the last request that was executed
        self._awaited: Any = None  # that request

    # -- what a door defines: requests

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Keep the requests that these bytes complete. After bytes that cannot be understood, call `reject_input` or,
        if the requests before them are still to be answered, `end_input`."""

    @abstractmethod
    def _peek(self) -> Any:
        """The next request, which stays the next one until `_invoke`; None if there is none for now."""

    @abstractmethod
    def _handler(self, request: Any) -> Handler | None:
        """Its entry in the door's table."""

    @abstractmethod
    def _invoke(self, handler: Handler | None, request: Any) -> Outcome | None:
        """Remove the request that `_peek` gave, and carry it out. None: it was answered, or will be. May raise
        anything: this is inside the error boundary."""

    @property
    @abstractmethod
    def _drained(self) -> bool:
        """Whether no request is left that could be carried out now or after a wait."""

    @property
    @abstractmethod
    def _input_bytes(self) -> int:
        """Bytes of input that are kept."""

    @abstractmethod
    def _discard_input(self) -> None:
        """Drop all input that was not carried out."""

    def _release(self) -> None:  # noqa: B027 - most doors have nothing of the kind
        """Give up what belongs to the connection alone: it takes no more requests."""

    def _logged_in(self) -> bool:
        """Asked of doors that have an allowance for those who have not."""
        return True

    # -- what a door defines: replies

    @abstractmethod
    def _encode(self, request: Any, message: Any) -> bytes:
        """The frames of a reply. An error that this raises is the reply instead."""

    @abstractmethod
    def _encode_error(self, request: Any, error: Exception) -> bytes:
        """The frames that tell an error. Never raises."""

    @abstractmethod
    def _enqueue(self, request: Any, data: bytes, after: CommitGroup | None) -> None:
        """Queue a reply behind this commit, with what replaces it if that fails, and the bytes of the request that
        memory keeps until it leaves."""

    def _on_failure(self, request: Any) -> OnFailure:
        """The reply instead if the commit that it depends on fails."""
        return partial(self._encode_error, request)

    # -- what the transport calls

    def receive(self, data: bytes) -> None:
        if data and self.state is OPEN:
            if len(data) <= self.feed_bytes and not (self._inbox or self._turn.yielding or self._allowance is not None):
                try:
                    self.feed(data)
                except Exception as error:  # noqa: BLE001 - `_crash` logs it
                    self._crash(error)
            else:
                self._inbox.append(data)
                self._inbox_bytes += len(data)
        self.work()

    def end_of_input(self) -> None:
        self._change(ConnectionEvent.END_OF_INPUT)
        self.work()

    def stop(self) -> None:
        self._change(ConnectionEvent.STOP)
        self.work()

    def lost(self) -> None:
        self._change(ConnectionEvent.LOST)
        self.discard()
        self.replies.discard()

    @property
    def long_lived(self) -> bool:
        return True

    @property
    def held_bytes(self) -> int:
        return self._inbox_bytes + self._input_bytes + self.replies.held_bytes

    @property
    def yielding(self) -> bool:
        return self._turn.yielding

    def describe_work(self) -> dict[str, str]:
        kind = "unreadable" if self._running is None else self._running.function.__name__
        context: RequestContext | None = getattr(self, "_context", None)
        who = "" if context is None else context.identity.name
        return {"door": self.door, "peer": self.channel.peer, "request": kind, "identity": who}

    # -- states

    def _change(self, event: ConnectionEvent) -> None:
        state = TRANSITIONS[self.state][event]
        if state is CLOSED and self.state is not CLOSED:
            self.figures.sessions -= 1
        self.state = state

    @property
    def closed(self) -> bool:
        return self.state is CLOSED

    def end_input(self) -> None:
        """Take no more input, not even what was received. The connection closes when all requests are answered."""
        self._change(ConnectionEvent.END_OF_INPUT)
        self._discard_inbox()

    def reject_input(self) -> None:
        """Take no more input and drop the requests that it sent; the connection closes when all replies are out."""
        self._change(ConnectionEvent.VIOLATION)
        self.discard()

    def discard(self) -> None:
        """Drop all requests that were not carried out, and whatever belongs to the connection alone."""
        self._discard_inbox()
        self._discard_input()
        pending, self._pending = self._pending, None
        self._awaited = None
        if pending is not None:
            pending.cancel()
        self._release()

    # -- the dispatch loop

    def work(self) -> None:
        """Carry out what can be carried out now, send what can be sent, and close if that was all."""
        if self._dispatching or self.state is CLOSED:
            return
        self._dispatching = True
        metrics = self._metrics
        before, metrics.caller = metrics.caller, self.figures
        try:
            self.dispatch()
        except Exception as error:  # noqa: BLE001 - `_crash` logs it
            self._crash(error)
        finally:
            self._dispatching = False
            metrics.caller = before
        try:
            self.replies.flush()
        except Exception as error:  # noqa: BLE001 - as above
            self._abandon(error)
        if self.state is DRAINING and self._idle and self.replies.empty:
            self._change(ConnectionEvent.DRAINED)
            self.discard()
            self.channel.close()

    def dispatch(self) -> None:
        """Execute requests, until there are no more, the next one has to wait, or others have their turn."""
        replies, turn = self.replies, self._turn
        turn.begun = False
        while self._pending is None and not turn.yielding:
            request = self._peek()
            if request is None and not self._inbox:
                return
            if turn.over():
                turn.give_way()
                continue
            if request is None:
                self._feed_slice()
                continue
            handler = self._handler(request)
            checks = replies.held_bytes > FLUSH_BYTES or (handler is not None and handler.reads)
            if checks and self._must_wait(handler):
                return
            if self._allowance is not None and not self._allowed(self._allowance, request):
                return
            turn.requests -= self._cost
            self._running = handler
            self.figures.requests += 1
            self._execute(handler, request)
            if self._allowance is not None and handler is not None and handler.logs_in and not self._logged_in():
                self._allowance.not_logged_in()

    def _feed_slice(self) -> None:
        """Feed the next bytes of the inbox: at most `feed_bytes`."""
        data, start = self._inbox[0], self._fed
        end = start + self.feed_bytes
        if end < len(data):
            self._fed = end
            piece = data[start:end]
        else:
            self._inbox.popleft()
            self._fed = 0
            piece = data[start:] if start else data
        self._inbox_bytes -= len(piece)
        self._turn.bytes -= len(piece)
        if self._allowance is not None and not self._allowance.feed(len(piece)):
            if not self._logged_in():
                self._shut_out(self._allowance)
                return
            self._welcome()
        self.feed(piece)

    def _discard_inbox(self) -> None:
        self._inbox.clear()
        self._fed = self._inbox_bytes = 0

    def _allowed(self, allowance: LoginAllowance, request: Any) -> bool:
        """False if that was one request too many of a client that has to log in; it has been told."""
        if self._logged_in():
            self._welcome()
        elif not allowance.ask():
            self._refuse(request, allowance.refusal())
            self._shut_out(allowance)
            return False
        return True

    def _shut_out(self, allowance: LoginAllowance) -> None:  # noqa: ARG002 - a door may tell its log
        """The client has to log in, and has used its allowance up."""
        self.reject_input()

    def _welcome(self) -> None:
        """The client has logged in."""
        if self._allowance is not None:
            self._allowance.reset()
        self._allowance = None
        self._turn.stranger = False

    def _resume(self) -> None:
        """Others have had their turn."""
        if not self._dispatching and self.state is not CLOSED:
            self.progress()

    def _must_wait(self, handler: Handler | None) -> bool:
        """Whether a request has to wait: for the client to take earlier replies and, if it reads, for earlier writes.
        Asked of every read; of a write, whose reply is small, only when `FLUSH_BYTES` of replies are held."""
        replies = self.replies
        reads = handler is not None and handler.reads
        if replies.held_bytes > FLUSH_BYTES:
            replies.flush()
            if handler is not None and handler.large and replies.held_bytes > FLUSH_BYTES:
                return True  # what is left waits for a commit, after which this goes on
        return self.channel.congested or (reads and bool(replies.waiting) and replies.blocked)

    def _execute(self, handler: Handler | None, request: Any) -> None:
        """One request, inside the error boundary."""
        try:
            outcome = self._invoke(handler, request)
        except Exception as error:  # noqa: BLE001 - `_fail` logs what was not expected
            self._fail(request, error)
            return
        if isinstance(outcome, Reply):
            self._answer(request, outcome)
        elif outcome is not None:
            self._pending, self._awaited = outcome, request
            try:
                outcome.start(partial(self._complete, request, outcome))
            except Exception as error:  # noqa: BLE001 - `_crash` logs it
                self._crash(error)

    def _complete(self, request: Any, pending: PendingReply, outcome: Reply | Exception | None) -> None:
        """The outcome of a `PendingReply`. Only the first counts, and none of one that was cancelled. Never raises."""
        if self.state is CLOSED or self._pending is not pending:
            return
        self._pending = None
        try:
            if isinstance(outcome, Reply):
                self._answer(request, outcome)
            elif outcome is not None:
                self._fail(request, outcome)
        except Exception as error:  # noqa: BLE001 - `_crash` logs it
            self._crash(error)
        self._awaited = None
        if not self._dispatching:
            self.progress()

    def guard(self, step: Callable[[], None]) -> None:
        """Take a step that something outside the pipeline led to, inside the error boundary."""
        metrics = self._metrics
        before, metrics.caller = metrics.caller, self.figures
        try:
            step()
        except Exception as error:  # noqa: BLE001 - `_crash` logs it
            self._crash(error)
            self.work()
        finally:
            metrics.caller = before

    def _crash(self, error: Exception) -> None:
        """A mistake of ours that is not the outcome of one request: the end of the connection. `work` closes it, behind
        the replies that are due."""
        self._report(error)
        if self.state is CLOSED:
            return
        awaited = self._awaited
        try:
            if awaited is not None:
                self._refuse(awaited, error)
            self.reject_input()
        except Exception:  # noqa: BLE001 - one of them is enough for the log
            self._close_at_once()

    def _abandon(self, error: Exception) -> None:
        """As `_crash`, for replies that cannot even be sent."""
        self._report(error)
        self._close_at_once()

    def _close_at_once(self) -> None:
        if self.state is CLOSED:
            return
        self._change(ConnectionEvent.LOST)
        self.replies.discard()
        with contextlib.suppress(Exception):
            self.discard()
        self.channel.close()

    def _report(self, error: Exception) -> None:
        """Count and log a mistake of ours."""
        self.broker.metrics.internal_errors += 1
        keys = {"peer": self.channel.peer, "door": self.door}
        logger.error("a request of %s failed", self.channel.peer, exc_info=error, extra=keys)

    def progress(self) -> None:
        """Go on after something that was waited for."""
        turns = self._turns
        began = turns.timer()
        self.work()
        turns.charge(turns.timer() - began, self)
        if self.state is not CLOSED:
            self.channel.progress()

    @property
    def _idle(self) -> bool:
        return self._pending is None and not self._inbox and self._drained

    # -- replies

    def _answer(self, request: Any, reply: Reply) -> None:
        message, group = reply.message, reply.group
        try:
            data = message if isinstance(message, bytes) else self._encode(request, message)
        except Exception as error:  # noqa: BLE001 - a reply that cannot be encoded; `_fail` logs it
            self._fail(request, error)
        else:
            self._enqueue(request, data, self._state_log.pending_commit if group is None else group)

    def _fail(self, request: Any, error: Exception) -> None:
        self.figures.failed(error)
        expected = isinstance(error, self.expected)
        if not expected:
            self._report(error)
        error.__traceback__ = None  # its frames know the error: together they would keep the request
        self._await_audit()
        self._refuse(request, error)
        if not expected:
            self.reject_input()

    def _refuse(self, request: Any, error: Exception) -> None:
        """Tell the client of an error, behind every change of state that it may be about."""
        self.replies.enqueue(self._encode_error(request, error), self.broker.pending_commit, self._on_failure(request))

    def _await_audit(self) -> None:
        """The next reply leaves behind the audit events that were noted so far: nobody hears of a refusal before it is
        in the log."""
        noted = self.broker.audit.pending_commit
        if noted is not None:
            self.replies.enqueue(b"", noted)

    def _replied(self) -> None:
        """Replies have left after a commit. With one request at a time there is nothing else to do then."""
        if self.state is OPEN and self._pending is None and not self._inbox and self._drained:
            self.channel.progress()
        else:
            self.progress()
