"""The daemon that forks Spark's Python workers, for sessions with Unix domain sockets: `spark.python.daemon.module`.

Spark closes the socket of a worker that it needs no more: after a minute without work, when a query has enough rows
(`LIMIT`, `show()`), when the task fails in the JVM. What the worker still writes then goes nowhere: on TCP without
notice, on a Unix domain socket with EPIPE, for which Spark's own daemon prints a traceback. No row is lost by it: the
JVM takes a task as done only after the end of its stream, which it has read by then. Processes that plan a read are
started by Spark's own daemon in any case, and that of a stream by none.
"""

from __future__ import annotations

from collections.abc import Callable
from socket import socket

from pyspark import daemon

Worker = Callable[[socket, bool], int]


def quiet(worker: Worker) -> Worker:
    """The same, but a worker whose socket is closed just ends."""

    def run(sock: socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return run


if __name__ == "__main__":
    setattr(daemon, "worker", quiet(daemon.worker))  # noqa: B010 - which mypy does not allow as an assignment
    daemon.manager()
