"""The connection of a session, in memory: what every protocol's `Peer` in the tests is built on."""

from __future__ import annotations


class Channel:
    """Keeps what is sent, and checks that nothing is asked of a connection that is closed."""

    def __init__(self, port: int = 50000) -> None:
        self.sent: list[bytes] = []  # one for each call of `send`
        self.closed = False
        self.limit: int | None = None  # bytes that this client takes before the channel is congested
        self.progressed = 0
        self._port = port
        self._taken = 0

    @property
    def peer(self) -> str:
        return f"127.0.0.1:{self._port}"

    def send(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    @property
    def congested(self) -> bool:
        return self.limit is not None and sum(map(len, self.sent)) > self.limit

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def progress(self) -> None:
        assert not self.closed
        self.progressed += 1
