"""The service manager's socket: tells systemd when the broker is ready, and when it stops (`Type=notify`).

Without NOTIFY_SOCKET in the environment nothing is sent. See sd_notify(3).
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Notify the service manager, if there is one. Errors are ignored: the broker can serve without it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address[0] == "@":
        address = "\0" + address[1:]  # an abstract socket
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state.encode(), address)
