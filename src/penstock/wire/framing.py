"""Framers: buffers that hold the bytes of a stream, in whatever pieces they arrive, until they complete frames.

A protocol's `frames.py` adds its header in `_cut`. There are two ways to read: `Framer` gives out all frames that a
piece completes, for sessions that handle neighbours together; `PullFramer` gives out one at a time, for sessions that
decode a frame only when its turn has come. Neither takes memory for what a header only announces, and both copy each
byte a fixed number of times, however small the pieces are.
"""

from __future__ import annotations

from typing import Generic, TypeVar

F = TypeVar("F")  # a frame
E = TypeVar("E", bound=Exception)  # the protocol's error for a bad header


class Framer(Generic[F, E]):
    """All frames that a piece completes. After a bad header it gives out nothing more: see `error`."""

    __slots__ = ("_buffer", "_needed", "buffered", "error")

    def __init__(self, needed: int) -> None:
        self.error: E | None = None  # set as soon as a bad header was read; later input is dropped
        self.buffered = 0  # bytes held
        self._buffer = bytearray()
        self._needed = needed  # bytes that the buffer must hold before anything can be done with it

    def feed(self, data: bytes) -> list[F]:
        """The frames that `data` completes, in order. Look at `error` after handling them."""
        if self.error is not None:
            return []
        if self._buffer:
            if self.buffered + len(data) < self._needed:
                self._buffer += data
                self.buffered += len(data)
                return []
            # The buffer held no whole frame before, so what remains after this is no longer than `data`.
            data = b"".join((self._buffer, data))
            self._buffer.clear()
        frames = self._cut(data)
        self.buffered = len(self._buffer)
        return frames

    def _cut(self, data: bytes) -> list[F]:
        """The whole frames at the beginning of `data`. Buffers the rest and sets `_needed`, or sets `error`."""
        raise NotImplementedError


class PullFramer(Generic[F]):
    """One frame at a time. `next` raises the protocol's error for a bad header, and then again."""

    __slots__ = ("_at", "_data", "_later", "_needed", "empty", "frame_bytes")

    def __init__(self) -> None:
        self.empty = True  # whether nothing is held; looked at by `feed` and by a `next` that gave a frame
        self.frame_bytes = 0  # of the last frame, with its header
        self._data = b""  # frames are cut from here,
        self._at = 0  # from here on;
        self._later = bytearray()  # fed since
        self._needed = 1  # bytes from `_at` on, before anything can be done

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
        """The next whole frame. Raises as soon as its header shows that there can be none."""
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
                if self._at:  # the first bytes of the next frame would keep all the earlier ones
                    self._data, self._at = self._data[self._at :], 0
                return None

    def _cut(self, data: bytes, at: int) -> F | None:
        """The frame that begins at `at`, with `_at` moved behind it; or None, with `_needed` set to more bytes than
        `data` has from `at` on."""
        raise NotImplementedError
