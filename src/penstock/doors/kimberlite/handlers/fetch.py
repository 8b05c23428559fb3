"""ReadEvents: read on until there is something to answer, or nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity, Permission
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.reply import Reply
from penstock.log.batch import RecordSlice
from penstock.wire.kimberlite import messages as m

MAX_EVENTS: Final = 7_000  # of one reply: 120 KiB of them, with a length each, fit what the original's client can take
FIRST_MAX_BYTES: Final = 8 << 20  # of events in a reply of version 1: with what is between them it fits a frame


def read(call: RequestContext, request: m.ReadEvents) -> FetchTask:
    return FetchTask(call, request)


class FetchTask:
    """One ReadEvents on its way; a `Later`. What expired or was removed is passed by, in steps, however much it is: an
    empty list with an offset to go on from would confuse the original's clients, and one without it would be a lie."""

    def __init__(self, call: RequestContext, request: m.ReadEvents) -> None:
        self._call = call
        self._asker = call.identity, call.scope
        self._stream = request.stream_id
        most = FIRST_MAX_BYTES if call.version == 1 else call.settings.read_bytes
        self._bytes = max(1, min(request.max_bytes, most))
        self._at = request.from_offset
        self._started = call.broker.metrics.timer()
        self._plan: VisibleRead | None = None
        self._found: list[RecordSlice] = []
        self._error: Exception | None = None
        self._done: Callable[[Reply | Exception], None] | None = None

    def start(self, done: Callable[[Reply | Exception], None]) -> None:
        self._done = done
        self._go_on()

    def cancel(self) -> None:
        self._done = None

    # -- one step after the other

    def _go_on(self) -> None:
        """Take steps that need no disk, up to the first that does: `_came` goes on behind that."""
        while self._done is not None:
            try:
                self._plan = plan = self._next()
                if plan is None:
                    self._answer()
                    return
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                self._tell(error)
                return
            if not plan.ready:
                self._call.broker.executor(self._read, self._came)
                return
            self._read()
            if not self._taken():
                return

    def _next(self) -> VisibleRead | None:
        """What to read next; None at the end, which may be far below what was asked for."""
        continuation = self._plan.continuation() if self._plan is not None else None
        if continuation is not None:
            return continuation
        place = self._place()
        self._call.broker.access.require(place[0], Permission.READ, *place[1:3])
        if self._at >= self._end():
            return None
        return self._call.broker.fetch.plan(*place, self._at, self._bytes, MAX_EVENTS)

    def _place(self) -> tuple[Identity, Scope, str, int]:
        """Looked up for every step: the stream may be gone, and another one have its name."""
        topic, partition = self._call.broker.topics.stream(*self._asker, self._stream)
        return *self._asker, topic.name, partition

    def _read(self) -> None:
        """On any thread."""
        assert self._plan is not None
        try:
            self._found = self._plan.run()
        except Exception as error:  # noqa: BLE001 - told, or logged, by the session
            self._error = error

    def _came(self) -> None:
        if self._done is not None and self._taken():
            self._go_on()

    def _taken(self) -> bool:
        """Look at what a step has found. Whether there is to be another."""
        assert self._plan is not None
        if self._error is not None:
            self._tell(self._error)
            return False
        self._at = self._plan.end
        try:
            if not self._found and self._at < self._end():
                return True
            self._answer()
        except Exception as error:  # noqa: BLE001 - the stream may be gone, or the right to read it
            self._tell(error)
        return False

    def _end(self) -> int:
        identity, scope, topic, partition = self._place()
        return self._call.broker.topics.bounds(identity, scope, [topic])[topic][partition].high_watermark

    # -- the reply

    def _answer(self) -> None:
        events = [value for part in self._found for value in part.values()]
        more = self._at < self._end()
        self._call.note("stream.read", self._place()[2])
        self._call.broker.metrics.fetched(len(events), sum(map(len, events)), self._started)
        self._tell(Reply(m.ReadEventsResponse(events, self._at if more and events else None)))

    def _tell(self, outcome: Reply | Exception) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
