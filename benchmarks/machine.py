"""What this machine can do without a broker: the figures that the broker's are divided by.

Also says what machine it is. Everything here uses plain system calls, and nothing of `penstock`.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from multiprocessing import get_context

from benchmarks.report import Sample


def describe(directory: str) -> dict[str, str]:
    """The conditions of a run, for its head line."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {_file_system(directory)}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _file_system(directory: str) -> str:
    """The type of the file system that holds `directory`."""
    best = ("", "unknown file system")
    real = os.path.realpath(directory)
    try:
        with open("/proc/mounts", encoding="utf-8") as file:
            for line in file:
                _, point, kind, *_ = line.split()
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0]):
                    best = (point, kind)
    except OSError:
        pass
    return best[1]


class RawFile:
    """A file with reserved space, as a journal file is, written and synced in a loop.

    With `zeroed`, its blocks were written before: the file system then has nothing of its own to write at a sync.
    """

    def __init__(self, directory: str, size: int, *, zeroed: bool = False) -> None:
        self._path = os.path.join(directory, "raw-zeroed" if zeroed else "raw")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._size = size
        self._zeroed = zeroed
        self._at = 0
        self._prepare()

    def _prepare(self) -> None:
        os.ftruncate(self._fd, 0)
        if self._zeroed:
            for at in range(0, self._size, 1 << 20):
                os.pwrite(self._fd, bytes(min(1 << 20, self._size - at)), at)
        else:
            os.posix_fallocate(self._fd, 0, self._size)
        os.fsync(self._fd)
        self._at = 0

    def synced(self, size: int, seconds: float) -> Sample:
        """`size` bytes, `fdatasync`, and again, one after the other. Preparing a full file anew is not counted."""
        data = os.urandom(size)
        fd, latencies = self._fd, []
        clock = time.perf_counter
        spent = 0.0
        while spent < seconds:
            if self._at + size > self._size:
                self._prepare()
            began = clock()
            os.pwrite(fd, data, self._at)
            os.fdatasync(fd)
            took = clock() - began
            self._at += size
            spent += took
            latencies.append(took)
        return Sample(len(latencies), spent, latencies)

    def close(self) -> None:
        os.close(self._fd)
        os.unlink(self._path)


def read_raw(paths: Sequence[str], piece: int) -> tuple[int, float]:
    """Read these files from start to end in pieces: (bytes, seconds)."""
    total = 0
    began = time.perf_counter()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            at = 0
            while data := os.pread(fd, piece, at):
                at += len(data)
            total += at
        finally:
            os.close(fd)
    return total, time.perf_counter() - began


class Echo:
    """A process that reads requests of a fixed size from one connection and answers each with a few bytes: what a
    round trip over loopback costs when the server does nothing at all."""

    def __init__(self, request_size: int, reply_size: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._process = get_context("fork").Process(
            target=_echo, args=(listener, request_size, bytes(reply_size)), daemon=True
        )
        self._process.start()
        self._socket = socket.create_connection(listener.getsockname())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.close()
        self._request = bytes(request_size)

    def round_trips(self, seconds: float) -> Sample:
        clock, peer, request = time.perf_counter, self._socket, self._request
        latencies = []
        began = now = clock()
        while now - began < seconds:
            sent = now
            peer.sendall(request)
            peer.recv(4096)
            now = clock()
            latencies.append(now - sent)
        return Sample(len(latencies), now - began, latencies)

    def close(self) -> None:
        self._socket.close()
        self._process.join(5)


def _echo(listener: socket.socket, size: int, reply: bytes) -> None:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(size)
    while True:
        have = 0
        while have < size:
            received = peer.recv_into(memoryview(buffer)[have:])
            if not received:
                return
            have += received
        peer.sendall(reply)
