"""The dispatch loop of every door: the requests of one connection are executed and answered strictly in order.

`feed` parses bytes into requests. `dispatch` handles one request after another: looks up its handler in the door's
table, waits if necessary (reads wait for earlier writes, and all requests for a client that does not receive its
replies), executes it inside the error boundary, and queues its reply behind the commit that it depends on. A pending
reply delays the requests after it. Input is fed in slices and requests are executed one by one, within the connection's
share of the turn (`broker/runtime/turns`); then other connections have theirs. A client that does not log in, although
it must, is disconnected after a few requests (`login_allowance`). `discard` drops requests that were not executed.

Every continuation, after a read, a commit, a wait or another connection's turn, enters through `work`, `_complete` or
`guard`, and so is inside the same boundary: an unexpected error is counted, logged once, reported in the protocol's
format if a request waits for its reply, and closes only this connection.

A door's session parses bytes into requests, and encodes replies and errors.
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

FLUSH_BYTES: Final = 256 << 10  # replies of this size are sent before more are collected
FEED_BYTES: Final = 256 << 10  # of input that are split into frames at a time: 15 ms if all frames are minimal
UNAUTHENTICATED_FEED_BYTES: Final = 64 << 10  # the same before login
NO_SLICES: Final = 1 << 62  # for doors that split off one frame at a time


class RequestPipeline(ABC):
    """The requests of one connection; a `Session`."""

    door: str = ""
    """The name of the door, for log lines."""

    feed_bytes: int = FEED_BYTES
    """Bytes of input that are fed at a time."""

    expected: tuple[type[Exception], ...] = ()
    """Errors that are reported to the client. Any other is a bug: it is logged, reported as an internal error, and
    closes the connection."""

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
        self._allowance: LoginAllowance | None = None  # until a required login
        self._inbox: deque[bytes] = deque()  # input that was not fed yet, except
        self._fed = 0  # this many bytes of its first chunk
        self._inbox_bytes = 0
        self._cost = 1  # of the request from `_peek`, out of `MAX_PER_TURN`
        self._running: Handler | None = None  # of the last executed request
        self._pending: PendingReply | None = None  # the reply to the last executed request
        self._awaited: Any = None  # that request

    # -- defined by a door: requests

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Store the requests that these bytes complete. After undecodable bytes, call `reject_input` or, if earlier
        requests must still be answered, `end_input`."""

    def _sole_request(self, data: bytes) -> Any:  # noqa: ARG002
        """The request that is exactly these bytes, if the door has a short way for it and nothing is left of earlier
        input; otherwise None. `_invoke` executes it."""
        return None

    @abstractmethod
    def _peek(self) -> Any:
        """The next request, which remains the next until `_invoke`; None if there is none for now."""

    @abstractmethod
    def _handler(self, request: Any) -> Handler | None:
        """Its entry in the door's table."""

    @abstractmethod
    def _invoke(self, handler: Handler | None, request: Any) -> Outcome | None:
        """Remove the request from `_peek`, and execute it. None: it has been, or will be, answered. May raise anything:
        this is inside the error boundary."""

    @property
    @abstractmethod
    def _drained(self) -> bool:
        """Whether there is no request left that could be executed now or after a wait."""

    @property
    @abstractmethod
    def _input_bytes(self) -> int:
        """Bytes of buffered input."""

    @abstractmethod
    def _discard_input(self) -> None:
        """Drop all input that was not executed."""

    def _release(self) -> None:  # noqa: B027 - most doors have nothing to release
        """Release the resources of the connection: no more requests will be executed."""

    def _logged_in(self) -> bool:
        """Whether the client has logged in; called only at doors with a login allowance."""
        return True

    # -- defined by a door: replies

    @abstractmethod
    def _encode(self, request: Any, message: Any) -> bytes:
        """The frames of a reply. An error raised here becomes the reply instead."""

    @abstractmethod
    def _encode_error(self, request: Any, error: Exception) -> bytes:
        """The frames of an error reply. Never raises."""

    @abstractmethod
    def _enqueue(self, request: Any, data: bytes, after: CommitGroup | None) -> None:
        """Queue a reply behind this commit, with the replacement if that fails, and the bytes of the request that stay
        in memory until it is sent."""

    def _on_failure(self, request: Any) -> OnFailure:
        """The replacement for a reply whose commit fails."""
        return partial(self._encode_error, request)

    # -- called by the transport

    def receive(self, data: bytes) -> None:
        if data and self.state is OPEN:
            if len(data) <= self.feed_bytes and not (self._inbox or self._turn.yielding or self._allowance is not None):
                try:
                    if self._pending is None and self.replies.held_bytes <= FLUSH_BYTES and not self._dispatching:
                        request = self._sole_request(data)
                        if request is not None:
                            self._execute_alone(request)
                            return
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
    def awaiting_commit(self) -> bool:
        return bool(self.replies.waiting)

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
        """Accept no more input, and drop what was not fed. The connection closes when all requests are answered."""
        self._change(ConnectionEvent.END_OF_INPUT)
        self._discard_inbox()

    def reject_input(self) -> None:
        """Accept no more input, and drop the client's pending requests. The connection closes when all replies are
        sent."""
        self._change(ConnectionEvent.VIOLATION)
        self.discard()

    def discard(self) -> None:
        """Drop all requests that were not executed, and release the connection's resources."""
        self._discard_inbox()
        self._discard_input()
        pending, self._pending = self._pending, None
        self._awaited = None
        if pending is not None:
            pending.cancel()
        self._release()

    # -- the dispatch loop

    def work(self) -> None:
        """Execute and send as much as possible now, and close if that was all."""
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
        self._flush()
        if self.state is DRAINING and self._idle and self.replies.empty:
            self._change(ConnectionEvent.DRAINED)
            self.discard()
            self.channel.close()

    def _execute_alone(self, request: Any) -> None:
        """The short way of `work` for a client that waits for each reply: there is one request, and it need not
        wait."""
        metrics = self._metrics
        before, metrics.caller = metrics.caller, self.figures
        self._dispatching = True
        handler = self._handler(request)
        self._running = handler
        self.figures.requests += 1
        try:
            self._execute(handler, request)
        finally:
            self._dispatching = False
            metrics.caller = before
        if self.state is not OPEN:
            self.work()  # there is something to close
        elif not self.replies.waiting:
            self._flush()

    def _flush(self) -> None:
        try:
            self.replies.flush()
        except Exception as error:  # noqa: BLE001 - `_abandon` logs it
            self._abandon(error)

    def dispatch(self) -> None:
        """Execute requests until there are no more, the next one must wait, or the turn is over."""
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
        """Count a request before login. False, after an error reply, if it exceeds the allowance."""
        if self._logged_in():
            self._welcome()
        elif not allowance.ask():
            self._refuse(request, allowance.refusal())
            self._shut_out(allowance)
            return False
        return True

    def _shut_out(self, allowance: LoginAllowance) -> None:  # noqa: ARG002 - for doors that log it
        """Disconnect a client that has used up its login allowance."""
        self.reject_input()

    def _welcome(self) -> None:
        """Lift the limits after a login."""
        if self._allowance is not None:
            self._allowance.reset()
        self._allowance = None
        self._turn.unauthenticated = False

    def _resume(self) -> None:
        """Continue in the next turn."""
        if not self._dispatching and self.state is not CLOSED:
            self.progress()

    def _must_wait(self, handler: Handler | None) -> bool:
        """Whether a request must wait: until the client receives earlier replies and, if it is a read, for earlier
        writes. Called for every read; for a write, whose reply is small, only while `FLUSH_BYTES` of replies are
        held."""
        replies = self.replies
        reads = handler is not None and handler.reads
        if replies.held_bytes > FLUSH_BYTES:
            replies.flush()
            if handler is not None and handler.large and replies.held_bytes > FLUSH_BYTES:
                return True  # the rest waits for a commit, after which this continues
        return self.channel.congested or (reads and bool(replies.waiting) and replies.blocked)

    def _execute(self, handler: Handler | None, request: Any) -> None:
        """Execute one request, inside the error boundary."""
        try:
            outcome = self._invoke(handler, request)
        except Exception as error:  # noqa: BLE001 - `_fail` logs unexpected errors
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
        """Handle the outcome of a `PendingReply`. Later outcomes, and those after a cancellation, are ignored. Never
        raises."""
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
        """Run a step from outside the pipeline, inside the error boundary."""
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
        """Close the connection after a bug that is not the outcome of one request. `work` closes it, after the replies
        that are due."""
        self._report(error)
        if self.state is CLOSED:
            return
        awaited = self._awaited
        try:
            if awaited is not None:
                self._refuse(awaited, error)
            self.reject_input()
        except Exception:  # noqa: BLE001 - the first error is logged already
            self._close_at_once()

    def _abandon(self, error: Exception) -> None:
        """As `_crash`, if replies cannot even be sent."""
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
        """Count and log an unexpected error."""
        self.broker.metrics.internal_errors += 1
        keys = {"peer": self.channel.peer, "door": self.door}
        logger.error("a request of %s failed", self.channel.peer, exc_info=error, extra=keys)

    def progress(self) -> None:
        """Continue after a wait."""
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
        error.__traceback__ = None  # breaks a reference cycle, which would keep the request in memory
        self._await_audit()
        self._refuse(request, error)
        if not expected:
            self.reject_input()

    def _refuse(self, request: Any, error: Exception) -> None:
        """Reply with an error, after every state change that it may depend on."""
        self.replies.enqueue(self._encode_error(request, error), self.broker.pending_commit, self._on_failure(request))

    def _await_audit(self) -> None:
        """Delay the next reply until the audit events so far are committed: a refusal is audited before the client
        learns of it."""
        noted = self.broker.audit.pending_commit
        if noted is not None:
            self.replies.enqueue(b"", noted)

    def _replied(self) -> None:
        """Called when replies were sent after a commit. Clients with one request at a time take the short path."""
        if self.state is OPEN and self._pending is None and not self._inbox and self._drained:
            self.channel.progress()
        else:
            self.progress()
