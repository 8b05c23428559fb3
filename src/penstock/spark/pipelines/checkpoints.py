"""Spark's checkpoints of a query: how far each batch went, and when. Read only, while Spark writes them.

A checkpoint has a file for every batch in `offsets/`, written before it is run (first line `v1`, then what Spark wants
to remember, then a line for each source), and one in `commits/`, written when all of it is done. Spark removes those
of old batches. That is enough for rows, speed and lag, and needs nothing from the process that runs the query.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.flight.log import TopicPartition
from penstock.spark.offsets import FROM

WINDOW = 10  # batches to look back for the speed


class Entry(NamedTuple):
    name: str
    is_directory: bool
    modified: float


class Folders(Protocol):
    """The part of a file system that is needed here."""

    def list(self, path: str) -> list[Entry]: ...

    def read(self, path: str) -> bytes | None: ...


class LocalFolders:
    def list(self, path: str) -> list[Entry]:
        entries = []
        try:
            with os.scandir(path) as found:
                for entry in found:
                    try:
                        entries.append(Entry(entry.name, entry.is_dir(), entry.stat().st_mtime))
                    except FileNotFoundError:
                        continue  # Spark tidies up while we look
        except (FileNotFoundError, NotADirectoryError):
            return []
        return entries

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None


class RemoteFolders:
    """Any place that pyarrow has a file system for."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def list(self, path: str) -> list[Entry]:
        from pyarrow.fs import FileSelector, FileType

        found = self._filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return [
            Entry(info.base_name, info.type == FileType.Directory, (info.mtime_ns or 0) / 1e9)
            for info in found
            if info.type in (FileType.Directory, FileType.File)
        ]

    def read(self, path: str) -> bytes | None:
        try:
            with self._filesystem.open_input_stream(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None


def folders_at(url: str) -> tuple[Folders, str]:
    """The file system that a URL is on, and the path there."""
    if url.startswith("file://"):
        return LocalFolders(), unquote(urlsplit(url).path)
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(url)
    return RemoteFolders(filesystem), path


class Batch(NamedTuple):
    """One batch of a query. Positions are where it ended, origins where its query began, if it says so."""

    number: int
    began: float
    committed: float | None
    positions: dict[TopicPartition, int]
    origins: dict[TopicPartition, int] | None


class Checkpoint(NamedTuple):
    name: str
    path: str


def find(folders: Folders, root: str) -> list[Checkpoint]:
    """The checkpoints below a directory, by name. Declarative pipelines number theirs: a full refresh begins another,
    and the highest number is the one that counts."""
    found: dict[str, tuple[int, str]] = {}
    for path in _with_offsets(folders, root, 6):
        parts = path.removeprefix(root).strip("/").split("/")
        number = 0
        if parts[0] == "_checkpoints" and parts[-1].isdigit():
            number, parts = int(parts[-1]), parts[1:-1]
            name = parts[-1]
        else:
            name = unquote("/".join(parts))
        if name not in found or found[name][0] <= number:
            found[name] = (number, path)
    return [Checkpoint(name, path) for name, (_, path) in sorted(found.items())]


def _with_offsets(folders: Folders, path: str, depth: int) -> Iterator[str]:
    directories = sorted(entry.name for entry in folders.list(path) if entry.is_directory)
    if "offsets" in directories:
        yield path
    elif depth:
        for name in directories:
            yield from _with_offsets(folders, f"{path}/{name}", depth - 1)


def batches(folders: Folders, path: str, window: int = WINDOW) -> list[Batch]:
    """The last batches, in order; and the first, if it is still there: in checkpoints of earlier versions it alone says
    where the query began."""
    written = {int(entry.name) for entry in folders.list(f"{path}/offsets") if entry.name.isdigit()}
    committed = {int(entry.name): entry.modified for entry in folders.list(f"{path}/commits") if entry.name.isdigit()}
    result = []
    for number in sorted({*sorted(written)[-window:], *({0} & written)}):
        text = folders.read(f"{path}/offsets/{number}")
        if text is not None:
            result.append(read_batch(number, text, committed.get(number)))
    return result


def read_batch(number: int, text: bytes, committed: float | None) -> Batch:
    lines = text.split(b"\n")
    began = 0.0
    # A version of Spark that keeps it elsewhere: then there is no speed, and the rest is right.
    with contextlib.suppress(msgspec.DecodeError, LookupError, TypeError):
        began = msgspec.json.decode(lines[1])["batchTimestampMs"] / 1000
    positions: dict[TopicPartition, int] = {}
    origins: dict[TopicPartition, int] | None = None
    for line in lines[2:]:
        ended, began_at = source_offsets(line)
        for place, offset in ended.items():  # what two sources of a query both read is as far as the slower one is
            positions[place] = min(offset, positions.get(place, offset))
        if began_at is not None:
            origins = (origins or {}) | began_at
    return Batch(number, began, committed, positions, origins)


def source_offsets(line: bytes) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """The end offsets of a source's batch, and its query's start offsets if the line has them; nothing if not ours."""
    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}, None
    if not isinstance(document, dict):
        return {}, None
    return _places(document), _places(document[FROM]) if FROM in document else None


def _places(document: Any) -> dict[TopicPartition, int]:
    if not isinstance(document, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        if isinstance(partitions, Mapping) and topic != FROM
        for partition, offset in partitions.items()
        if partition.isdigit() and isinstance(offset, int)
    }
