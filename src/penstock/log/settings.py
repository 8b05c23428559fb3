"""Settings of the file engine."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.engine import Durability


@dataclass(frozen=True, slots=True)
class LogSettings:
    durability: Durability = Durability.SYNCED
    file_bytes: int = 64 << 20  # size of a segment
    entry_bytes: int = 64 << 20  # maximum of one atomic append
    group_bytes: int = 8 << 20  # a group of this size accepts no more appends
    tail_bytes: int = 32 << 20  # newest batches kept in memory
    cache_bytes: int = 16 << 20  # batches read from disk kept in memory
    roll_seconds: float = 3600.0  # a segment older than this is closed even if it is not full
    snapshot_bytes: int = 64 << 20  # journal written between two snapshots
