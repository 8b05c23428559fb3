"""Ports that stay free while nobody has them: a broker that was killed finds its own again."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 20_000, 30_000  # below those that the system gives to whoever asks for any

_next = itertools.count(os.getpid() * 7)


def steady_udp_port() -> int:
    return steady_port(socket.SOCK_DGRAM)


def steady_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One of this machine that nobody uses, and that no other program is given by chance."""
    for number in itertools.islice(_next, LAST - FIRST):
        port = FIRST + number % (LAST - FIRST)
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError("every port is taken")
