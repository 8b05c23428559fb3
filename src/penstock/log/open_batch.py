"""Open batches: collect the appends of one partition in one commit group, and encode them. `batch` has the layout."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from penstock.equal_values import EqualValues
from penstock.log.batch import (
    BATCH_HEADER,
    BATCH_MAGIC,
    EXPIRES,
    HEADER_SIZE,
    HEADERS,
    KEY_NULLS,
    KEYS,
    MAX_BATCH_BYTES,
    PADDING,
    RECORD_BYTES,
    TRAILER_SIZE,
    USUAL_COUNT,
    Headers,
    equal_offsets,
    padded_size,
    padding,
)
from penstock.log.checksum import join_with_checksum

_LARGE: Final = 1024  # bytes of a value, on average, from which on values are not joined before the whole batch is


class OpenBatch:
    """Collects the appends of one partition in one commit group, then becomes one batch."""

    __slots__ = (
        "_counts",
        "_stamps",
        "base_offset",
        "byte_size",
        "door",
        "expires",
        "headers",
        "keys",
        "partition",
        "values",
    )

    def __init__(self, partition: int, base_offset: int, door: int = 0) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.door = door
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.expires: list[int] | None = None
        self._stamps: list[int] = []  # one per append; `_counts` has the number of its records
        self._counts: list[int] = []
        self.byte_size = 0

    def extend(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        expires: Sequence[int] | None,
        timestamp: int,
    ) -> None:
        before, added = len(self.values), len(values)
        self.values.extend(values)
        self._stamps.append(timestamp)
        self._counts.append(added)
        self.byte_size += sum(map(len, values)) + RECORD_BYTES * added
        if keys is not None:
            if self.keys is None:
                self.keys = [None] * before
            self.keys.extend(keys)
            self.byte_size += sum(len(key) for key in keys if key is not None)
        elif self.keys is not None:
            self.keys.extend([None] * added)
        if headers is not None:
            if self.headers is None:
                self.headers = [()] * before
            self.headers.extend(headers)
            self.byte_size += sum(4 * len(name) + len(value) + 8 for pairs in headers for name, value in pairs)
        elif self.headers is not None:
            self.headers.extend([()] * added)
        if expires is not None:
            if self.expires is None:
                self.expires = [0] * before
            self.expires.extend(expires)
        elif self.expires is not None:
            self.expires.extend([0] * added)

    def append(self, value: bytes, timestamp: int) -> None:
        """`extend` by one record without key, headers and expiry."""
        self.values.append(value)
        self._stamps.append(timestamp)
        self._counts.append(1)
        self.byte_size += len(value) + RECORD_BYTES
        if self.keys is not None:
            self.keys.append(None)
        if self.headers is not None:
            self.headers.append(())
        if self.expires is not None:
            self.expires.append(0)

    def build(self, position: int) -> bytes:
        """The finished batch; `position` is the global position of its first record."""
        stamps = self._stamps
        if len(stamps) == 1:
            timestamps = array("q", stamps) * len(self.values)
        elif len(stamps) == len(self.values):
            timestamps = array("q", stamps)
        else:
            timestamps = array("q", chain.from_iterable([t] * n for t, n in zip(stamps, self._counts, strict=True)))
        return _build(
            self.partition,
            self.base_offset,
            position,
            self.values,
            self.keys,
            self.headers,
            self.expires,
            timestamps,
            (min(stamps), max(stamps)),
            self.door,
        )


def _build(
    partition: int,
    base_offset: int,
    position: int,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    expires: Sequence[int] | None,
    timestamps: array[int],
    stamps: tuple[int, int],
    door: int,
) -> bytes:
    count = len(values)
    flags = header_count = 0
    parts = [b"", timestamps.tobytes()]  # the header is added last; every section is padded
    size = sum(map(len, values))
    key_bytes = header_names = header_values = b""
    if expires is not None:
        flags |= EXPIRES
        parts.append(array("q", expires).tobytes())
    if keys is not None:
        flags |= KEYS
        present = [key for key in keys if key is not None]
        if len(present) < count:
            flags |= KEY_NULLS
            bits = sum(1 << i for i, key in enumerate(keys) if key is not None)
            _add(parts, bits.to_bytes((count + 7) // 8, "little"))
        _add(parts, _offsets([0 if key is None else len(key) for key in keys]))
        key_bytes = b"".join(present)
    _add(parts, _value_offsets(values))
    if headers is not None:
        flags |= HEADERS
        pairs = [pair for of_record in headers for pair in of_record]
        header_count = len(pairs)
        names = [name.encode() for name, _ in pairs]
        _add(parts, _offsets(map(len, headers)))
        _add(parts, _offsets(map(len, names)))
        _add(parts, _offsets([len(value) for _, value in pairs]))
        header_names = b"".join(names)
        header_values = b"".join([value for _, value in pairs])
    _add(parts, key_bytes)
    if size >= _LARGE * count:
        parts += values  # a copy takes longer than a checksum of each
        parts.append(PADDING[padding(size)])
    else:
        _add(parts, b"".join(values))
    _add(parts, header_names)
    _add(parts, header_values)
    length = HEADER_SIZE + sum(map(len, parts)) + TRAILER_SIZE
    if length > MAX_BATCH_BYTES:
        raise ValueError("a batch of more than 1 GiB")
    parts[0] = BATCH_HEADER.pack(
        BATCH_MAGIC, length, flags, door, partition >> 32, partition & 0xFFFFFFFF, base_offset, position,
        count, header_count, len(key_bytes), size, len(header_names), len(header_values), *stamps,
    )  # fmt: skip
    parts.append(PADDING[4])
    return join_with_checksum(parts)


def build_equal(partition: int, base_offset: int, position: int, values: EqualValues, stamp: int, door: int) -> bytes:
    """`_build` for values of one length, without keys and appended together: a few calls for all of them."""
    count, size = len(values), values.size
    offsets = (equal_offsets if count <= USUAL_COUNT else equal_offsets.__wrapped__)(values.length, count)
    length = HEADER_SIZE + 8 * count + padded_size(len(offsets)) + padded_size(size) + TRAILER_SIZE
    if length > MAX_BATCH_BYTES:
        raise ValueError("a batch of more than 1 GiB")
    head = BATCH_HEADER.pack(
        BATCH_MAGIC, length, 0, door, partition >> 32, partition & 0xFFFFFFFF, base_offset, position,
        count, 0, 0, size, 0, 0, stamp, stamp,
    )  # fmt: skip
    stamps = stamp.to_bytes(8, "little", signed=True) * count
    before = b"".join((head, stamps, offsets, PADDING[padding(len(offsets))]))
    return join_with_checksum((before, *values.pieces(), PADDING[padding(size)] + PADDING[4]))


def _add(parts: list[bytes], section: bytes) -> None:
    if section:
        parts.append(section)
        if pad := padding(len(section)):
            parts.append(PADDING[pad])


def _offsets(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


def _value_offsets(values: Sequence[bytes]) -> bytes:
    lengths = list(map(len, values))
    if lengths.count(lengths[0]) == len(lengths) <= USUAL_COUNT:
        return equal_offsets(lengths[0], len(lengths))
    return _offsets(lengths)


def value_offsets(values: Sequence[bytes], length: int) -> bytes:
    """The column of value offsets. All values have this length; if it is negative, they have several."""
    if length < 0 or len(values) > USUAL_COUNT:
        return _offsets(map(len, values))
    return equal_offsets(length, len(values))
