"""Errors of reading or writing a log from outside the broker. Each message says what to do about it."""

from __future__ import annotations


class FlightLogError(Exception):
    """Any refusal or failure of a `Log`."""


class LogUnavailable(FlightLogError):
    """No broker answers, or it cannot do this at present. A retry may succeed."""


class OutcomeUnknown(LogUnavailable):
    """The broker's disk failed during the write, or a publication in several steps was interrupted: it may be stored or
    not. A `Log` retries, because its requests are idempotent: a batch of an application, offsets of a group.
    """


class NotLoggedIn(FlightLogError):
    """The user and password, or the key, are wrong or missing."""


class AccessRefused(FlightLogError):
    """The caller has no permission for this."""


class TopicMissing(FlightLogError):
    """There is no such topic, partition or schema."""


class OffsetsLost(FlightLogError):
    """Requested records no longer exist. `start` is the first offset that does."""

    def __init__(self, text: str, start: int) -> None:
        super().__init__(text)
        self.start = start


class RequestRefused(FlightLogError):
    """The log refuses this request, and a retry would not help."""


class OptionsUnusable(FlightLogError):
    """The options of a connection contradict each other, or one is missing."""
