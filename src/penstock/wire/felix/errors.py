"""The error for undecodable payloads, error texts that both sides use, and error codes with retry advice. A client gets
codes only if it announced that it reads them; the text is always sent."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The text of a reply if it is unknown whether the request was stored: it must not be retried, unless duplicates are
harmless."""


class Malformed(Exception):
    """A malformed payload. The text is for the peer, who awaits a reply to `request_id`. `publication`: it was a
    publish, and `awaited` says whether it wants an acknowledgement."""

    def __init__(
        self, text: str, request_id: int | str | None = None, *, publication: bool = False, awaited: bool = True
    ) -> None:
        super().__init__(text)
        self.text = text
        self.request_id = request_id
        self.publication = publication
        self.awaited = awaited


class ErrorCode(enum.IntEnum):
    """The kind of an error: a number in acknowledgements, its lower-case name in JSON. The original has more, for
    clusters and consumer groups."""

    UNAUTHENTICATED = 1
    FORBIDDEN = 2
    NOT_FOUND = 3
    INVALID_REQUEST = 4
    OVERLOADED = 10
    LIMIT_EXCEEDED = 11
    DRAINING = 12
    INTERNAL = 13
    STORAGE = 14


class Retry(enum.IntEnum):
    """Retry advice for an error; encoded like codes."""

    RETRY = 1  # nothing was stored: send it again
    RETRY_AFTER = 2  # nothing was stored: wait first
    REDIRECT = 3  # nothing was stored: another broker has it
    OUTCOME_UNKNOWN = 4  # it may be stored or not
    FATAL = 5  # it would be refused again


class Advice(NamedTuple):
    """The kind of an error, and whether to retry. `code` is None for an unknown code of another server."""

    code: ErrorCode | None
    retry: Retry
    retry_after_ms: int | None = None


def advice_from_numbers(code: int, retry: int, retry_after_ms: int = 0) -> Advice:
    """The advice in an acknowledgement. An unknown retry class counts as fatal: without a retry nothing is stored
    twice."""
    known = ErrorCode(code) if code in _CODES else None
    return Advice(known, Retry(retry) if retry in _RETRIES else Retry.FATAL, retry_after_ms or None)


def advice_from_names(code: str, retry: str | None, retry_after_ms: int | None = None) -> Advice:
    """The advice in a JSON message."""
    return Advice(_CODE_NAMES.get(code), _RETRY_NAMES.get(retry or "", Retry.FATAL), retry_after_ms)


_CODES: Final = frozenset(map(int, ErrorCode))
_RETRIES: Final = frozenset(map(int, Retry))
_CODE_NAMES: Final = {code.name.lower(): code for code in ErrorCode}
_RETRY_NAMES: Final = {retry.name.lower(): retry for retry in Retry}
