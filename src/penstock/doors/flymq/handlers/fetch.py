"""FETCH: read on until there is something to answer, or nothing more, or the time is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.fetch.fetch_waiters import FetchWaiter
from penstock.broker.fetch.filters import MAX_WORK, Filter, compile_filter
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.security.access import Permission
from penstock.doors.flymq.handlers.groups import LATEST
from penstock.doors.flymq.request_context import SCOPE, RequestContext
from penstock.doors.reply import Reply
from penstock.log.errors import OffsetOutOfRange
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import replies
from penstock.wire.flymq.opcodes import Op

DEFAULT_MESSAGES: Final = 10
MAX_MESSAGES: Final = 10_000  # of one reply, whatever was asked
MAX_BYTES: Final = 8 << 20  # of keys and values; a larger record goes alone
STEP_RECORDS: Final = 1000  # looked at in one step when there is a filter
MAX_WAIT: Final = 9_000_000  # µs: clients give up after 10 s
MAX_SCAN: Final = 5_000_000  # µs that a filter may look for its first match


def fetch(call: RequestContext, request: m.Fetch | m.FetchBinary) -> FetchTask:
    return FetchTask(call, request)


class FetchTask:
    """One FETCH on its way; a `Later`. A filter that finds nothing reads on to the end of the log: a client that only
    moves when it gets records would ask for the same ones for ever."""

    def __init__(self, call: RequestContext, request: m.Fetch | m.FetchBinary) -> None:
        self._call = call
        self._request = request
        if request.filter:  # it takes a while to understand one: not for everybody
            call.broker.access.require(call.identity, Permission.READ, SCOPE, request.topic)
        self._filter: Filter | None = compile_filter(request.filter) if request.filter else None
        wanted = request.max_messages if request.max_messages > 0 else DEFAULT_MESSAGES
        self._wanted = min(wanted, MAX_MESSAGES)
        self._at = request.offset
        self._offsets: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._bytes = 0
        self._started = call.broker.metrics.timer()
        self._began = call.broker.now()
        self._wait: FetchWaiter | None = None
        self._plan: VisibleRead | None = None
        self._error: Exception | None = None
        self._setting_off = False  # a step is being sent off the loop
        self._back = False  # and has come back already
        self._done: Callable[[Reply | Exception], None] | None = None

    def start(self, done: Callable[[Reply | Exception], None]) -> None:
        self._done = done
        self._go_on()

    def cancel(self) -> None:
        self._done = None
        if self._wait is not None:
            self._wait.cancel()

    # -- one step after the other

    def _go_on(self) -> None:
        """Take steps. Those that need the disk or have a filter are taken off the loop."""
        while self._done is not None:
            try:
                continuation = self._plan.continuation() if self._plan is not None and self._plan.passed else None
                self._plan = plan = continuation or self._next_plan()
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                self._tell(error)
                return
            if plan.ready and self._filter is None:
                self._read()
            elif not self._sent_and_back():
                return
            if not self._taken(plan):
                return

    def _sent_and_back(self) -> bool:
        """Send a step off the loop. Whether it is back already: else `_came` goes on."""
        broker = self._call.broker
        self._setting_off, self._back = True, False
        (broker.executor if self._filter is None else broker.scan_executor)(self._read, self._came)
        self._setting_off = False
        return self._back

    def _came(self) -> None:
        if self._setting_off:
            self._back = True
        elif self._done is not None and self._plan is not None and self._taken(self._plan):
            self._go_on()

    def _next_plan(self) -> VisibleRead:
        request = self._request
        records, size = self._wanted, MAX_BYTES - self._bytes
        if self._filter is not None:
            records, size = STEP_RECORDS, min(size, MAX_WORK // self._filter.cost)
        place = (self._call.identity, SCOPE, request.topic, request.partition)
        try:
            return self._call.broker.fetch.plan(*place, self._at, size, records)
        except OffsetOutOfRange as error:
            self._at = error.start  # what was there is gone: the next that is there
            return self._call.broker.fetch.plan(*place, self._at, size, records)

    def _read(self) -> None:
        """May run on any thread."""
        if self._done is None:
            return  # it waited for its turn, and meanwhile the client went away
        try:
            assert self._plan is not None
            for part in self._plan.run():
                keys, values = part.keys(), part.values()
                base = part.base_offset
                if self._filter is None:
                    self._offsets += range(base, base + len(values))
                    self._keys += keys
                    self._values += values
                else:
                    for place in self._filter.matches(keys, values):
                        self._offsets.append(base + place)
                        self._keys.append(keys[place])
                        self._values.append(values[place])
        except Exception as error:  # noqa: BLE001 - raised again on the broker's thread
            self._error = error

    def _taken(self, plan: VisibleRead) -> bool:
        """Whether to take another step."""
        if self._error is not None:
            if self._values:
                self._answer()  # what was found before; who asks for more is told
            else:
                self._tell(self._error)
            return False
        moved, self._at = plan.end > self._at, max(plan.end, self._at)
        if len(self._values) >= self._wanted:
            self._cut(self._wanted)
        elif self._filter is None and self._values:
            pass
        elif moved and self._has_time(MAX_SCAN):
            self._bytes = sum(map(len, self._values))
            if self._bytes < MAX_BYTES:
                return True
        elif not self._values:
            try:
                if self._has_grown():
                    return True
                if self._starts_to_wait():
                    return False
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                self._tell(error)  # the topic may be gone, or the right to read it
                return False
        self._answer()
        return False

    def _has_time(self, limit: int) -> bool:
        return self._call.broker.now() - self._began < limit

    def _has_grown(self) -> bool:
        """Whether there are records that came while a step was taken off the loop: nobody will tell of them again."""
        call, request = self._call, self._request
        return call.broker.groups.start(call.identity, SCOPE, request.topic, request.partition, LATEST) > self._at

    def _starts_to_wait(self) -> bool:
        """Nothing is there: wait for the partition to grow, if that is wanted."""
        call, request = self._call, self._request
        seconds = call.broker.fetch.max_wait(call.identity, SCOPE, request.topic)
        wait = min(call.settings.fetch_wait if seconds is None else int(seconds * 1_000_000), MAX_WAIT)
        if not self._has_time(wait):
            return False
        self._wait = call.broker.fetch.wait(
            call.identity, SCOPE, request.topic, request.partition, self._began + wait, self._go_on
        )
        return True

    # -- the reply

    def _cut(self, count: int) -> None:
        """Leave out what was read beyond what was wanted: it is read again."""
        if len(self._values) > count:
            self._at = self._offsets[count]
            del self._offsets[count:], self._keys[count:], self._values[count:]

    def _answer(self) -> None:
        request, metrics = self._request, self._call.broker.metrics
        op = Op.FETCH_BINARY if isinstance(request, m.FetchBinary) else Op.FETCH
        size = sum(map(len, self._values))
        metrics.fetched(len(self._values), size, self._started)
        data = replies.encode_fetched(op, self._offsets, self._keys, self._values, self._at, request.code_order)
        self._tell(Reply(data))

    def _tell(self, outcome: Reply | Exception) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
