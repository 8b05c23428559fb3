"""A broker over a real engine on a simulated disk, with a clock that the test moves and commits that it starts."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from typing import Any

from tests.crash.simdisk import Fault, SimDisk

from penstock.broker.broker import Broker
from penstock.broker.publications.staging import Staging
from penstock.broker.security.passwords import PasswordCost
from penstock.broker.security.user import UserPolicy
from penstock.broker.settings import BrokerSettings
from penstock.log.committer import InlineCommitter
from penstock.log.engine import CommitGroup, GroupState
from penstock.log.file_engine import FileEngine, LogSettings

_POLICIES = {field.name for field in dataclasses.fields(BrokerSettings)}
_RUNTIME = {"executor", "scheduler"}
CHEAP = PasswordCost(1, 8)  # so that tests need not wait for argon2
START = 1_700_000_000_000_000  # µs


class BrokerFixture:
    """`options` are fields of `BrokerSettings`, or dependencies of the broker like `executor`."""

    def __init__(self, settings: LogSettings | None = None, **options: Any) -> None:
        self.now = START
        self.elapsed = 0
        self.disk = SimDisk()
        self.settings = settings or LogSettings(file_bytes=64 << 10)  # which every start fills, or reads to its end
        self.options = options
        self.open()

    def open(self) -> None:
        self.committer = InlineCommitter()
        self.engine = FileEngine(self.disk, self.settings, committer=self.committer, clock=lambda: self.now)
        policies = {key: value for key, value in self.options.items() if key in _POLICIES}
        policies["users"] = policies.get("users", UserPolicy())._replace(password_cost=CHEAP)
        runtime = {key: value for key, value in self.options.items() if key in _RUNTIME}
        self.broker = Broker(
            self.engine,
            BrokerSettings(**policies),
            clock=lambda: self.now,
            monotonic=lambda: self.elapsed,
            timer=lambda: self.elapsed * 1000,
            staging=Staging(self.disk),
            **runtime,
        )

    def commit(self) -> None:
        """Commit what was appended, and what was appended because of that, as often as needed."""
        while self.committer.run():
            pass

    def restart(self) -> None:
        """End the process without a word and start it again."""
        self.disk = self.disk.kill()
        self.open()

    def fill_disk(self) -> Fault:
        """Writes to the journal find no space, until the answer's `count` is set to 0."""
        return self.disk.fail("write", error=errno.ENOSPC, count=None, path="journal/")

    def break_disk(self) -> Fault:
        return self.disk.fail("sync", count=None, path="journal/")

    def free_disk(self, fault: Fault) -> None:
        fault.count = 0
        self.broker.maintain(self.now)
        assert self.broker.health().writable

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * 1_000_000)
        self.elapsed += int(seconds * 1_000_000)


def committed(group: CommitGroup) -> bool:
    return group.state is GroupState.COMMITTED


def later(calls: list[tuple[Callable[[], None], Callable[[], None]]]) -> Callable[..., None]:
    """An offload whose work waits in `calls` until the test runs it."""
    return lambda work, done: calls.append((work, done))


class LaterScheduler:
    """A scheduler whose callbacks wait in `calls` until the test runs them, among those of `later`."""

    def __init__(self, calls: list[tuple[Callable[[], None], Callable[[], None]]]) -> None:
        self._calls = calls

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self._calls.append((_nothing, callback))


def _nothing() -> None:
    """The work of a callback that only waits for its turn."""
