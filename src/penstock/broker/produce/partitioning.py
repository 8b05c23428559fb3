"""The partition of a record: the one that was requested, else the one that its key says, else the next in turn.

Turns are counted in memory only: after a restart every topic begins at its first partition again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from penstock.broker.errors import PartitionNotFound
from penstock.broker.state.state import Topic

ANY: Final = -1
"""A requested partition that leaves the choice to us. No other negative number does."""

LONG_KEY: Final = 1024  # bytes beyond which a digest stands for the key: FNV goes byte by byte, here in Python
_REMEMBERED_KEY: Final = 64  # bytes up to which a key's hash is remembered

_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a(key: bytes) -> int:
    """FNV-1a, 32 bit. Of a key longer than `LONG_KEY`: that of its BLAKE2b digest of 16 bytes."""
    if len(key) <= _REMEMBERED_KEY:
        return _remembered(bytes(key))
    return _hash(key if len(key) <= LONG_KEY else blake2b(key, digest_size=16).digest())


def _hash(data: bytes) -> int:
    hashed = _BASIS
    for byte in data:
        hashed = (hashed ^ byte) * _PRIME & 0xFFFFFFFF
    return hashed


_remembered = lru_cache(maxsize=8192)(_hash)


class Partitioner:
    """Chooses for all topics of a broker."""

    def __init__(self) -> None:
        self._turns: dict[int, int] = {}  # by topic id: the partition whose turn it is

    def choose(self, topic: Topic, keys: Sequence[bytes | None] | None, requested: Sequence[int]) -> list[int]:
        """A partition for each record. Raises PartitionNotFound, and then nobody's turn has passed."""
        partitions, count = topic.partitions, len(requested)
        if count and (highest := max(requested)) >= partitions:
            raise PartitionNotFound(topic.name, highest, partitions)
        if count and (lowest := min(requested)) < ANY:
            raise PartitionNotFound(topic.name, lowest, partitions)
        if partitions == 1:
            return [0] * count
        turn = self._turns.get(topic.id, 0)
        if (keys is None or not any(keys)) and (not count or highest < 0):
            end = turn + count
            self._turns[topic.id] = end % partitions
            if end <= partitions:
                return list(range(turn, end))
            return (list(range(partitions)) * -(-end // partitions))[turn:end]
        chosen = []
        for key, wanted in zip([None] * count if keys is None else keys, requested, strict=True):
            if wanted >= 0:
                chosen.append(wanted)
            elif key:
                chosen.append(fnv1a(key) % partitions)
            else:
                chosen.append(turn)
                turn = (turn + 1) % partitions
        self._turns[topic.id] = turn
        return chosen

    def forget(self, topic: int) -> None:
        """The topic with this id is gone."""
        self._turns.pop(topic, None)

    def clear(self) -> None:
        """Begin anew: ids of topics that never came into being may have been given to others."""
        self._turns.clear()
