"""Spark's checkpoints of a query: the offsets and times of its batches. Read-only, while Spark writes them.

A checkpoint has a file for every batch in `offsets/`, written before it runs (first line `v1`, then Spark's metadata,
then a line for each source), and one in `commits/`, written when it is complete. Spark removes those of old batches.
This is sufficient for rows, rate and lag, without the process that runs the query.
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

WINDOW = 10  # number of batches for the rate


class Entry(NamedTuple):
    name: str
    is_directory: bool
    modified: float


class Folders(Protocol):
    """The required part of a file system."""

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
                        continue  # Spark cleans up concurrently
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
    """Any file system that pyarrow supports."""

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
    """The file system of a URL, and the path on it."""
    if url.startswith("file://"):
        return LocalFolders(), unquote(urlsplit(url).path)
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(url)
    return RemoteFolders(filesystem), path


class MicroBatch(NamedTuple):
    """One batch of a query. `positions` are its end offsets, `origins` the start offsets of its query, if present."""

    number: int
    began: float
    committed: float | None
    positions: dict[TopicPartition, int]
    origins: dict[TopicPartition, int] | None


class Checkpoint(NamedTuple):
    name: str
    path: str


def find(folders: Folders, root: str) -> list[Checkpoint]:
    """The checkpoints below a directory, by name. Declarative pipelines number theirs: a full refresh starts a new one,
    and the highest number is the current one."""
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


def batches(folders: Folders, path: str, window: int = WINDOW) -> list[MicroBatch]:
    """The last batches, in order; and the first, if it still exists: in checkpoints of earlier versions only that one
    has the start offsets of the query."""
    written = {int(entry.name) for entry in folders.list(f"{path}/offsets") if entry.name.isdigit()}
    committed = {int(entry.name): entry.modified for entry in folders.list(f"{path}/commits") if entry.name.isdigit()}
    result = []
    for number in sorted({*sorted(written)[-window:], *({0} & written)}):
        text = folders.read(f"{path}/offsets/{number}")
        if text is not None:
            result.append(read_batch(number, text, committed.get(number)))
    return result


def read_batch(number: int, text: bytes, committed: float | None) -> MicroBatch:
    lines = text.split(b"\n")
    began = 0.0
    # Missing if a version of Spark stores it elsewhere: then only the rate is missing.
    with contextlib.suppress(msgspec.DecodeError, LookupError, TypeError):
        began = msgspec.json.decode(lines[1])["batchTimestampMs"] / 1000
    positions: dict[TopicPartition, int] = {}
    origins: dict[TopicPartition, int] | None = None
    for line in lines[2:]:
        ended, began_at = source_offsets(line)
        for place, offset in ended.items():  # for a partition read by two sources, the slower one counts
            positions[place] = min(offset, positions.get(place, offset))
        if began_at is not None:
            origins = (origins or {}) | began_at
    return MicroBatch(number, began, committed, positions, origins)


def source_offsets(line: bytes) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """The end offsets of a source's batch, and its query's start offsets if the line has them; empty for other
    sources."""
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
