"""How much of everything the broker accepts. What a user may want to change is a field here, with its default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    record_bytes: int = 16 << 20  # key and value of one record; a door with smaller frames has a smaller limit
    partitions_per_topic: int = 1_000
    topics: int = 10_000  # in all tenants together
    groups_per_scope: int = 10_000
    offsets_per_group: int = 10_000
    group_offsets: int = 200_000  # in all groups together: about 40 MB of memory
    queues: int = 100_000
