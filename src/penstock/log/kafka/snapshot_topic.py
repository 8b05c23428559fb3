"""The topic `NAME.snapshots`: the newest snapshots of a cell, and other data that a broker with an empty disk needs.

It is compacted: Kafka keeps the last record with each key. Keys begin with the number of the cell:

    0/snapshot/<group>             JSON: the number and checksum of its pieces; written after all of them
    0/snapshot/<group>/<crc>/<n>   a piece of the snapshot's file
    0/landmark/<offset>            JSON: a `Landmark`
    0/copy                         JSON: a `Copying`, while the journal is being filled by `penstock storage copy`

Any broker may write here at any time, even a replaced owner: snapshots and landmarks describe groups that count, so
they are correct whoever wrote them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec

from penstock.log import snapshots
from penstock.log.checksum import crc32c
from penstock.log.kafka.landmarks import Landmark
from penstock.typed_decoding import decode_json

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 512 << 10
_KEY: Final = re.compile(r"(\d+)/(snapshot|landmark|copy)(?:/(\d{20}))?(?:/([0-9a-f]{8})/(\d{6}))?")

K = TypeVar("K")
V = TypeVar("V")
Item = tuple[str, bytes | None]
"""A key and its value; None: the key is deleted."""


class KeyedTopic(Protocol):
    """A compacted topic. Blocks; raises LogUnavailable."""

    def read(self) -> Iterable[Item]:
        """Everything up to the end, in order."""

    def put(self, items: Sequence[Item]) -> None:
        """Store these in order; returns when they are stored."""


class Manifest(msgspec.Struct, frozen=True):
    """Describes a snapshot whose pieces are all stored."""

    pieces: int
    crc: str


class Copying(msgspec.Struct, frozen=True):
    """An unfinished copy: no broker may use the journal."""

    source: str  # identity of the data directory
    text: str  # for people


@dataclass(slots=True)
class Content:
    """The content of the topic for one cell."""

    snapshots: dict[int, bytes] = field(default_factory=dict)  # complete files, by group
    landmarks: list[Landmark] = field(default_factory=list)
    copying: Copying | None = None


class SnapshotTopic:
    def __init__(self, topic: KeyedTopic, cell: int) -> None:
        self._topic = topic
        self._cell = cell
        self._keys: dict[int, set[str]] = {}  # of snapshots, complete or not, by group

    def read(self) -> Content:
        """The newest snapshots and all other content. Raises LogUnavailable."""
        pieces: dict[tuple[int, str], dict[int, bytes]] = {}
        manifests: dict[int, Manifest] = {}
        landmarks: dict[int, Landmark] = {}
        content = Content()
        self._keys.clear()
        for key, value in self._topic.read():
            found = _KEY.fullmatch(key)
            if found is None or int(found[1]) != self._cell:
                continue
            kind, number, crc, piece = found[2], int(found[3] or 0), found[4], int(found[5] or 0)
            if kind == "snapshot":
                keys = self._keys.setdefault(number, set())
                keys.discard(key) if value is None else keys.add(key)
            if kind == "copy":
                content.copying = None if value is None else decode_json(value, Copying)
            elif kind == "landmark":
                _set(landmarks, number, None if value is None else decode_json(value, Landmark))
            elif crc is not None:
                _set(pieces.setdefault((number, crc), {}), piece, value)
            else:
                _set(manifests, number, None if value is None else decode_json(value, Manifest))
                _forget(pieces, sorted(manifests)[-snapshots.KEPT :])
        content.landmarks = sorted(landmarks.values())
        for group in sorted(manifests)[-snapshots.KEPT :]:
            data = _joined(manifests[group], pieces.get((group, manifests[group].crc), {}))
            if data is not None:
                content.snapshots[group] = data
        return content

    def put_snapshot(self, group: int, data: bytes) -> None:
        """Raises LogUnavailable."""
        manifest = Manifest(-(-len(data) // PIECE_BYTES), f"{crc32c(data):08x}")
        name = self._key("snapshot", group)
        for number in range(manifest.pieces):
            piece = data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
            self._put_part(group, f"{name}/{manifest.crc}/{number:06d}", piece)
        self._put_part(group, name, msgspec.json.encode(manifest))

    def _put_part(self, group: int, key: str, value: bytes) -> None:
        self._keys.setdefault(group, set()).add(key)
        self._topic.put([(key, value)])

    def drop_snapshots_before(self, group: int) -> None:
        """Drop earlier snapshots, including incomplete ones. The manifest is deleted first."""
        for old in sorted(number for number in self._keys if number < group):
            gone: list[Item] = [(key, None) for key in sorted(self._keys[old])]
            if gone:
                self._topic.put(gone)
            del self._keys[old]

    def put_landmark(self, mark: Landmark) -> None:
        self._topic.put([(self._key("landmark", mark.offset), msgspec.json.encode(mark))])

    def drop_landmarks(self, marks: Iterable[Landmark]) -> None:
        gone: list[Item] = [(self._key("landmark", mark.offset), None) for mark in marks]
        if gone:
            self._topic.put(gone)

    def put_copying(self, copying: Copying | None) -> None:
        value = None if copying is None else msgspec.json.encode(copying)
        self._topic.put([(f"{self._cell}/copy", value)])

    def _key(self, kind: str, number: int) -> str:
        return f"{self._cell}/{kind}/{number:020d}"


def _set(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def _forget(pieces: dict[tuple[int, str], dict[int, bytes]], newest: list[int]) -> None:
    """Drop pieces of snapshots that are older than those that will be used: the topic may still have many."""
    if len(newest) == snapshots.KEPT:
        for group, crc in [key for key in pieces if key[0] < newest[0]]:
            del pieces[group, crc]


def _joined(manifest: Manifest, pieces: dict[int, bytes]) -> bytes | None:
    data = b"".join(pieces[number] for number in sorted(pieces) if number < manifest.pieces)
    if len(pieces) < manifest.pieces or f"{crc32c(data):08x}" != manifest.crc:
        logger.warning("a snapshot on Kafka is not whole, and is not used")
        return None
    return data
