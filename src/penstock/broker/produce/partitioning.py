"""The partition of a record: the requested one, else by its key, else round-robin.

Round-robin counters are in memory only: after a restart every topic begins at its first partition again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from penstock.broker.errors import PartitionNotFound
from penstock.broker.state.state import Topic

ANY: Final = -1
"""Requests any partition; other negative numbers are invalid."""

LONG_KEY: Final = 1024  # bytes; longer keys are digested first, as this FNV is a loop in Python
_REMEMBERED_KEY: Final = 64  # bytes; hashes of shorter keys are cached

_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a(key: bytes) -> int:
    """FNV-1a, 32 bit. For a key longer than `LONG_KEY`, of its BLAKE2b digest of 16 bytes."""
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
    """Chooses partitions for all topics of a broker."""

    def __init__(self) -> None:
        self._turns: dict[int, int] = {}  # topic id → next round-robin partition

    def choose(self, topic: Topic, keys: Sequence[bytes | None] | None, requested: Sequence[int]) -> list[int]:
        """A partition for each record. Raises PartitionNotFound, without advancing the round-robin counter."""
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

    def choose_one(self, topic: Topic, requested: int) -> int:
        """`choose` for one record without a key."""
        partitions = topic.partitions
        if not ANY <= requested < partitions:
            raise PartitionNotFound(topic.name, requested, partitions)
        if requested >= 0 or partitions == 1:
            return max(requested, 0)
        turn = self._turns.get(topic.id, 0)
        self._turns[topic.id] = (turn + 1) % partitions
        return turn

    def forget(self, topic: int) -> None:
        """The topic with this id was deleted."""
        self._turns.pop(topic, None)

    def clear(self) -> None:
        """Reset all counters: ids of topics whose creation failed may have been reassigned."""
        self._turns.clear()
