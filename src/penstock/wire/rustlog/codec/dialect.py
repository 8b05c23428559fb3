"""The shape that both dialects share, and how a frame shows which of them it speaks.

A session asks `detect` for every frame, so that one connection may even mix them, and keeps no other notion of a
dialect than the object it gets. What the dialects mean differently is stated as attributes of that object.
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
    """One way to write RustLog's messages as the payload of a frame."""

    @property
    def name(self) -> str:
        """`json` or `binary`."""

    # -- what the dialects mean differently

    @property
    def fetch_uses_committed_offset(self) -> bool:
        """A Fetch that names a group starts at the group's committed offset, whatever offset it asks for; without
        a commit its answer is empty, with next offset 0, even for a topic that does not exist."""

    @property
    def reports_out_of_range(self) -> bool:
        """A Fetch below the log start is an error. Otherwise it is answered as one beyond the end: empty, with the
        requested offset as next offset."""

    @property
    def reports_unknown_commit(self) -> bool:
        """An OffsetCommit for a topic or partition that does not exist is answered with success false. Otherwise
        with success true, and kept for when it does."""

    @property
    def max_record(self) -> int:
        """Bytes of the largest record that a FetchResponse has room for. Produce takes no larger one."""

    # -- for the server

    def decode_request(self, payload: bytes) -> Request:
        """Raises ProtocolError, and nothing else."""

    def more_produces(self, first: Produce, payloads: Iterable[bytes], max_bytes: int) -> list[list[bytes]]:
        """The records of those payloads at the front that are Produces to the same place as `first`, one list for each,
        up to so many bytes. Stops at anything that needs a closer look."""

    def encode_produced(self, base_offset: int, counts: Sequence[int]) -> bytes:
        """The replies, as frames, to Produces of so many records each that were appended as one."""

    def encode_response(self, response: Response) -> bytes:
        """The payload, without the length. Raises ReplyTooLarge."""

    def read_limit(self, max_bytes: int) -> ReadLimit:
        """The limit of the read from the log for a Fetch with this `max_bytes`."""

    def encode_fetch(self, slices: Sequence[RecordSpan], next_offset: int, max_bytes: int = MAX_FRAME) -> bytes:
        """The payload of a FetchResponse, as of `encode_response`, of as many records as fit one frame and the
        dialect's reading of `max_bytes`, and up to the first gap between them if the dialect cannot tell that there is
        one. If some are left out, the next offset is the one after the last that is there.
        Raises RecordUnfetchable if not even the first record fits a frame."""

    def next_offset(self, payload: bytes) -> int:
        """The next offset in what `encode_fetch` gave: how far the answer really goes."""

    def encode_error(self, error: ErrorReply) -> bytes:
        """The payload of an error. Never raises."""

    # -- for the client

    def encode_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for a value that the dialect cannot carry."""

    def decode_response(self, payload: bytes) -> Response:
        """Raises ProtocolError, and nothing else."""


JSON: Final[Dialect] = JsonDialect()
BINARY: Final[Dialect] = BinaryDialect()
DIALECTS: Final = {dialect.name: dialect for dialect in (JSON, BINARY)}

_JSON_SPACE: Final = b" \t\r\n"
_TAB: Final = 0x09  # also the type of a binary MetricsFetch


def detect(payload: bytes) -> Dialect:
    """The dialect of a payload, by its first byte: printable ASCII and JSON's white space are JSON, all else binary.

    The types of the binary dialect are 0x01 to 0x09 and 0xFF. Only 0x09 could begin either; it is JSON if a brace is
    the first thing behind the white space.
    """
    first = payload[0]
    if first == _TAB:
        return JSON if payload.lstrip(_JSON_SPACE)[:1] == b"{" else BINARY
    if 0x20 <= first <= 0x7E or first in _JSON_SPACE:
        return JSON
    return BINARY
