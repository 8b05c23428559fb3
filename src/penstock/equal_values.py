"""Values of one length, kept in the bytes in which they arrived: no object for each of them.

Most batches have values of one length. All layers can handle such a batch as a whole: its frame is decoded without
cutting the values out, the journal gets them joined, and the frame of its events gets them as they are, with their
lengths. To everybody else this is a sequence of values.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, overload

PREFIX_SIZE: Final = 4  # the length of each value, a big-endian u32, comes before it
MAX_HELD: Final = 2  # bytes kept in memory for each byte of `compact` values
_CUT: Final = 64  # values that are cut out in one call
_WORDS: Final = 8192  # joined before their prefixes are deleted: few enough to stay in the processor's caches
_LARGE: Final = 2048  # bytes of a value, from which on cutting it out takes less time than joining it to others

assert array("I").itemsize == PREFIX_SIZE


class EqualValues(Sequence[bytes]):
    """The `count` values of these blocks, of `length` bytes, each after its length. Immutable."""

    __slots__ = ("_count", "blocks", "length")

    def __init__(self, blocks: list[memoryview], count: int, length: int) -> None:
        self.blocks = blocks
        self.length = length
        self._count = count

    @staticmethod
    def of(data: bytes, start: int, count: int, length: int) -> EqualValues:
        """The values in `data` from `start` on."""
        end = start + count * (PREFIX_SIZE + length)
        assert end <= len(data), "the values exceed the data"
        return EqualValues([memoryview(data)[start:end]], count, length)

    @staticmethod
    def merged(parts: Sequence[EqualValues]) -> EqualValues:
        """The values of all parts, which have the same length; nothing is copied."""
        first = parts[0]
        assert all(part.length == first.length for part in parts), "values of several lengths"
        if len(parts) == 1:
            return first
        blocks = [block for part in parts for block in part.blocks]
        return EqualValues(blocks, sum([len(part) for part in parts]), first.length)

    @property
    def size(self) -> int:
        """Bytes of all values, without their lengths."""
        return self._count * self.length

    @property
    def held_bytes(self) -> int:
        """Bytes that this keeps in memory: its blocks may be parts of longer data."""
        return sum([memoryview(block.obj).nbytes for block in self.blocks])

    def part(self, first: int, end: int) -> EqualValues:
        """The values from `first` (inclusive) to `end` (exclusive), as far as there are so many; nothing is copied."""
        end = min(end, self._count)
        step, at, blocks = PREFIX_SIZE + self.length, 0, []
        for block in self.blocks:
            if at >= end:
                break
            count = len(block) // step
            if first < at + count:
                start, stop = max(first - at, 0), min(end - at, count)
                blocks.append(block if stop - start == count else block[start * step : stop * step])
            at += count
        return EqualValues(blocks, max(end - first, 0), self.length)

    def compact(self) -> EqualValues:
        """The same values, in bytes of their own if they would keep much more than themselves in memory."""
        size = self._count * (PREFIX_SIZE + self.length)
        if self.held_bytes <= MAX_HELD * size:
            return self
        return EqualValues.of(b"".join(self.blocks), 0, self._count, self.length)

    def pieces(self) -> Sequence[bytes]:
        """All values, one after the other: each of them, if they are large, or else many joined."""
        if self.length >= _LARGE:
            return list(self)
        if self.length % PREFIX_SIZE:
            return (b"".join(self),)
        # Each word has as many bytes as a prefix, so that all prefixes of some blocks are deleted in one pass.
        pieces, words, step = [], array("I"), 1 + self.length // PREFIX_SIZE
        for block in self.blocks:
            words.frombytes(block)
            if len(words) >= _WORDS:
                del words[::step]
                pieces.append(words.tobytes())
                words = array("I")
        del words[::step]
        pieces.append(words.tobytes())
        return pieces

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
        number = range(self._count)[index]
        return bytes(self.part(number, number + 1).blocks[0][PREFIX_SIZE:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualValues | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} values of {self.length} bytes>"

    def _cuts(self) -> Iterator[tuple[Any, ...]]:
        step = PREFIX_SIZE + self.length
        for block in self.blocks:
            count = len(block) // step
            for first in range(0, count, _CUT):
                yield _layout(self.length, min(_CUT, count - first)).unpack_from(block, first * step)


@lru_cache(64)
def _layout(length: int, count: int) -> struct.Struct:
    """The layout of `count` values of this length, without what comes before each."""
    return struct.Struct(f"{PREFIX_SIZE}x{length}s" * count)
