"""FETCH: reads until there are records to reply, or no more, or the time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from penstock.broker.errors import InvalidArgument, RecordUnsendable
from penstock.broker.fetch.fetch_waiters import FetchWaiter
from penstock.broker.fetch.filters import MAX_WORK, Filter, compile_filter
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.security.access import Permission
from penstock.doors.fetch import READ, REPLY, WAIT, FetchTask, Step
from penstock.doors.flymq.handlers.groups import LATEST
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.log.batch import Headers, RecordSlice
from penstock.log.errors import OffsetOutOfRange
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import fetched_records
from penstock.wire.flymq.errors import PayloadTooLarge
from penstock.wire.flymq.opcodes import Op

DEFAULT_MESSAGES: Final = 10
MAX_MESSAGES: Final = 5_000  # in one reply: some 20 ms of event loop time
MAX_BYTES: Final = 8 << 20  # of keys and values; a larger record is sent alone
STEP_RECORDS: Final = 1000  # of one read with a filter
MAX_WAIT: Final = 9_000_000  # µs: clients give up after 10 s
MAX_SCAN: Final = 5_000_000  # µs that a filter may scan for its first match


class FlyMqFetch(FetchTask):
    """One FETCH. A filter without a match reads on to the end of the log: a client that advances only when it gets
    records would otherwise fetch the same range forever."""

    __slots__ = (
        *("_began", "_bytes", "_context", "_filter", "_keys", "_limit"),
        *("_offset", "_offsets", "_request", "_values", "_waiter"),
    )

    def __init__(self, context: FlyMqContext, request: m.Fetch | m.FetchBinary) -> None:
        super().__init__(context.broker)
        self._context = context
        self._request = request
        if request.filter:  # compiling takes time: only for clients with access
            context.broker.access.require(context.identity, Permission.READ, context.scope, request.topic)
        self._filter: Filter | None = compile_filter(request.filter) if request.filter else None
        if self._filter is not None:
            self.executor = self.broker.scan_executor
        limit = request.max_messages if request.max_messages > 0 else DEFAULT_MESSAGES
        self._limit = min(limit, MAX_MESSAGES)
        self._offset = request.offset
        self._offsets: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._bytes = 0
        self._began = context.broker.now()
        self._waiter: FetchWaiter | None = None

    def cancel(self) -> None:
        super().cancel()
        if self._waiter is not None:
            self._waiter.cancel()

    # -- the reads

    def _next_plan(self) -> VisibleRead:
        continuation = self.plan.continuation() if self.plan is not None else None
        if continuation is not None:
            return continuation
        request = self._request
        records, size = self._limit, MAX_BYTES - self._bytes
        if self._filter is not None:
            records, size = STEP_RECORDS, min(size, MAX_WORK // self._filter.cost)
        partition = (self._context.identity, self._context.scope, request.topic, request.partition)
        try:
            return self.broker.fetch.plan(*partition, self._offset, size, records)
        except OffsetOutOfRange as error:
            self._offset = error.start  # retention has removed that record: continue at the first that remains
            return self.broker.fetch.plan(*partition, self._offset, size, records)

    def _collect(self, slices: list[RecordSlice]) -> None:
        for part in slices:
            keys, values = part.keys(), part.values()
            base = part.base_offset
            if self._filter is None:
                self._offsets += range(base, base + len(values))
                self._keys += keys
                self._values += values
            else:
                self._keep(base, keys, values, self._filter)

    def _keep(self, base: int, keys: Sequence[bytes | None], values: Sequence[bytes], wanted: Filter) -> None:
        """Keep the records that match the filter. Raises InvalidArgument for one that is too large for it: records
        before it are kept, and the next fetch begins with it."""
        refusal: InvalidArgument | None = None
        try:
            found = wanted.matches(keys, values)
        except InvalidArgument:
            found, refusal = self._before_refused(base, keys, values, wanted)
        for index in found:
            self._offsets.append(base + index)
            self._keys.append(keys[index])
            self._values.append(values[index])
        if refusal is not None:
            raise refusal

    def _before_refused(
        self, base: int, keys: Sequence[bytes | None], values: Sequence[bytes], wanted: Filter
    ) -> tuple[list[int], InvalidArgument | None]:
        found: list[int] = []
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                if wanted(key, value):
                    found.append(index)
            except InvalidArgument as error:
                self._offset = offset = base + index
                return found, InvalidArgument(f"{error}; it is at offset {offset}, and the next one at {offset + 1}")
        return found, None

    def _failed(self, error: Exception) -> Reply | Exception:
        return self._reply() if self._values else error  # records found before it; the next fetch gets the error

    def _after_read(self, plan: VisibleRead) -> Step:
        moved, self._offset = plan.end > self._offset, max(plan.end, self._offset)
        if len(self._values) >= self._limit:
            self._cut(self._limit)
        elif self._filter is None and self._values:
            pass
        elif moved and self._has_time(MAX_SCAN):
            self._bytes = sum(map(len, self._values))
            if self._bytes < MAX_BYTES:
                return READ
        elif not self._values:
            if self._has_grown():
                return READ
            if self._starts_to_wait():
                return WAIT
        return REPLY

    def _has_time(self, limit: int) -> bool:
        return self.broker.now() - self._began < limit

    def _has_grown(self) -> bool:
        """Whether records were committed during a read off the loop: a waiter would miss them."""
        where, request = (self._context.identity, self._context.scope), self._request
        return self.broker.groups.start(*where, request.topic, request.partition, LATEST) > self._offset

    def _starts_to_wait(self) -> bool:
        """Long poll: wait for new records in the partition, if configured for the topic or the door. False if not."""
        context, request = self._context, self._request
        seconds = self.broker.fetch.max_wait(context.identity, context.scope, request.topic)
        wait = min(self._default_wait() if seconds is None else int(seconds * 1_000_000), MAX_WAIT)
        if not self._has_time(wait):
            return False
        self._waiter = self.broker.fetch.wait(
            context.identity, context.scope, request.topic, request.partition, self._began + wait, self.resume
        )
        return True

    def _default_wait(self) -> int:
        """µs to wait if the topic does not define it."""
        return self._context.settings.fetch_wait

    # -- the reply

    def _cut(self, count: int) -> None:
        """Drop records beyond the limit: the next fetch reads them again."""
        if len(self._values) > count:
            self._offset = self._offsets[count]
            del self._offsets[count:], self._keys[count:], self._values[count:]

    def _reply(self) -> Reply:
        try:
            data = self._encode()
        except PayloadTooLarge:  # rare, so sizes are computed only then
            self._cut(self._fitting())
            data = self._encode()
        self.broker.metrics.fetched(len(self._values), sum(map(len, self._values)), self.started, self.caller)
        return Reply(data)

    def _encode(self) -> bytes:
        request = self._request
        op = Op.FETCH_BINARY if isinstance(request, m.FetchBinary) else Op.FETCH
        return fetched_records.encode_fetched(
            op, self._offsets, self._keys, self._values, self._offset, request.code_order
        )

    def _fitting(self) -> int:
        """The number of records that fit a frame. Raises RecordUnsendable if the first does not: CONSUME may still have
        room for it."""
        return fetched_records.fitting(self._keys, self._values) or self._unsendable(fetched_records.MAX_FETCHED)

    def _unsendable(self, limit: int) -> NoReturn:
        size = len(self._keys[0] or b"") + len(self._values[0])
        record = RecordUnsendable(self._offsets[0], size, limit)
        self.broker.unsendable.note("flymq", self._context.peer, self._request.topic, record)
        raise record


class FlyMqRecordFetch(FlyMqFetch):
    """One FETCH_RECORDS: includes times and headers, and the client sets the wait."""

    __slots__ = ("_headers", "_timestamps", "_wait")

    def __init__(self, context: FlyMqContext, request: m.FetchRecords) -> None:
        super().__init__(context, m.FetchBinary(request.topic, request.partition, request.offset, request.max_messages))
        self._wait = max(request.wait_ms, 0) * 1000
        self._timestamps: list[int] = []
        self._headers: list[Headers] = []

    def _default_wait(self) -> int:
        return self._wait

    def _collect(self, slices: list[RecordSlice]) -> None:
        super()._collect(slices)
        for part in slices:
            self._timestamps += part.timestamps()
            self._headers += part.headers()

    def _cut(self, count: int) -> None:
        super()._cut(count)
        del self._timestamps[count:], self._headers[count:]

    def _encode(self) -> bytes:
        columns = self._offsets, self._timestamps, self._keys, self._values, self._headers
        return fetched_records.encode_stored(*columns, self._offset)

    def _fitting(self) -> int:
        room, fitting = fetched_records.MAX_STORED_RECORDS, 0
        for columns in zip(self._keys, self._values, self._headers, strict=True):
            room -= fetched_records.stored_size(*columns)
            if room < 0:
                break
            fitting += 1
        return fitting or self._unsendable(fetched_records.MAX_STORED)
