"""The hash chain of an audit log: every event's record carries the hash of all events up to it, so that changing,
removing or inserting an event is detected.

Pure. A link is SHA-256 over the previous link and the bytes of the event; the first is over `GENESIS`. A record has
both in the header `chain`, so that the oldest record left by retention can be checked like any other. Records written
before the chain was introduced have no such header; they may only come first.

Limitation: whoever can write to the data directory can compute an entirely new chain. That is detected only by
comparing with a previously noted head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.log.batch import Headers

HEADER: Final = "chain"
LINK_BYTES: Final = 32
GENESIS: Final = bytes(LINK_BYTES)


def link(before: bytes, document: bytes) -> bytes:
    return hashlib.sha256(before + document).digest()


def header(before: bytes, own: bytes) -> Headers:
    return ((HEADER, before + own),)


class ChainLinks(NamedTuple):
    before: bytes
    own: bytes


def links(headers: Headers) -> ChainLinks | None:
    """The links of a record; None if it has none."""
    for name, value in headers:
        if name == HEADER and len(value) == 2 * LINK_BYTES:
            return ChainLinks(value[:LINK_BYTES], value[LINK_BYTES:])
    return None


class ChainMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position up to which a chain was checked, from which another check can continue."""

    offset: int  # of the next record
    checked: int = 0  # records
    chained: int = 0  # records with links among those
    link: bytes = b""  # the last one; empty if there was none yet


class ChainReport(msgspec.Struct, frozen=True):
    """The result of a check. `text` is for people."""

    ok: bool
    event_count: int  # checked events, including those from before the chain
    head: str  # the last link, in hexadecimal digits; "" if there is none
    mismatch: int | None  # index of the first invalid event, counted from the oldest that is kept
    text: str
    mark: ChainMark | None = None  # where to continue; None: the check is complete
    end: int = 0  # offset after the last event, to show progress
    start: int = 0  # offset of the oldest


class ChainCheck:
    """Takes records in order, oldest first, and reports at the end whether the chain is intact."""

    def __init__(self, mark: ChainMark, *, whole: bool, remembered: bytes | None) -> None:
        """`whole`: retention has removed nothing, so the chain begins where the log does. `remembered`: the last link
        in the broker's state.
        """
        self._offset = mark.offset
        self._checked = mark.checked
        self._chained = mark.chained
        self._link = mark.link
        self._whole = whole
        self._remembered = remembered
        self._seen = bool(mark.link) and mark.link == remembered
        self.trouble = ""

    def take(self, offset: int, documents: Sequence[bytes], headers: Sequence[Headers]) -> bool:
        """False if one of them is invalid: then stop."""
        for document, found in zip(documents, headers, strict=True):
            self.trouble = self._fault(offset, document, links(found))
            if self.trouble:
                return False
            offset += 1
            self._offset = offset
            self._checked += 1
        return True

    def _fault(self, offset: int, document: bytes, found: ChainLinks | None) -> str:
        if offset != self._offset:
            return f"the events from offset {self._offset} to {offset - 1} are missing"
        if found is None:
            return f"the event at offset {offset} has lost its link" if self._link else ""
        if self._link and found.before != self._link:
            return f"the event at offset {offset} does not follow the one before it: something was removed or changed"
        begins = self._whole or self._checked > 0  # records before it have no links
        if not self._link and begins and found.before != GENESIS:
            return f"the event at offset {offset} is not the first of its chain: those before it are missing or changed"
        if link(found.before, document) != found.own:
            return f"the event at offset {offset} was changed"
        self._link = found.own
        self._chained += 1
        self._seen = self._seen or self._link == self._remembered
        return ""

    def mark(self) -> ChainMark:
        return ChainMark(self._offset, self._checked, self._chained, self._link)

    def report(self, start: int, end: int, *, over: bool) -> ChainReport:
        """`over`: everything up to `end` was taken."""
        trouble = self.trouble
        if not trouble and over and self._offset < end:
            trouble = f"the events from offset {self._offset} to {end - 1} are missing"
        if not trouble and over and self._checked and self._remembered and not self._seen:
            trouble = "the newest events are missing: the chain ends before the link that the broker remembers"
        head = self._link.hex()
        if trouble:
            return ChainReport(False, self._checked, head, self._checked, trouble, None, end, start)
        text = f"{self._checked} events, {self._chained} of them chained: nothing was changed or removed"
        return ChainReport(True, self._checked, head, None, text, None if over else self.mark(), end, start)
