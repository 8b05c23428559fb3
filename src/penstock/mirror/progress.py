"""Progress of a mirror: the next batch is recorded before it is written, so that its outcome can be determined
later."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

import msgspec

from penstock.typed_decoding import decode_json


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is about to be written: the source's offsets from `first` up to, but not including, `next`."""

    first: int
    next: int
    end: int  # of the destination's partition before the batch
    epoch: int  # of the mirror run; later runs have higher ones
    number: int  # of the batch, within its epoch


def identity(source: str, topic: str) -> str:
    """A short id of a source and topic."""
    return hashlib.sha256(f"{source}/{topic}".encode()).hexdigest()[:8]


def progress_topic(topic: str, mirror: str) -> str:
    """The topic next to a mirrored one with the intents of one partition, of which the last record counts. Without
    dots, which RustLog does not allow."""
    return f"{topic}-mirror-{mirror}"


def is_progress(topic: str) -> bool:
    return re.search(r"-mirror-[0-9a-f]{8}-\d+$", topic) is not None


def encode(intent: Intent) -> bytes:
    return msgspec.json.encode(intent)


def decode(data: bytes) -> Intent | None:
    try:
        return decode_json(data, Intent)
    except msgspec.MsgspecError:
        return None  # not one of our records


class StateFile:
    """Positions in a file, by topic and partition, for destinations that cannot be read back."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._positions: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            self._positions = decode_json(file.read(), dict[str, int])

    def get(self, key: str) -> int | None:
        return self._positions.get(key)

    def set(self, key: str, position: int) -> None:
        """Store a position. Replaces the file atomically."""
        self._positions[key] = position
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), mode=0o700, exist_ok=True)
        with open(f"{self._path}.new", "wb") as file:
            file.write(msgspec.json.encode(self._positions))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._path}.new", self._path)
