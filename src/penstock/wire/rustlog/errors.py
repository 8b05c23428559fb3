"""Errors of RustLog: violations of the protocol, and the error reply as both dialects encode it.

A violation knows its code in each dialect and whether the connection closes after it was sent. The dialects turn an
`ErrorReply` into bytes; nothing here does.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

MAX_MESSAGE: Final = 1024  # characters of an error text; a request's own strings may be as long as a frame

# The JSON dialect has the codes of the protocol document, and 403, which it lacks; the binary one those of the original
# server, and 15, which it lacks: 1 bad frame, 2 bad request, 4 fetch failed, 5 commit failed, 10 no such topic or
# partition, 11 topic exists, 12 bad partition count, 13 no such topic, 14 no such partition, 15 not allowed, 500.


OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The end of the text, in both dialects, of a reply that does not know what became of the request. It is sent with
the codes of a storage error; where the protocol's document advises to send a request again, this one must not be,
unless twice is as good as once."""


class ErrorReply(NamedTuple):
    """An error in the codes and texts of both dialects, ready to be encoded."""

    json_code: int
    json_text: str
    binary_code: int
    binary_text: str
    details: dict[str, Any] | None = None  # JSON only


class ProtocolError(Exception):
    """A violation of the protocol by the other side. The text is the one of the JSON dialect."""

    json_code: ClassVar[int] = 400
    binary_code: ClassVar[int] = 2
    binary_prefix: ClassVar[str] = "Decode error: "
    closes: ClassVar[bool] = False  # whether the connection is closed once the error has been sent

    @property
    def binary_text(self) -> str:
        return self.binary_prefix + str(self)

    @property
    def reply(self) -> ErrorReply:
        return ErrorReply(self.json_code, clip(str(self)), self.binary_code, clip(self.binary_text))


class FrameError(ProtocolError):
    """A length that no frame has. What follows it cannot be understood."""

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
    """JSON that is no request: another root, no known `type`, a missing field, a wrong value."""


class DecodeError(ProtocolError):
    """A binary request that is too short or holds a wrong value."""


class ReplyTooLarge(ProtocolError):
    """A reply that does not fit a frame. The request was understood; it cannot be answered."""

    json_code = 500
    binary_code = 500
    binary_prefix = ""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The reply of {size} bytes does not fit a frame (max: {limit})")


class RecordUnfetchable(ProtocolError):
    """A stored record that no answer can hold: it came through a door with larger frames, or another dialect."""

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
    """A text that is short enough for an error."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def closes_connection(error: Exception) -> bool:
    """Whether the connection is closed once `error` has been sent."""
    return isinstance(error, ProtocolError) and error.closes
