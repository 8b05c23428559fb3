"""Staged files: records to be published, as columns per partition, in a separate directory.

A stream of records becomes one file (written by the Flight worker), and a publication adds the files of many streams to
the log. Until then they have no effect. A file consists of

    chunks    encoded columns (`penstock.log.columns`), each of one partition and about 1 MiB long, one after the other
    manifest  `Manifest`, as msgpack
    trailer   16 bytes, see `_TRAILER`

A file gets its final name when it is complete. The name contains its publication and when it was staged, so that
obsolete files are found without opening them; no part of a name is chosen by a client.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from penstock.broker.errors import StagedNotFound
from penstock.broker.publications.publication import KEY_BYTES, MAX_BATCH
from penstock.log.batch import BatchDamaged
from penstock.log.checksum import crc32c
from penstock.log.columns import Columns, decode
from penstock.log.files import File, Files

DIRECTORY: Final = "staging"
UNFINISHED: Final = ".part"
CHUNK_BYTES: Final = 1 << 20  # approximate; a single record may be larger
CHECKED_RECORDS: Final = 500  # most records of a chunk whose topic has a schema; validating it blocks the event loop
KEPT_US: Final = 86_400_000_000  # how long a staged file is kept for its publication
TOKEN_BYTES: Final = 8
LARGE_PIECE: Final = 64 << 10  # pieces of this size are written directly, without a copy
PILE_BYTES: Final = 1 << 20  # of small pieces that are written together

MAGIC: Final = b"PSS1"
#                                 length and checksum of the manifest
#                                 |  magic
_TRAILER: Final = struct.Struct("<II4s4x")
_NAME: Final = re.compile(r"([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{14})-([0-9a-f]{16})")


class Staged(NamedTuple):
    """A staged file: its name, and the number of its records."""

    ref: str
    rows: int


class Ref(NamedTuple):
    """The parts of a staged file's name."""

    key: bytes  # of the application; see `publication.app_key`
    batch: int
    at: int  # µs since 1970
    token: bytes

    def __str__(self) -> str:
        return f"{self.key.hex()}-{self.batch:016x}-{self.at:014x}-{self.token.hex()}"


def new_ref(key: bytes, batch: int, now: int, token: Callable[[int], bytes]) -> Ref:
    assert len(key) == KEY_BYTES and 0 <= batch <= MAX_BATCH
    return Ref(key, batch, now, token(TOKEN_BYTES))


def parse_ref(name: str) -> Ref | None:
    """The parsed name; None if it is not of the form that `Ref` produces."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    key, batch, at, token = found.groups()
    return Ref(bytes.fromhex(key), int(batch, 16), int(at, 16), bytes.fromhex(token))


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """Records of one partition in a staged file."""

    topic: int  # its id
    partition: int
    place: int
    length: int
    count: int
    size: int  # approximate bytes in the log


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    topics: dict[int, str]  # id → name
    chunks: list[Chunk]
    rows: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Manifest)


class StagedWriter:
    """Writes one staged file. End with `finish`, or with `abandon`, which leaves nothing behind."""

    def __init__(self, files: Files, ref: Ref, *, sync: bool) -> None:
        self._files = files
        self._ref = str(ref)
        self._sync = sync
        self._path = f"{DIRECTORY}/{self._ref}{UNFINISHED}"
        files.make_directory(DIRECTORY)
        self._file: File | None = files.create(self._path, 0)
        self._pile: list[bytes] = []
        self._written = 0
        self.byte_size = 0
        self._topics: dict[int, str] = {}
        self._chunks: list[Chunk] = []
        self._rows = 0

    def add(self, topic: int, name: str, partition: int, columns: Columns) -> None:
        place = self.byte_size
        self._topics[topic] = name
        self._add(*columns.pieces())
        length = self.byte_size - place
        self._chunks.append(Chunk(topic, partition, place, length, columns.count, columns.byte_size))
        self._rows += columns.count

    def _add(self, *pieces: bytes) -> None:
        """Large pieces are written directly, small ones together."""
        for piece in pieces:
            self.byte_size += len(piece)
            self._pile.append(piece)
            if len(piece) >= LARGE_PIECE:
                self._write()
        if self.byte_size - self._written >= PILE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        pile, self._pile = self._pile, []
        large = pile.pop() if pile and len(pile[-1]) >= LARGE_PIECE else b""
        for data in (b"".join(pile), large):
            if data:
                self._file.write(self._written, data)
                self._written += len(data)

    def finish(self) -> Staged:
        """Complete the file under its final name; with `sync`, it then survives a power failure."""
        assert self._file is not None
        manifest = _encoder.encode(Manifest(self._topics, self._chunks, self._rows))
        self._add(manifest + _TRAILER.pack(len(manifest), crc32c(manifest), MAGIC))
        self._write()
        if self._sync:
            self._file.sync()
        self._file.close()
        self._file = None
        self._files.rename(self._path, f"{DIRECTORY}/{self._ref}")
        if self._sync:
            self._files.sync_directory(DIRECTORY)
        return Staged(self._ref, self._rows)

    def abandon(self) -> None:
        """Delete the file; may also be called after `finish` failed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for path in (self._path, f"{DIRECTORY}/{self._ref}"):
            with contextlib.suppress(OSError):
                self._files.remove(path)


