"""Framers: buffers that collect the bytes of a stream, in pieces of any size, until they form complete frames.

A protocol's `frames.py` implements its header in `_cut`. There are two ways to read: `Framer` returns all frames that a
piece completes, for sessions that process neighbouring frames together; `PullFramer` returns one at a time, for
sessions that decode a frame only when it is its turn. Neither allocates memory for a length that a header merely
announces, and both copy each byte a fixed number of times, however small the pieces are.
"""

from __future__ import annotations

from typing import Generic, TypeVar

F = TypeVar("F")  # a frame
E = TypeVar("E", bound=Exception)  # the protocol's error for a bad header


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

    __slots__ = ("_at", "_data", "_later", "_needed", "empty", "frame_bytes")

    def __init__(self) -> None:
        self.empty = True  # the buffer is empty; updated by `feed`, and by `next` when it returns a frame
        self.frame_bytes = 0  # of the last frame, including its header
        self._data = b""  # frames are cut from this,
        self._at = 0  # starting here;
        self._later = bytearray()  # fed since
        self._needed = 1  # bytes required after `_at` before anything can be decoded

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._data) - self._at + len(self._later)

    def feed(self, data: bytes) -> None:
        self.empty = False
        if self._at == len(self._data) and not self._later:
            self._data, self._at = data, 0
        else:
            self._later += data

    def clear(self) -> None:
        self._data, self._at, self._needed = b"", 0, 1
        self._later.clear()
        self.empty = True

    def next(self) -> F | None:
        """The next complete frame, or None. Raises as soon as its header is known to be invalid."""
        while True:
            at = self._at
            held = len(self._data) - at
            if held >= self._needed:
                frame = self._cut(self._data, at)
                if frame is not None:
                    self._needed = 1
                    self.frame_bytes = self._at - at
                    if self._at == len(self._data):
                        self._data, self._at = b"", 0
                        self.empty = not self._later
                    return frame
            elif held + len(self._later) >= self._needed:
                self._data = b"".join((memoryview(self._data)[self._at :], self._later))
                self._at = 0
                self._later.clear()
            else:
                if self._at:  # the first bytes of the next frame would keep all earlier ones in memory
                    self._data, self._at = self._data[self._at :], 0
                return None

    def _cut(self, data: bytes, at: int) -> F | None:
        """The frame at `at`, with `_at` moved after it; or None, with `_needed` set to more bytes than `data` has after
        `at`."""
        raise NotImplementedError
