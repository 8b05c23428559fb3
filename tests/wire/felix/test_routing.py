"""The partition of a key: as the original's brokers and clients choose it, who have frozen these values."""

from __future__ import annotations

import pytest

from penstock.wire.felix.routing import shard_for


@pytest.mark.parametrize(
    ("shards", "key", "shard"),
    [
        (8, b"customer-0", 0), (8, b"customer-4", 2), (8, b"customer-1", 3), (8, b"customer-6", 4),
        (8, b"customer-2", 6), (12, b"k0", 6), (12, b"k1", 10), (4, b"", 3),
    ],
)  # fmt: skip
def test_the_partition_of_a_key_is_that_of_the_originals_hash(shards: int, key: bytes, shard: int) -> None:
    assert shard_for(shards, key) == shard


@pytest.mark.parametrize(("shards", "key"), [(0, b"anything"), (1, b"anything"), (16, None)])
def test_without_a_key_or_a_choice_it_is_the_first(shards: int, key: bytes | None) -> None:
    assert shard_for(shards, key) == 0
