"""Fetch: reads until there are records to reply, or no more, and encodes them on the thread that read them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.errors import RecordUnsendable
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.doors.fetch import READ, REPLY, FetchTask, Step
from penstock.doors.reply import Outcome, Reply
from penstock.doors.rustlog.request_context import SCOPE, RustLogContext
from penstock.log.batch import RecordSlice
from penstock.log.errors import OffsetOutOfRange
from penstock.wire.rustlog.errors import RecordUnfetchable
from penstock.wire.rustlog.frames import frame
from penstock.wire.rustlog.messages import Fetch, FetchResponse


def fetch(context: RustLogContext, request: Fetch) -> Outcome:
    offset = request.offset
    if request.group_id and context.dialect.fetch_uses_committed_offset:
        committed = context.broker.groups.committed(
            context.identity, SCOPE, request.group_id, request.topic, request.partition
        )
        if committed is None:
            return Reply(FetchResponse([], 0))
        offset = committed
    return RustLogFetch(context, request, offset)


class RustLogFetch(FetchTask):
    """One Fetch."""

    __slots__ = ("_bytes", "_context", "_next_offset", "_offset", "_payload", "_records", "_request")

    def __init__(self, context: RustLogContext, request: Fetch, offset: int) -> None:
        super().__init__(context.broker)
        self._context = context
        self._request = request
        self._offset = offset
        self._payload = b""  # of the reply
        self._next_offset = offset
        self._records = 0  # of the records in the reply
        self._bytes = 0  # of these

    def _next_plan(self) -> VisibleRead | None:
        if self.plan is not None:
            return self.plan.continuation()
        context, request = self._context, self._request
        limit = context.dialect.read_limit(request.max_bytes)
        try:
            return self.broker.fetch.plan(
                context.identity, SCOPE, request.topic, request.partition, self._offset, *limit
            )
        except OffsetOutOfRange as error:
            if context.dialect.reports_out_of_range:
                raise
            self._offset = error.start  # the original does not move, so its consumers retry forever
            return None

    def _collect(self, slices: list[RecordSlice]) -> None:
        assert self.plan is not None
        dialect = self._context.dialect
        self._payload = dialect.encode_fetch(slices, self.plan.end, self._request.max_bytes)
        self._next_offset = dialect.next_offset(self._payload)
        self._records, self._bytes = _measure(slices, self._next_offset)

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, RecordUnfetchable):
            context, limit = self._context, self._context.dialect.max_record
            record = RecordUnsendable(error.offset, error.size, limit)
            self.broker.unsendable.note("rustlog", context.peer, self._request.topic, record)
        return error

    def _after_read(self, plan: VisibleRead) -> Step:
        return READ if plan.all_filtered else REPLY

    def _reply(self) -> Reply:
        if not self._payload:
            return Reply(FetchResponse([], self._offset))  # below the log start, in a dialect without that error
        request = self._request
        self.broker.metrics.fetched(self._records, self._bytes, self.started, self.caller)
        if request.group_id:
            self.broker.fetch_positions.note(
                SCOPE, request.group_id, request.topic, request.partition, self._next_offset
            )
        return Reply(frame(self._payload))


def _measure(slices: Sequence[RecordSlice], end: int) -> tuple[int, int]:
    """The number of records below `end`, and their bytes."""
    count = size = 0
    for part in slices:
        if part.end_offset <= end:
            count += len(part)
            size += part.byte_size()
        elif part.base_offset < end:
            count += end - part.base_offset
            size += sum(map(len, part.values()[: end - part.base_offset]))
    return count, size
