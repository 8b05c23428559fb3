"""Segments: how they are named, created, written and read. Groups are not interpreted here.

A segment has a fixed size, allocated at creation, so that writes never change its length. Its first block is a header;
commit groups follow without gaps; zeros fill the rest. If the journal continues in another file, its last group says
so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final

from penstock.log.checksum import crc32c
from penstock.log.errors import LogDamaged, LogFull
from penstock.log.files import File, Files
from penstock.log.group_format import (
    END_OF_FILE,
    HEADER_SIZE,
    GroupHeader,
    encode_group_header,
    encode_header,
    entries_checksum,
)
from penstock.log.index import FileIndex

DIRECTORY: Final = "journal"
SPARE: Final = f"{DIRECTORY}/spare.tmp"
NEVER: Final = 1 << 62  # larger than any file
FIRST_GROUP_AT: Final = 4096

LARGE_GROUP: Final = 16 << 10  # bytes, from which on not joining its entries pays off

# The page cache keeps what one write brought in one piece, which ext4 walks through for every later write into it: into
# pieces of 1 MiB, 1.2 KB took 1.9 µs instead of 1.3, and with a sync 29 instead of 26.
_FILL_BYTES: Final = 256 << 10
_GENTLE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_FILL_BYTES)

_MAGIC: Final = b"PENSTOCK"
_VERSION: Final = 1
#                              magic
#                              |  version, checksum of the rest
#                              |  | | salt, sequence, first group, position before it, size, created
_HEAD: Final = struct.Struct("<8sIIQQQQQq")
_NAME: Final = re.compile(r"(\d{20})\.journal")


def journal_path(sequence: int) -> str:
    return f"{DIRECTORY}/{sequence:020d}.journal"


def index_path(sequence: int) -> str:
    return f"{DIRECTORY}/{sequence:020d}.index"


def sequences(files: Files) -> list[int]:
    """The numbers of the segments that exist, in order."""
    found = (_NAME.fullmatch(name) for name in files.list(DIRECTORY))
    return sorted(int(match[1]) for match in found if match)


def exist(files: Files) -> bool:
    """Whether there is a segment; the directory may not exist."""
    try:
        return bool(sequences(files))
    except FileNotFoundError:
        return False


class Segment:
    """One segment, open for reading, and for writing if it is the last one."""

    __slots__ = (
        "created",
        "file",
        "first_group",
        "first_position",
        "index",
        "next_position",
        "path",
        "salt",
        "sequence",
        "size",
    )

    def __init__(self, file: File, sequence: int) -> None:
        self.file = file
        self.path = journal_path(sequence)
        self.sequence = sequence
        self.salt = self.first_group = self.first_position = self.size = self.created = 0
        self.next_position = 0  # the global position at which the next file begins; for readers, once it exists
        self.index = FileIndex()

    def encode_head(self) -> bytes:
        rest = _HEAD.pack(
            _MAGIC,
            _VERSION,
            0,
            self.salt,
            self.sequence,
            self.first_group,
            self.first_position,
            self.size,
            self.created,
        )[16:]
        return _MAGIC + struct.pack("<II", _VERSION, crc32c(rest)) + rest

    @classmethod
    def open(cls, files: Files, sequence: int, *, writable: bool, whole: bool = True) -> Segment:
        """Raises LogDamaged if the header is invalid, or, with `whole`, if the file is shorter than at its creation."""
        segment = cls(files.open(journal_path(sequence), writable=writable), sequence)
        head = segment.file.read(0, _HEAD.size)
        if len(head) < _HEAD.size or head[:8] != _MAGIC:
            raise LogDamaged(segment.path, 0, "this is not a segment")
        version, checksum = struct.unpack_from("<II", head, 8)
        if crc32c(head[16:]) != checksum:
            raise LogDamaged(segment.path, 0, "wrong checksum of the file header")
        if version != _VERSION:
            raise LogDamaged(segment.path, 8, f"format {version} was written by another version of penstock")
        (_, _, _, segment.salt, named, segment.first_group, segment.first_position, segment.size, segment.created) = (
            _HEAD.unpack(head)
        )
        if named != sequence:
            raise LogDamaged(segment.path, 24, f"this is the content of segment {named}")
        actual = segment.file.size()
        if whole and actual < segment.size:
            raise LogDamaged(segment.path, actual, f"the file has {actual} bytes instead of {segment.size}")
        return segment


def make_file(files: Files, path: str, size: int, *, filled: bool = True, gently: bool = False) -> File:
    """Create a file of zeros: written to the disk if `filled`, otherwise only allocated. Raises OSError.

    Syncing writes into unwritten space also updates the file system's metadata: measured on ext4, a sync of 1 MiB took
    0.9 ms instead of 0.5 ms. With rare syncs `filled` does not pay off: writing everything twice cost a quarter of the
    rate of pipelined records of 1 KiB. `gently` pauses after every MiB, to leave the disk to others.
    """
    file = files.create(path, size)
    if filled:
        for at in range(0, size, _FILL_BYTES):
            file.write(at, _ZEROS[: size - at])
            if gently and not (at + _FILL_BYTES) % _GENTLE_BYTES:
                file.sync()
                time.sleep(0.002)
    file.sync()
    return file


def create_file(
    files: Files,
    sequence: int,
    size: int,
    first_group: int,
    first_position: int,
    now: int,
    spare: File | None = None,
    *,
    filled: bool = True,
) -> Segment:
    """Create a segment atomically and durably, from the `spare` file if there is one of the right size. Raises OSError.
    For `filled` see `make_file`."""
    source = SPARE if spare is not None else f"{DIRECTORY}/new.tmp"
    segment = Segment(spare or make_file(files, source, size, filled=filled), sequence)
    segment.salt = int.from_bytes(os.urandom(8), "little")
    segment.first_group, segment.first_position = first_group, first_position
    segment.size, segment.created = size, now
    segment.file.write(0, segment.encode_head())
    segment.file.sync()
    files.rename(source, segment.path)
    files.sync_directory(DIRECTORY)
    return segment


def _as_full(error: OSError, what: str) -> Exception:
    """LogFull for a full disk, which is reported to the producer; any other error ends writing."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LogFull(f"no space left for {what}: {error}")
    return error


