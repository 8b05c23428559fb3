"""ReadEvents: reads until there are events to reply, or no more."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from penstock.broker.errors import RecordUnsendable
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.security.access import Permission
from penstock.doors.fetch import READ, REPLY, FetchTask, Step
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.log.batch import RecordSlice
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.frames import MAX_EVENT

MAX_EVENTS: Final = 7_000  # in one reply: 120 KiB of them, each with a length, fit the buffer of the original's client
MAX_BYTES_V1: Final = 8 << 20  # of events in a reply of version 1: with their separators they fit a frame
LENGTH_BYTES: Final = 8  # at most, before each event
MAX_REPLY_BYTES: Final = MAX_EVENT + LENGTH_BYTES  # of events with their lengths, in a reply of any version
MAX_EVENTS_BYTES: Final = MAX_REPLY_BYTES - MAX_EVENTS * LENGTH_BYTES  # of events, any number of which fit a frame


class KimberliteFetch(FetchTask):
    """One ReadEvents. It continues past any number of expired and removed events: the original's clients cannot handle
    an empty list with a next offset, and one without would wrongly mean the end."""

    __slots__ = ("_context", "_end", "_found", "_max_bytes", "_offset", "_stream", "_topic")

    def __init__(self, context: KimberliteContext, request: m.ReadEvents) -> None:
        super().__init__(context.broker)
        self._context = context
        self._stream = request.stream_id
        limit = MAX_BYTES_V1 if context.codec.version == 1 else context.settings.read_bytes
        self._max_bytes = max(1, min(request.max_bytes, limit))
        self._offset = request.from_offset
        self._end = 0  # of the stream, at the last read
        self._topic = ""
        self._found: list[RecordSlice] = []

    def _next_plan(self) -> VisibleRead:
        continuation = self.plan.continuation() if self.plan is not None else None
        if continuation is not None:
            return continuation
        context = self._context
        # Looked up for every read: the stream may have been deleted, and its name reused.
        topic, plan = self.broker.fetch.plan_stream(
            context.identity, context.scope, self._stream, self._offset, self._max_bytes, MAX_EVENTS
        )
        self._topic = topic.name
        return plan

    def _collect(self, slices: list[RecordSlice]) -> None:
        self._found = slices

    def _after_read(self, plan: VisibleRead) -> Step:
        if self.offloaded:
            self._check_stream()
        self._end = plan.high_watermark
        self._offset = max(plan.end, self._offset)
        return REPLY if self._found or self._offset >= self._end else READ

    def _check_stream(self) -> None:
        """Raise if the stream was deleted during the read, or the permission to read it revoked."""
        identity, scope = self._context.identity, self._context.scope
        topic, _ = self.broker.topics.stream(identity, scope, self._stream)
        self.broker.access.require(identity, Permission.READ, scope, topic.name)

    def _end_before_gap(self) -> None:
        """Keep the events up to the first gap in the offsets; the next read begins after it. A reply does not contain
        the offset of each event: clients count from the requested one."""
        found = self._found
        for number in range(1, len(found)):
            if found[number].base_offset != found[number - 1].end_offset:
                self._found, self._offset = found[:number], found[number].base_offset
                return

    def _reply(self) -> Reply:
        if len(self._found) > 1:
            self._end_before_gap()
        found = self._found
        events = found[0].values() if len(found) == 1 else [value for part in found for value in part.values()]
        size = sum(map(len, events))
        if size > MAX_EVENTS_BYTES:
            events = self._fitting(events)
            size = sum(map(len, events))
        more = self._offset < self._end
        noted = self._context.note("stream.read", self._topic) if self._context.identity.context else None
        self.broker.metrics.fetched(len(events), size, self.started, self.caller)
        return Reply(m.ReadEventsResponse(events, self._offset if more and events else None), noted)

    def _fitting(self, events: list[bytes]) -> list[bytes]:
        """The events that fit one frame; the next read begins after them. Raises RecordUnsendable if the first does not
        fit."""
        offsets = [offset for part in self._found for offset in range(part.base_offset, part.end_offset)]
        fitting = bisect_right(list(accumulate([LENGTH_BYTES + len(event) for event in events])), MAX_REPLY_BYTES)
        if not fitting:
            record = RecordUnsendable(offsets[0], len(events[0]), MAX_EVENT)
            self.broker.unsendable.note("kimberlite", self._context.peer, self._topic, record)
            raise record
        if fitting < len(events):
            self._offset = offsets[fitting]
        return events[:fitting]
