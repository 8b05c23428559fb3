"""The interface of both dialects, and the detection of a frame's dialect.

A session calls `detect` for every frame, so one connection may even mix them; it knows nothing else about dialects.
Semantic differences between the dialects are attributes of these objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from penstock.wire.rustlog.codec.binary_dialect import BinaryDialect
from penstock.wire.rustlog.codec.json_dialect import JsonDialect
from penstock.wire.rustlog.errors import ErrorReply
from penstock.wire.rustlog.frames import MAX_FRAME, ReadLimit
from penstock.wire.rustlog.messages import Produce, RecordSpan, Request, Response


class Dialect(Protocol):
    """One encoding of RustLog's messages as payloads of frames."""

    @property
    def name(self) -> str:
        """`json` or `binary`."""

    # -- semantic differences

    @property
    def fetch_uses_committed_offset(self) -> bool:
        """A Fetch with a group starts at the group's committed offset, whatever offset it requests; without a commit
        its answer is empty, with next offset 0, even if the topic does not exist."""

    @property
    def reports_out_of_range(self) -> bool:
        """A Fetch below the log start is an error. Otherwise it is answered like one beyond the end: empty, with the
        requested offset as next offset."""

    @property
    def reports_unknown_commit(self) -> bool:
        """An OffsetCommit for a topic or partition that does not exist is answered with success false. Otherwise it is
        answered with success true, and kept for when it is created."""

    @property
    def max_record(self) -> int:
        """Bytes of the largest record that fits into a FetchResponse. Produce accepts no larger one."""

    # -- for the server

    def decode_request(self, payload: bytes) -> Request:
        """Decode a request. Raises ProtocolError, and nothing else."""

    def more_produces(self, first: Produce, payloads: Iterable[bytes], max_bytes: int) -> list[list[bytes]]:
        """The records of the leading payloads that are Produces to the same topic and partition as `first`, one list
        for each, up to `max_bytes`. Stops at anything that needs a closer look."""

    def encode_produced(self, base_offset: int, counts: Sequence[int]) -> bytes:
        """The reply frames to Produces with these record counts, which were appended as one."""

    def encode_response(self, response: Response) -> bytes:
        """The payload, without its length. Raises ReplyTooLarge."""

    def read_limit(self, max_bytes: int) -> ReadLimit:
        """The read limit in the log for a Fetch with this `max_bytes`."""

    def encode_fetch(self, slices: Sequence[RecordSpan], next_offset: int, max_bytes: int = MAX_FRAME) -> bytes:
        """The payload of a FetchResponse, without its length, with as many records as fit into one frame and the
        dialect's interpretation of `max_bytes`, and only up to the first offset gap if the dialect cannot express gaps.
        If some are left out, the next offset is one past the last record included. Raises RecordUnfetchable if not even
        the first record fits into a frame."""

    def next_offset(self, payload: bytes) -> int:
        """The next offset in a result of `encode_fetch`: where the answer actually ends."""

    def encode_error(self, error: ErrorReply) -> bytes:
        """The payload of an error. Never raises."""

    # -- for the client

    def encode_request(self, request: Request) -> bytes:
        """Encode a request. Raises InvalidRequest for a value that the dialect cannot express."""

    def decode_response(self, payload: bytes) -> Response:
        """Decode a response. Raises ProtocolError, and nothing else."""


JSON: Final[Dialect] = JsonDialect()
BINARY: Final[Dialect] = BinaryDialect()
DIALECTS: Final = {dialect.name: dialect for dialect in (JSON, BINARY)}

_JSON_SPACE: Final = b" \t\r\n"
_TAB: Final = 0x09  # also the type of a binary MetricsFetch


def detect(payload: bytes) -> Dialect:
    """The dialect of a payload, by its first byte: printable ASCII and JSON's white space are JSON, everything else
    binary.

    The types of the binary dialect are 0x01 to 0x09 and 0xFF. Only 0x09 is ambiguous; it is JSON if a brace follows the
    white space.
    """
    first = payload[0]
    if first == _TAB:
        return JSON if payload.lstrip(_JSON_SPACE)[:1] == b"{" else BINARY
    if 0x20 <= first <= 0x7E or first in _JSON_SPACE:
        return JSON
    return BINARY