class SegmentWriter:
    """Appends groups to the last file and starts new ones. Used by one thread at a time."""

    def __init__(
        self,
        files: Files,
        file_bytes: int,
        segment: Segment,
        end: int,
        last_group: int,
        position: int,
        *,
        filled: bool = True,
    ) -> None:
        self._files = files
        self._file_bytes = file_bytes
        self._filled = filled  # for new files; see `make_file`
        self.segment = segment
        self.started: list[Segment] = []  # new files, for the engine to pick up
        self.end = end  # position of the next group
        self._last_group = last_group
        self._position = position  # after the last group
        self.synced_through = last_group
        self._dirty_until = end  # bytes up to here may hold remains of a failed group
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._sync_failure: OSError | None = None  # final: see `sync`
        self._spare: File | None = None  # the next file, prepared
        self.spare_wanted_at = segment.size // 4  # position from which on `wants_spare` is to be called

    def write(
        self, number: int, position: int, entries: Sequence[bytes], advance: int, timestamp: int, *, roll: bool = False
    ) -> tuple[Segment, int]:
        """Write a group, to a new file if `roll`; returns the file and the group's position in it. Does not sync.

        Raises LogFull, with the journal unchanged, or another OSError, after which it must not be used; see `may_hold`.
        """
        assert number == self._last_group + 1 and position == self._position
        length = HEADER_SIZE
        for entry in entries:
            length += len(entry)
        with self._lock:
            if roll or self._dirty_until > self.end or self.end + length + HEADER_SIZE > self.segment.size:
                self._make_room(length, timestamp, roll=roll)
            segment, at = self.segment, self.end
            head = encode_group_header(
                segment.salt, number, self.synced_through, position, timestamp, length, entries, advance
            )
            self._dirty_until = at + length
            try:
                if length < LARGE_GROUP:
                    segment.file.write(at, b"".join((head, *entries)))
                else:
                    segment.file.write_parts(at, (head, *entries))
            except OSError as error:
                raise _as_full(error, "a commit group") from error
            self.end = self._dirty_until
            self._last_group = number
            self._position += advance
            return segment, at

    def may_hold(self, number: int) -> bool:
        """Whether the complete failed group may be found when the file is opened again. A part of it, as left by a full
        disk, is not a group: its checksum is wrong."""
        return self._last_group >= number or self._dirty_until > self.end

    def find_room(self, length: int, timestamp: int) -> None:
        """Check whether the disk has room again for a group of about this length. Raises LogFull or OSError."""
        with self._lock:
            self._make_room(HEADER_SIZE + length, timestamp, roll=False)

    def _make_room(self, length: int, timestamp: int, *, roll: bool) -> None:
        """Clear the remains of a failed group, and start a new file if this one is full."""
        if self._dirty_until > self.end:
            self._clear()
        # There is always room left for the mark at the end of the file.
        if roll or self.end + length + HEADER_SIZE > self.segment.size:
            self._roll(length, timestamp)

    def _clear(self) -> None:
        try:
            self.segment.file.write(self.end, bytes(self._dirty_until - self.end))
        except OSError as error:
            raise _as_full(error, "a commit group") from error
        self.segment.file.sync()
        self._dirty_until = self.end

    def _roll(self, length: int, timestamp: int) -> None:
        # The old file is synced before the new one exists: a later file proves that an earlier one was complete.
        self.sync()
        old = self.segment
        size = max(self._file_bytes, FIRST_GROUP_AT + length + HEADER_SIZE)
        spare, self._spare = (self._spare, None) if size == self._file_bytes else (None, self._spare)
        try:
            new = create_file(
                self._files,
                old.sequence + 1,
                size,
                self._last_group + 1,
                self._position,
                timestamp,
                spare,
                filled=self._filled,
            )
        except OSError as error:
            with contextlib.suppress(OSError):
                self._files.remove(f"{DIRECTORY}/new.tmp")
            raise _as_full(error, "another segment") from error
        mark = GroupHeader(
            self._last_group, self.synced_through, self._position, timestamp,
            HEADER_SIZE, 0, entries_checksum(()), END_OF_FILE, 0,
        )  # fmt: skip
        old.file.write(self.end, encode_header(old.salt, mark))
        old.file.sync()
        old.index.last_group = self._last_group
        old.index.end_position = self.end
        self.segment = new
        self.started.append(new)
        self.end = self._dirty_until = FIRST_GROUP_AT
        self.spare_wanted_at = new.size // 4

    def wants_spare(self) -> bool:
        """True once for each file, when a quarter of it is used: then the next one should be prepared, so that starting
        it only costs a few syncs."""
        if self.end < self.spare_wanted_at:
            return False
        self.spare_wanted_at = NEVER
        return True

    def prepare_spare(self) -> None:
        """Create the next file in advance. Slow; on any thread, one at a time. Without space on the disk there is no
        spare: `_roll` will fail.

        Once complete, the spare gets the name that `_roll` expects, but never while `_roll` uses the previous one."""
        if self._spare is not None:
            return
        temporary = f"{DIRECTORY}/filling.tmp"
        try:
            spare = make_file(self._files, temporary, self._file_bytes, filled=self._filled, gently=True)
            with self._lock:
                if self._spare is None:
                    self._files.rename(temporary, SPARE)
                    self._spare = spare
        except OSError:
            with contextlib.suppress(OSError):
                self._files.remove(temporary)
            return

    def sync(self) -> None:
        """Make everything written so far survive a loss of power.

        The kernel reports a failure once, to a single caller: so there is one caller at a time, and after a failure
        every later call fails."""
        with self._sync_lock:
            if self._sync_failure is not None:
                raise self._sync_failure
            written = self._last_group
            try:
                self.segment.file.sync()
            except OSError as error:
                self._sync_failure = error
                raise
            self.synced_through = max(self.synced_through, written)
