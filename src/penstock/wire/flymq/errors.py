"""Errors of FlyMQ: those of the codec, and the frame that carries an error.

After a `FrameError` nothing more can be decoded: the connection closes without a reply, as in the original. Every
other `ProtocolError` is reported and leaves the connection open.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.wire.flymq.opcodes import FLAG_BINARY, MAGIC, VERSION, Op

TAG: Final = "E: "
"""Prefix of every text (decision 7): the original's clients drop the first six bytes of an error, which are then the
flag, the length and this prefix, and show the complete text."""

MAX_TEXT: Final = 8000
"""Bytes of a text with its tag. From 14,880 on, the original's clients would mistake a part of the tag for a length."""

_HEAD: Final = struct.Struct(">BBBBI?H")  # the header; then false, and the length of the text
_BEFORE_TEXT: Final = 3  # bytes of the payload that are not text


OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The text of a reply if it is unknown whether the request was stored: it must not be retried, unless duplicates are
harmless."""


class ProtocolError(Exception):
    """A protocol violation by the other side."""


class MalformedPayload(ProtocolError):
    """A payload that does not match its opcode."""


class UnsupportedCompression(MalformedPayload):
    def __init__(self, name: str) -> None:
        super().__init__(f"unsupported compression: {name}")


class UnknownOpcode(ProtocolError):
    def __init__(self, opcode: int) -> None:
        super().__init__(f"unknown opcode: {opcode}")
        self.opcode = opcode


class PayloadTooLarge(ProtocolError):
    """Our own message does not fit into a frame."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes does not fit a frame (max: {limit})")


class FrameError(ProtocolError):
    """An invalid header."""


class BadMagic(FrameError):
    def __init__(self, magic: int) -> None:
        super().__init__(f"invalid magic byte: 0x{magic:02X}")


class BadVersion(FrameError):
    def __init__(self, version: int) -> None:
        super().__init__(f"unsupported protocol version: {version}")


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"message too large: {length} bytes (max: {limit})")
        self.length = length


def error_frame(text: str) -> bytes:
    """The frame that reports an error, in the form of the protocol's specification."""
    data = (TAG + text).encode(errors="replace")
    if len(data) > MAX_TEXT:
        # Cut at a character boundary, so that the rest is valid UTF-8.
        data = data[:MAX_TEXT].decode(errors="ignore").encode()
    return _HEAD.pack(MAGIC, VERSION, Op.ERROR, FLAG_BINARY, _BEFORE_TEXT + len(data), False, len(data)) + data