class Staging:
    """The directory of staged files, for reading and removing them. All methods may block; any thread. Without `files`,
    staging is disabled.
    """

    def __init__(self, files: Files | None = None) -> None:
        self._files = files

    def manifest(self, ref: str) -> Manifest:
        """The file's manifest. Raises StagedNotFound, also for an incomplete or damaged file."""
        file = self._open(ref)
        try:
            size = file.size()
            length, checksum, magic = _TRAILER.unpack(file.read(max(0, size - _TRAILER.size), _TRAILER.size))
            data = file.read(size - _TRAILER.size - length, length) if length <= size - _TRAILER.size else b""
            if magic != MAGIC or len(data) != length or crc32c(data) != checksum:
                raise StagedNotFound(ref, "it is damaged")
            return _decoder.decode(data)
        except (struct.error, msgspec.MsgspecError) as error:
            raise StagedNotFound(ref, "it is damaged") from error
        finally:
            file.close()

    def read(self, places: Iterable[tuple[str, Chunk]]) -> list[Columns]:
        """The columns of these chunks. Raises StagedNotFound for missing or damaged ones, OSError if reading fails."""
        found: list[Columns] = []
        file: File | None = None
        opened = ""
        try:
            for ref, chunk in places:
                if file is None or ref != opened:
                    if file is not None:
                        file.close()
                    file, opened = self._open(ref), ref
                found.append(_columns(file, ref, chunk))
        finally:
            if file is not None:
                file.close()
        return found

    def _open(self, ref: str) -> File:
        if self._files is None:
            raise StagedNotFound(ref)
        try:
            return self._files.open(f"{DIRECTORY}/{ref}", writable=False)
        except FileNotFoundError as error:
            raise StagedNotFound(ref) from error

    def names(self) -> list[str]:
        """The names of all files in the directory, complete or not."""
        if self._files is None:
            return []
        try:
            return self._files.list(DIRECTORY)
        except FileNotFoundError:
            return []

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files. Those that cannot be removed will be found again by `leftovers`."""
        if self._files is None:
            return
        for name in names:
            with contextlib.suppress(OSError):
                self._files.remove(f"{DIRECTORY}/{name}")

    def remove_published(self, key: bytes, batch: int) -> None:
        """Remove all files staged for the application's batches up to this one."""
        self.remove([name for name in self.names() if _of(name, key, batch)])


def _columns(file: File, ref: str, chunk: Chunk) -> Columns:
    try:
        columns = decode(file.read(chunk.place, chunk.length))
    except BatchDamaged as error:
        raise StagedNotFound(ref, "it is damaged") from error
    if columns.count != chunk.count:
        raise StagedNotFound(ref, "it is damaged")
    return columns


def _of(name: str, key: bytes, batch: int) -> bool:
    ref = parse_ref(name.removesuffix(UNFINISHED))
    return ref is not None and ref.key == key and ref.batch <= batch


def leftovers(
    names: Iterable[str],
    published: Callable[[bytes], int],
    needed: Callable[[str], bool],
    now: int,
    started: int = 0,
) -> list[str]:
    """Files that may be removed: of published batches, too old to be published, or unfinished when the broker (and with
    it the writing process) was `started`.

    `published` returns the last published batch of an application (-1: none), `needed` whether a publication is using a
    file.
    """
    found = []
    for name in names:
        ref = parse_ref(name.removesuffix(UNFINISHED))
        if ref is None or needed(name):
            continue
        orphan = ref.at < started and name.endswith(UNFINISHED)
        if orphan or ref.at + KEPT_US <= now or ref.batch <= published(ref.key):
            found.append(name)
    return found
