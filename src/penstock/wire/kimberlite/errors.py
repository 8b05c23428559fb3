"""Errors of Kimberlite: those of the codec, and the error codes of all versions.

After a `FrameError` nothing more can be decoded. The codec replaces codes that the client's version does not have.
"""

from __future__ import annotations

import enum
from typing import Final

OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The text of a reply if it is unknown whether the request was stored. Its code is `UNKNOWN`, which by the protocol's
document is not retried, while `STORAGE_ERROR` is."""


class ErrorCode(enum.IntEnum):
    UNKNOWN = 0
    INTERNAL_ERROR = 1
    INVALID_REQUEST = 2
    AUTHENTICATION_FAILED = 3
    TENANT_NOT_FOUND = 4
    STREAM_NOT_FOUND = 5
    TABLE_NOT_FOUND = 6
    QUERY_PARSE_ERROR = 7
    QUERY_EXECUTION_ERROR = 8
    POSITION_AHEAD = 9
    STREAM_ALREADY_EXISTS = 10
    INVALID_OFFSET = 11
    STORAGE_ERROR = 12
    PROJECTION_LAG = 13
    RATE_LIMITED = 14
    NOT_LEADER = 15
    OFFSET_MISMATCH = 16
    SUBSCRIPTION_NOT_FOUND = 17
    SUBSCRIPTION_CLOSED = 18
    SUBSCRIPTION_BACKPRESSURE = 19
    API_KEY_NOT_FOUND = 20
    TENANT_ALREADY_EXISTS = 21
    CONSENT_NOT_FOUND = 22
    CONSENT_EXPIRED = 23
    ERASURE_NOT_FOUND = 24
    ERASURE_ALREADY_COMPLETE = 25
    ERASURE_EXEMPT = 26
    BREACH_NOT_FOUND = 27
    EXPORT_NOT_FOUND = 28
    UNIQUE_CONSTRAINT_VIOLATION = 29
    ROW_VERSION_CHAIN_TOO_LARGE = 30  # only in the newest clients, never sent


class FrameError(Exception):
    """An invalid header. The text is for the peer."""


class BadMagic(FrameError):
    def __init__(self) -> None:
        super().__init__("this is no frame: its magic is not 0x56444220")


class BadVersion(FrameError):
    def __init__(self, version: int) -> None:
        super().__init__(f"unsupported protocol version {version}")
        self.version = version


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a payload of {length} bytes; the most is {limit}")


class MalformedPayload(ValueError):
    """Bytes that are not a message of this schema in this encoding."""
