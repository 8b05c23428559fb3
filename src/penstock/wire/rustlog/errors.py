"""Errors of RustLog: protocol violations, and the error reply that both dialects encode.

A violation has a code for each dialect, and says whether the connection closes after the reply. The dialects encode an
`ErrorReply`; nothing is encoded here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

MAX_MESSAGE: Final = 1024  # characters of an error text; strings of a request may be as long as a frame

# The JSON dialect has the codes of the specification, plus 403; the binary one those of the original server, plus 15:
# 1 bad frame, 2 bad request, 4 fetch failed, 5 commit failed, 10 no such topic or partition, 11 topic exists, 12 bad
# partition count, 13 no such topic, 14 no such partition, 15 not allowed, 500.


OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The end of the text, in both dialects, of a reply if it is unknown whether the request was stored. It has the codes
of a storage error; although the protocol's document advises to retry those, this one must not be retried, unless
duplicates are harmless."""


class ErrorReply(NamedTuple):
    """An error with the codes and texts of both dialects, ready to encode."""

    json_code: int
    json_text: str
    binary_code: int
    binary_text: str
    details: dict[str, Any] | None = None  # JSON only


class ProtocolError(Exception):
    """A protocol violation by the other side. The text is that of the JSON dialect."""

    json_code: ClassVar[int] = 400
    binary_code: ClassVar[int] = 2
    binary_prefix: ClassVar[str] = "Decode error: "
    closes: ClassVar[bool] = False  # whether the connection closes after the error is sent

    @property
    def binary_text(self) -> str:
        return self.binary_prefix + str(self)

    @property
    def reply(self) -> ErrorReply:
        return ErrorReply(self.json_code, clip(str(self)), self.binary_code, clip(self.binary_text))


class FrameError(ProtocolError):
    """An invalid length. Nothing behind it can be decoded."""

    binary_code = 1
    binary_prefix = "Frame error: "
    closes = True


class ZeroLengthFrame(FrameError):
    def __init__(self) -> None:
        super().__init__("invalid protocol: zero-length frame")


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame too large: {length} bytes (max: {limit})")
        self.length = length


class MalformedPayload(ProtocolError):
    """Bytes that are not JSON, or not UTF-8."""

    closes = True


class InvalidRequest(ProtocolError):
    """JSON that is not a request: another root, an unknown `type`, a missing field, a wrong value."""


class DecodeError(ProtocolError):
    """A binary request that is too short or contains a wrong value."""


class ReplyTooLarge(ProtocolError):
    """A reply that does not fit into a frame. The request was understood, but cannot be answered."""

    json_code = 500
    binary_code = 500
    binary_prefix = ""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The reply of {size} bytes does not fit a frame (max: {limit})")


class RecordUnfetchable(ProtocolError):
    """A stored record that fits into no answer: it came through a door with larger frames, or in another dialect."""

    json_code = 413
    binary_code = 4
    binary_prefix = "Fetch failed: "

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(f"The record of {size} bytes at offset {offset} does not fit a frame")
        self.offset = offset
        self.size = size

    @property
    def reply(self) -> ErrorReply:
        return super().reply._replace(details={"offset": self.offset, "next_offset": self.offset + 1})


def clip(text: str) -> str:
    """The text, shortened if it is too long for an error."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def closes_connection(error: Exception) -> bool:
    """Whether the connection closes after `error` is sent."""
    return isinstance(error, ProtocolError) and error.closes
