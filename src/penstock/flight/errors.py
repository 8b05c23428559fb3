"""Errors of reading or writing a log from outside the broker. Each text says what to do about it."""

from __future__ import annotations


class FlightLogError(Exception):
    """Any refusal or failure of a `Log`."""


class LogUnavailable(FlightLogError):
    """No broker answers, or it cannot do this now. The same may succeed later."""


class OutcomeUnknown(LogUnavailable):
    """The broker's disk failed during the write, or a publication in parts stopped half-way: it may be stored, or not.
    A `Log` asks again, because what it asks for counts once: a batch of an application, offsets of a group."""


class NotLoggedIn(FlightLogError):
    """The user and password, or the key, are wrong or missing."""


class AccessRefused(FlightLogError):
    """The caller has no permission for this."""


class TopicMissing(FlightLogError):
    """There is no such topic, partition or schema."""


class OffsetsLost(FlightLogError):
    """Records that were asked for are gone. `start` is the first offset that is still there."""

    def __init__(self, text: str, start: int) -> None:
        super().__init__(text)
        self.start = start


class RequestRefused(FlightLogError):
    """The log does not take this, and would not take it later either."""


class OptionsUnusable(FlightLogError):
    """The options of a connection contradict each other, or one is missing."""
