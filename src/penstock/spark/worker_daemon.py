"""The daemon that forks Spark's Python workers, for sessions with Unix domain sockets: `spark.python.daemon.module`.

Spark closes the socket of a worker that it needs no more: after a minute without work, when a query has enough rows
(`LIMIT`, `show()`), when the task fails in the JVM. What the worker still writes then goes nowhere: on TCP without
notice, on a Unix domain socket with EPIPE, for which Spark's own daemon prints a traceback. No row is lost by it: the
JVM takes a task as done only after the end of its stream, which it has read by then. Processes that plan a read are
started by Spark's own daemon in any case, and that of a stream by none.

A worker's socket also gets a buffer that holds a whole Arrow batch. With the usual one, of 208 KiB, worker and JVM wait
for each other several times in every batch: the kernel wakes a sender only when most of its buffer has been read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from socket import AF_UNIX, SO_SNDBUF, SOL_SOCKET, socket
from typing import Final

from pyspark import daemon

Worker = Callable[[socket, bool], int]

SEND_BYTES: Final = 2 << 20  # as far as net.core.wmem_max allows


def on_unix_sockets(worker: Worker) -> Worker:
    """The same, but with a large buffer, and a worker whose socket is closed just ends."""

    def run(sock: socket, authenticated: bool) -> int:
        if sock.family == AF_UNIX:  # TCP adapts its buffers
            with suppress(OSError):  # where more than the limit is an error
                sock.setsockopt(SOL_SOCKET, SO_SNDBUF, SEND_BYTES)
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return run


if __name__ == "__main__":
    setattr(daemon, "worker", on_unix_sockets(daemon.worker))  # noqa: B010 - which mypy does not allow as an assignment
    daemon.manager()
