"""Progress of a mirror: what the next batch is, stored before it is written, so that it can be found out afterwards
whether it was."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

import msgspec


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is about to be written: the source's offsets from `first` up to `next`."""

    first: int
    next: int
    end: int  # of the destination's partition before it
    epoch: int  # of the mirror that writes it: a later one has a higher one
    number: int  # of the batch, in its epoch


def identity(source: str, topic: str) -> str:
    """A short name for what is mirrored from where."""
    return hashlib.sha256(f"{source}/{topic}".encode()).hexdigest()[:8]


def progress_topic(topic: str, mirror: str) -> str:
    """The topic beside a mirrored one that has the intents of one partition: its last record counts. RustLog's names
    have no dots in them."""
    return f"{topic}-mirror-{mirror}"


def is_progress(topic: str) -> bool:
    return re.search(r"-mirror-[0-9a-f]{8}-\d+$", topic) is not None


def encode(intent: Intent) -> bytes:
    return msgspec.json.encode(intent)


def decode(data: bytes) -> Intent | None:
    try:
        return msgspec.json.decode(data, type=Intent)
    except msgspec.MsgspecError:
        return None  # somebody else's record


class StateFile:
    """Positions in a file, for destinations that cannot tell what they have: by topic and partition."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._positions: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            self._positions = msgspec.json.decode(file.read(), type=dict[str, int])

    def get(self, key: str) -> int | None:
        return self._positions.get(key)

    def set(self, key: str, position: int) -> None:
        """Replaces the file: a reader sees the old one or the new one, whole."""
        self._positions[key] = position
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), mode=0o700, exist_ok=True)
        with open(f"{self._path}.new", "wb") as file:
            file.write(msgspec.json.encode(self._positions))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._path}.new", self._path)
