"""Values of one length, kept in the bytes in which they arrived: no object for each of them.

Most batches have values of one length. All layers can handle such a batch as a whole: its frame is decoded without
cutting the values out, the journal gets them joined, and the frame of its events gets them as they are, with their
lengths. To everybody else this is a sequence of values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, overload

PREFIX_SIZE: Final = 4  # the length of each value, a big-endian u32, comes before it
_CUT: Final = 64  # values that are cut out in one call


class EqualValues(Sequence[bytes]):
    """`count` values of `length` bytes, each after its length, in `data` from `start` on. Immutable."""

    __slots__ = ("_count", "_data", "_start", "length")

    def __init__(self, data: bytes, start: int, count: int, length: int) -> None:
        assert start + count * (PREFIX_SIZE + length) <= len(data), "the values exceed the data"
        self.length = length
        self._data = data
        self._start = start
        self._count = count

    @classmethod
    def merged(cls, blocks: Sequence[EqualValues]) -> EqualValues:
        """The values of all blocks, which have the same length."""
        first = blocks[0]
        assert all(block.length == first.length for block in blocks), "values of several lengths"
        if len(blocks) == 1:
            return first
        data = b"".join([block.prefixed for block in blocks])
        return cls(data, 0, sum([len(block) for block in blocks]), first.length)

    @property
    def size(self) -> int:
        """Bytes of all values, without their lengths."""
        return self._count * self.length

    @property
    def prefixed(self) -> memoryview:
        """All values, each after its length."""
        start = self._start
        return memoryview(self._data)[start : start + self._count * (PREFIX_SIZE + self.length)]

    def part(self, first: int, end: int) -> EqualValues:
        """The values from `first` (inclusive) to `end` (exclusive), as far as there are so many; nothing is copied."""
        return EqualValues(self._data, self._at(first), max(min(end, self._count) - first, 0), self.length)

    def detached(self) -> EqualValues:
        """The same values in bytes of their own: what is left of a large frame does not keep all of it in memory."""
        return EqualValues(bytes(self.prefixed), 0, self._count, self.length)

    def joined(self) -> bytes:
        """All values, one after the other."""
        return b"".join(chain.from_iterable(self._cuts()))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._cuts())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            first, end, step = index.indices(self._count)
            if step != 1:
                return list(self)[index]
            return self.part(first, end)
        at = self._at(range(self._count)[index]) + PREFIX_SIZE
        return self._data[at : at + self.length]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualValues | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} values of {self.length} bytes>"

    def _at(self, index: int) -> int:
        return self._start + index * (PREFIX_SIZE + self.length)

    def _cuts(self) -> Iterator[tuple[Any, ...]]:
        for first in range(0, self._count, _CUT):
            yield _layout(self.length, min(_CUT, self._count - first)).unpack_from(self._data, self._at(first))


@lru_cache(64)
def _layout(length: int, count: int) -> struct.Struct:
    """The layout of `count` values of this length, without what comes before each."""
    return struct.Struct(f"{PREFIX_SIZE}x{length}s" * count)
