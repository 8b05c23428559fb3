"""The partition of a key, as the original's brokers and clients choose it: FNV-1a, mixed once more, modulo the number
of partitions."""

from __future__ import annotations

from typing import Final

MAX_KEY: Final = 0xFFFF  # bytes

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


def shard_for(shards: int, key: bytes | None) -> int:
    """The partition of a record with this key. Without a key it is 0; an empty key is a key."""
    if shards <= 1 or key is None:
        return 0
    mixed = 0xCBF2_9CE4_8422_2325
    for byte in key:
        mixed = ((mixed ^ byte) * 0x100_0000_01B3) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return (mixed ^ (mixed >> 31)) % shards
