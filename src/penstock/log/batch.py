"""A batch: records of one partition in columns, with one layout in memory, in the journal and in Arrow.

Layout, little-endian, every section padded to a multiple of 8 bytes:

    header          80 bytes, see `BATCH_HEADER`
    timestamps      int64 µs  [count]
    expires         int64 µs  [count]                    if EXPIRES; 0 = never
    key validity    bitmap, least significant bit first  if KEY_NULLS
    key offsets     int32     [count + 1]                if KEYS
    value offsets   int32     [count + 1]
    header lists    int32     [count + 1]                if HEADERS: which headers belong to which record
    header names    int32     [header count + 1]         if HEADERS
    header values   int32     [header count + 1]         if HEADERS
    key bytes, value bytes, header name bytes, header value bytes
    trailer         4 zero bytes, then the CRC-32C of everything before it

The offsets are those of Arrow's binary layout, so a reader can use a batch as Arrow arrays without copying. This module
decodes, `open_batch` encodes; neither does I/O.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import Final

from penstock.log.checksum import INTACT, crc32c

Headers = tuple[tuple[str, bytes], ...]

BATCH_MAGIC: Final = b"PSB1"
#                                magic
#                                |  length of the whole batch
#                                |  | flags, door (below 256)
#                                |  | | | topic, partition
#                                |  | | | | | base offset, position
#                                |  | | | | | | | count, header count
#                                |  | | | | | | | | | bytes of keys, values, header names, header values
#                                |  | | | | | | | | | | | | | lowest and highest timestamp
BATCH_HEADER: Final = struct.Struct("<4sIIIIIQQIIIIIIqq")
_PAIR: Final = struct.Struct("<ii")  # start and end of one value
HEADER_SIZE: Final = BATCH_HEADER.size
TRAILER_SIZE: Final = 8

KEYS: Final = 1
KEY_NULLS: Final = 2
HEADERS: Final = 4
EXPIRES: Final = 8

RECORD_BYTES: Final = 16  # that a record takes besides its value: a timestamp and an offset, roughly
MAX_BATCH_BYTES: Final = 1 << 30  # int32 offsets reach 2^31; half of it leaves room for every other column


class BatchDamaged(ValueError):
    """The bytes are not a whole, unchanged batch."""


def padding(size: int) -> int:
    return -size & 7


def padded_size(size: int) -> int:
    return (size + 7) & ~7


PADDING: Final = tuple(bytes(n) for n in range(8))
USUAL_COUNT: Final = 4096  # largest count of which the offsets are cached
_MANY: Final = 32  # values of one length that are cut out in one call


@lru_cache(64)
def equal_offsets(length: int, count: int) -> bytes:
    """The offsets of values of one length, as most batches have."""
    return array("i", range(0, (count + 1) * length, length) if length else [0] * (count + 1)).tobytes()


def _cut(data: bytes, at: int, count: int, length: int) -> list[bytes]:
    """`count` values of one length, one after the other from `at` on: in one call for many of them."""
    layout, end = _values_layout(length), at + count * length
    values: list[bytes] = []
    for _ in range(count // _MANY):
        values += layout.unpack_from(data, at)
        at += layout.size
    return values + [data[start : start + length] for start in range(at, end, length)]


@lru_cache(64)
def _values_layout(length: int) -> struct.Struct:
    return struct.Struct(f"{length}s" * _MANY)


def sections_size(count: int, flags: int, header_count: int, sizes: tuple[int, int, int, int]) -> int:
    """The length of all sections between the timestamps and the trailer. `sizes`: bytes of keys, values, header names
    and header values."""
    keys, values, names, contents = sizes
    offsets = padded_size(4 * count + 4)
    size = offsets + padded_size(keys) + padded_size(values)
    if flags & EXPIRES:
        size += 8 * count
    if flags & KEY_NULLS:
        size += padded_size((count + 7) // 8)
    if flags & KEYS:
        size += offsets
    if flags & HEADERS:
        size += offsets + 2 * padded_size(4 * header_count + 4) + padded_size(names) + padded_size(contents)
    return size


class Batch:
    """A complete, checked batch. Columns are decoded on demand."""

    __slots__ = (
        "_header_bytes", "_key_bytes", "_starts", "base_offset", "count", "data", "door", "doors", "flags",
        "header_count", "max_timestamp", "min_timestamp", "partition", "position", "value_bytes",
    )  # fmt: skip

    base_offset: int
    position: int
    count: int
    flags: int
    door: int  # passed to the append; 0: none
    value_bytes: int
    _key_bytes: int
    min_timestamp: int
    max_timestamp: int

    def __init__(self, data: bytes, doors: bytes = b"") -> None:
        """`data` is exactly one batch that `check` has accepted, or that was just built. `doors` has a number for each
        record, if they came through several doors: those of a table may have, those of one append have not."""
        (
            _, _, self.flags, self.door, topic, partition, self.base_offset, self.position,
            self.count, self.header_count, self._key_bytes, self.value_bytes, names, values,
            self.min_timestamp, self.max_timestamp,
        ) = BATCH_HEADER.unpack_from(data)  # fmt: skip
        self.partition = topic << 32 | partition
        self._header_bytes = (names, values)
        self._starts: dict[str, int] | None = None
        self.data = data
        self.doors = doors

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def byte_size(self) -> int:
        """Bytes of all keys and values."""
        return self.value_bytes + self._key_bytes

    def _expected_length(self) -> int:
        """The length of a batch with this header."""
        sizes = (self._key_bytes, self.value_bytes, *self._header_bytes)
        return (
            HEADER_SIZE
            + 8 * self.count
            + sections_size(self.count, self.flags, self.header_count, sizes)
            + TRAILER_SIZE
        )

    def sections(self) -> dict[str, int]:
        """The start of each column. Cached for readers that fetch one record at a time."""
        if self._starts is None:
            self._starts = self._find_sections()
        return self._starts

    def _find_sections(self) -> dict[str, int]:
        n, flags = self.count, self.flags
        sizes = [("timestamps", 8 * n)]
        if flags & EXPIRES:
            sizes.append(("expires", 8 * n))
        if flags & KEY_NULLS:
            sizes.append(("key_validity", (n + 7) // 8))
        if flags & KEYS:
            sizes.append(("key_offsets", 4 * n + 4))
        sizes.append(("value_offsets", 4 * n + 4))
        if flags & HEADERS:
            h = self.header_count
            sizes += [("header_lists", 4 * n + 4), ("header_names", 4 * h + 4), ("header_values", 4 * h + 4)]
        names, values = self._header_bytes
        sizes += [
            ("key_bytes", self._key_bytes), ("value_bytes", self.value_bytes),
            ("header_name_bytes", names), ("header_value_bytes", values),
        ]  # fmt: skip
        starts = {}
        at = HEADER_SIZE
        for name, size in sizes:
            starts[name] = at
            at += size + padding(size)
        return starts

    def _ints(self, start: int, count: int) -> memoryview[int]:
        return memoryview(self.data)[start : start + 4 * count].cast("i")

    def timestamps(self) -> memoryview[int]:
        return memoryview(self.data)[HEADER_SIZE : HEADER_SIZE + 8 * self.count].cast("q")

    def expires(self) -> memoryview[int] | None:
        if not self.flags & EXPIRES:
            return None
        start = HEADER_SIZE + 8 * self.count
        return memoryview(self.data)[start : start + 8 * self.count].cast("q")

    def value_offsets(self) -> memoryview[int]:
        return self._ints(self.sections()["value_offsets"], self.count + 1)

    def key_offsets(self) -> memoryview[int] | None:
        if not self.flags & KEYS:
            return None
        return self._ints(self.sections()["key_offsets"], self.count + 1)

    def values(self, first: int, end: int) -> list[bytes]:
        at, data = self.sections(), self.data
        start = at["value_bytes"]
        if end - first == 1:  # a reader that fetches one record at a time
            a, b = _PAIR.unpack_from(data, at["value_offsets"] + 4 * first)
            return [data[start + a : start + b]]
        length = self.value_bytes // self.count
        if end - first >= _MANY and self._equally_long(length):
            return _cut(data, start + first * length, end - first, length)
        offsets = self._ints(at["value_offsets"], self.count + 1)[first : end + 1].tolist()
        return [data[start + a : start + b] for a, b in pairwise(offsets)]

    def _equally_long(self, length: int) -> bool:
        """Whether all values have this length, which is not 0: as in most batches of many."""
        count = self.count
        if count > USUAL_COUNT or not length or length * count != self.value_bytes:
            return False
        start = self.sections()["value_offsets"]
        return self.data[start : start + 4 * count + 4] == equal_offsets(length, count)

    def keys(self, first: int, end: int) -> list[bytes | None]:
        if not self.flags & KEYS:
            return [None] * (end - first)
        at = self.sections()
        offsets = self._ints(at["key_offsets"], self.count + 1)[first : end + 1].tolist()
        data, start = self.data, at["key_bytes"]
        keys: list[bytes | None] = [data[start + a : start + b] for a, b in pairwise(offsets)]
        if self.flags & KEY_NULLS:
            bitmap = at["key_validity"]
            for i in range(first, end):
                if not data[bitmap + (i >> 3)] >> (i & 7) & 1:
                    keys[i - first] = None
        return keys

    def headers(self, first: int, end: int) -> list[Headers]:
        if not self.flags & HEADERS:
            return [()] * (end - first)
        at, h = self.sections(), self.header_count
        lists = self._ints(at["header_lists"], self.count + 1)
        names = self._ints(at["header_names"], h + 1)
        values = self._ints(at["header_values"], h + 1)
        data, name_start, value_start = self.data, at["header_name_bytes"], at["header_value_bytes"]
        return [
            tuple(
                (
                    data[name_start + names[j] : name_start + names[j + 1]].decode(),
                    data[value_start + values[j] : value_start + values[j + 1]],
                )
                for j in range(lists[i], lists[i + 1])
            )
            for i in range(first, end)
        ]

    def slice(self, offset: int, end_offset: int, max_bytes: int, max_records: int) -> RecordSlice:
        """Records from `offset` on, below `end_offset`: at least one, and as many as both limits allow."""
        first = offset - self.base_offset
        if max_records == 1:
            return RecordSlice(self, first, first + 1)
        end = min(self.count, end_offset - self.base_offset, first + max_records)
        if end - first == self.count and self.byte_size <= max_bytes:
            return RecordSlice(self, 0, self.count)  # the whole batch, without decoding a column
        values = self.value_offsets()
        keys = self.key_offsets()
        if keys is None:
            fit = bisect_right(values, values[first] + max_bytes, first, end + 1) - 1
        else:
            limit = values[first] + keys[first] + max_bytes
            fit = bisect_right(range(end + 1), limit, first, end + 1, key=lambda i: values[i] + keys[i]) - 1
        return RecordSlice(self, first, max(fit, first + 1))


class RecordSlice:
    """Consecutive records of one batch."""

    __slots__ = ("_end", "_first", "batch", "group_end")

    def __init__(self, batch: Batch, first: int, end: int, group_end: int = 0) -> None:
        self.batch = batch
        self._first = first
        self._end = end
        self.group_end = group_end  # the global position after the commit group; 0 if unknown

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def base_offset(self) -> int:
        return self.batch.base_offset + self._first

    @property
    def end_offset(self) -> int:
        return self.batch.base_offset + self._end

    def between(self, offset: int, end_offset: int) -> RecordSlice:
        """The records from `offset` up to, not including, `end_offset`."""
        base = self.batch.base_offset
        return RecordSlice(self.batch, offset - base, end_offset - base, self.group_end)

    @property
    def position(self) -> int:
        """The global position of the first record."""
        return self.batch.position + self._first

    def byte_size(self) -> int:
        """Bytes of keys and values."""
        first, end = self._first, self._end
        if end - first == self.batch.count:
            return self.batch.byte_size
        values, keys = self.batch.value_offsets(), self.batch.key_offsets()
        size = values[end] - values[first]
        return size if keys is None else size + keys[end] - keys[first]

    def timestamps(self) -> list[int]:
        return self.batch.timestamps()[self._first : self._end].tolist()

    def packed_timestamps(self) -> bytes:
        """Eight bytes each, in native byte order."""
        return self.batch.timestamps()[self._first : self._end].tobytes()

    def values(self) -> list[bytes]:
        return self.batch.values(self._first, self._end)

    def keys(self) -> list[bytes | None]:
        return self.batch.keys(self._first, self._end)

    def headers(self) -> list[Headers]:
        return self.batch.headers(self._first, self._end)

    def expires(self) -> list[int]:
        column = self.batch.expires()
        return [0] * len(self) if column is None else column[self._first : self._end].tolist()

    def doors(self) -> bytes:
        """The number of each record's door."""
        batch = self.batch
        return batch.doors[self._first : self._end] if batch.doors else bytes((batch.door,)) * len(self)

    def first_at(self, timestamp: int) -> int | None:
        """The first offset not older than `timestamp`."""
        stamps = self.timestamps()
        if stamps == sorted(stamps):
            index = bisect_left(stamps, timestamp)
            return self.base_offset + index if index < len(stamps) else None
        return next((self.base_offset + i for i, stamp in enumerate(stamps) if stamp >= timestamp), None)


_OUTLINE: Final = struct.Struct("<16xIIQ8xI28xq")


def outline(data: bytes, at: int) -> tuple[int, int, int, int]:
    """(partition, base offset, count, highest timestamp) of the batch at `at`, for an index."""
    topic, partition, base, count, stamp = _OUTLINE.unpack_from(data, at)
    return topic << 32 | partition, base, count, stamp


def check(data: bytes) -> Batch:
    """A batch from `data`, which is exactly one. Raises BatchDamaged if the checksum or an inner length is wrong."""
    if len(data) < HEADER_SIZE + TRAILER_SIZE or crc32c(data) != INTACT:
        raise BatchDamaged("wrong checksum of a batch")
    batch = Batch(data)
    # With a correct checksum these are our own bytes; this catches bugs of a writer, not attacks.
    if data[:4] != BATCH_MAGIC or batch.count == 0 or batch._expected_length() != len(data):
        raise BatchDamaged("columns do not add up to the length of a batch")
    return batch
