"""A real broker in this process with FlyMQ's door alone, on a thread of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.clients.scripted_server import LoopThread

from penstock.broker.security.access import ADMINISTRATOR
from penstock.config.layers import load
from penstock.server.doors import BUILT
from penstock.server.server import Server


class RunningServer(LoopThread):
    """All that `penstock serve` is made of."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        flags = {f"listen.{name}": "off" for name in BUILT} | {
            "data_dir": str(data_dir),
            "listen.flymq": "127.0.0.1:0",
            "log.durability": "memory",
            "log.file_bytes": "1MiB",
            "performance.busy_poll_us": "0",
            "tables.enabled": "false",  # by a process beside the broker
        }
        self._config = load(flags=flags | {name.replace("__", "."): value for name, value in settings.items()})
        self.port = 0

    def __enter__(self) -> Self:
        super().__enter__()
        self.server = Server(self._config)
        self.run(self.server.start())
        self.port = int(self.server.addresses()["flymq"].rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.server.stop())
        super().__exit__(kind, error, trace)

    def add_user(self, name: str, password: str, *roles: str) -> None:
        def add() -> None:
            assert self.server.broker is not None
            deferred = self.server.broker.users.create(ADMINISTRATOR, "default", name, password, list(roles))
            deferred.run()
            deferred.finish()

        self.call(add)
