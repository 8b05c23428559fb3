"""Reads a segment sequentially, and distinguishes a torn tail from damage.

A group is written only after the previous one, and its header has the number of the last group known to be synced. So
what follows an unreadable group is decisive: if a later group of the file states that the unreadable one had been
synced, acknowledged data is damaged. If none does, the group was being written when the machine stopped; neither it nor
anything after it was acknowledged as synced, and it may be truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.log.errors import LogDamaged
from penstock.log.group_format import (
    END_OF_FILE,
    HEADER_SIZE,
    EntryRange,
    GroupDamaged,
    GroupHeader,
    decode_header,
    search_pattern,
    walk,
)
from penstock.log.segment import FIRST_GROUP_AT, Segment

_WINDOW: Final = 4 << 20  # maximum read-ahead
_FIRST_WINDOW: Final = 64 << 10  # initial read-ahead: a reader that polls for new groups finds few
_ZEROS: Final = bytes(HEADER_SIZE)


class ScannedGroup(NamedTuple):
    number: int
    file_offset: int  # of the group
    data: bytes  # the whole group
    entries: list[EntryRange]


class Scan:
    """One pass over a file. After the groups are consumed, the attributes describe how it ended.

    While the file is being written, `groups` may be called again: it continues where it stopped."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.end = FIRST_GROUP_AT  # after the last complete group
        self.next_group = segment.first_group
        self.next_position = segment.first_position
        self.ended = False  # the file states that the journal continues in the next one
        self.broken = ""  # the reason why the scan stopped, unless at untouched zeros

    def groups(self) -> Iterator[ScannedGroup]:
        self.broken = ""
        try:
            yield from self._groups()
        except GroupDamaged as error:
            self.broken = str(error)

    def _groups(self) -> Iterator[ScannedGroup]:
        """Reads far ahead, because there may be many small groups: a few µs for each add up at a start."""
        segment = self._segment
        window, base = b"", self.end  # `base` is the position of the window in the file
        ahead = _FIRST_WINDOW
        while True:
            at = self.end - base
            if len(window) - at < HEADER_SIZE:
                window, base, at = segment.file.read(self.end, ahead), self.end, 0
                ahead = min(2 * ahead, _WINDOW)
            if len(window) < HEADER_SIZE or window.startswith(_ZEROS, at):
                return
            header = decode_header(window, at, segment.salt)
            if self._is_end(header):
                return
            length = header.length
            if len(window) - at < length:
                window, base, at = segment.file.read(self.end, max(length, ahead)), self.end, 0
                ahead = min(2 * ahead, _WINDOW)
                if len(window) < length:
                    raise GroupDamaged("a group runs past its file")
            data = window[at : at + length]
            group = ScannedGroup(header.number, self.end, data, walk(data, header))
            self.end += length
            self.next_group += 1
            self.next_position += header.advance
            yield group

    def _is_end(self, header: GroupHeader) -> bool:
        """Whether this is the mark that ends a file. Raises GroupDamaged if the header does not belong here."""
        if header.flags & END_OF_FILE:
            if header.number != self.next_group - 1 or header.length != HEADER_SIZE:
                raise GroupDamaged("the mark at the end of the file does not belong here")
            self.ended = True
            return True
        if header.number != self.next_group or header.position != self.next_position:
            raise GroupDamaged(f"group {header.number} where group {self.next_group} belongs")
        if not HEADER_SIZE <= header.length <= self._segment.size - self.end:
            raise GroupDamaged("a group runs past its file")
        return False

    def proof_of_damage(self) -> int | None:
        """The position of a later group that proves that the unreadable part had been synced; None if no group does."""
        segment = self._segment
        magic, salt = search_pattern(segment.salt)
        at = self.end
        rest = segment.file.read(at, segment.size - at)
        found = rest.find(salt)
        while found >= 0:
            start = found - 8
            if start >= 0 and start & 7 == 0 and rest.startswith(magic, start) and len(rest) - start >= HEADER_SIZE:
                try:
                    header = decode_header(rest, start, segment.salt)
                except GroupDamaged:
                    pass
                else:
                    if header.synced_through >= self.next_group or header.flags & END_OF_FILE:
                        return at + start
            found = rest.find(salt, found + 1)
        return None

    def cut_torn_tail(self) -> int:
        """Overwrite everything after the end of the scan with zeros; returns the number of bytes up to the last that
        was not zero."""
        segment = self._segment
        rest = segment.file.read(self.end, segment.size - self.end).rstrip(b"\0")
        if rest:
            segment.file.write(self.end, bytes(len(rest)))
            segment.file.sync()
        return len(rest)

    def damaged(self, reason: str) -> LogDamaged:
        return LogDamaged(self._segment.path, self.end, reason)
