"""Framers: buffers that collect the bytes of a stream, in pieces of any size, until they form complete frames.

A protocol's `frames.py` implements its header in `_cut`. There are two ways to read: `Framer` returns all frames that a
piece completes, for sessions that process neighbouring frames together; `PullFramer` returns one at a time, for
sessions that decode a frame only when it is its turn. Neither allocates memory for a length that a header merely
announces, and both copy each byte a fixed number of times, however small the pieces are.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeAlias, TypeVar

F = TypeVar("F")  # a frame
E = TypeVar("E", bound=Exception)  # the protocol's error for a bad header

Piece: TypeAlias = bytes | bytearray | memoryview

SMALL: Final = 1024  # bytes of a piece that is copied to others


class Framer(Generic[F, E]):
    """Returns all frames that a piece completes, and nothing more after a bad header: see `error`."""

    __slots__ = ("_buffer", "_needed", "buffered", "error")

    def __init__(self, needed: int) -> None:
        self.error: E | None = None  # set after a bad header; later input is dropped
        self.buffered = 0  # bytes held
        self._buffer = bytearray()
        self._needed = needed  # bytes that the buffer must hold before anything can be decoded

    def feed(self, data: bytes) -> list[F]:
        """The frames that `data` completes, in order. Check `error` after handling them."""
        if self.error is not None:
            return []
        if self._buffer:
            if self.buffered + len(data) < self._needed:
                self._buffer += data
                self.buffered += len(data)
                return []
            # The buffer held no complete frame before, so the remainder after this is no longer than `data`.
            data = b"".join((self._buffer, data))
            self._buffer.clear()
        frames = self._cut(data)
        self.buffered = len(self._buffer)
        return frames

    def _cut(self, data: bytes) -> list[F]:
        """The complete frames at the beginning of `data`. Buffers the rest and sets `_needed`, or sets `error`."""
        raise NotImplementedError


class PullFramer(Generic[F]):
    """Returns one frame at a time. `next` raises the protocol's error for a bad header, every time."""

    __slots__ = ("_at", "_data", "_later", "_later_at", "_later_bytes", "_needed", "empty", "frame_bytes")

    def __init__(self) -> None:
        self.empty = True  # the buffer is empty; updated by `feed`, and by `next` when it returns a frame
        self.frame_bytes = 0  # of the last frame, including its header
        self._data = b""  # frames are cut from this,
        self._at = 0  # starting here;
        self._later: deque[bytes | bytearray] = deque()  # fed since, except
        self._later_at = 0  # this many bytes of the first
        self._later_bytes = 0
        self._needed = 1  # bytes required after `_at` before anything can be decoded

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._data) - self._at + self._later_bytes

    def feed(self, data: bytes) -> None:
        self.empty = False
        if self._at == len(self._data) and not self._later_bytes:
            self._data, self._at = data, 0
            return
        later = self._later
        self._later_bytes += len(data)
        if len(data) >= SMALL:
            later.append(data)
        elif later and isinstance(last := later[-1], bytearray):
            last += data  # many small pieces would take much more memory than their bytes
        else:
            later.append(bytearray(data))

    def clear(self) -> None:
        self._data, self._at, self._needed = b"", 0, 1
        self._later.clear()
        self._later_at = self._later_bytes = 0
        self.empty = True

    def next(self) -> F | None:
        """The next complete frame, or None. Raises as soon as its header is known to be invalid."""
        while True:
            at = self._at
            held = len(self._data) - at
            if held >= self._needed:
                frame = self._cut(self._data, at)
                if frame is not None:
                    self.frame_bytes = self._at - at
                    return self._returned(frame)
            elif held + self._later_bytes >= self._needed:
                needed, parts = self._needed, self._take(self._needed - held)
                frame = self._join(parts)
                if frame is not None:
                    self.frame_bytes = needed
                    return self._returned(frame)
                self._data = b"".join(parts)
            else:
                if 2 * self._at > len(self._data):  # the start of the next frame would keep all earlier ones in memory
                    self._data, self._at = self._data[self._at :], 0
                return None

    def _returned(self, frame: F) -> F:
        self._needed = 1
        if self._at == len(self._data):
            if self._later:
                self._data, self._at = bytes(self._later.popleft()), self._later_at
                self._later_bytes -= len(self._data) - self._at
                self._later_at = 0
            else:
                self._data, self._at = b"", 0
                self.empty = True
        return frame

    def _take(self, missing: int) -> list[Piece]:
        """Everything before `_later`, and as many bytes of that."""
        parts: list[Piece] = [memoryview(self._data)[self._at :]]
        later = self._later
        self._data, self._at = b"", 0
        self._later_bytes -= missing
        while missing:
            piece, start = later[0], self._later_at
            end = start + missing
            if end < len(piece):
                parts.append(memoryview(piece)[start:end])
                self._later_at = end
                break
            parts.append(memoryview(piece)[start:] if start else piece)
            missing = end - len(piece)
            later.popleft()
            self._later_at = 0
        return parts

    def _join(self, parts: list[Piece]) -> F | None:  # noqa: ARG002
        """The frame that these parts are, if they are a whole one, for protocols that can spare a copy here; or None:
        then they are joined and cut."""
        return None

    def _cut(self, data: bytes, at: int) -> F | None:
        """The frame at `at`, with `_at` moved after it; or None, with `_needed` set to more bytes than `data` has after
        `at`."""
        raise NotImplementedError
