"""An engine that owns a replica, on a loop that runs only while the test waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.log.engine import Engine, Recovered
from penstock.log.files import Files
from penstock.log.kafka.checkpoint import JournalSource
from penstock.log.kafka.committer import CommitterSettings
from penstock.log.kafka.journal import Journal
from penstock.log.kafka.opening import ReplicaOpening
from penstock.log.settings import LogSettings

SMALL = LogSettings(file_bytes=16 << 10, tail_bytes=4096, snapshot_bytes=8 << 10)
START = 1_700_000_000_000_000
QUIET = CommitterSettings(
    heartbeat_seconds=0, unknown_after_seconds=30, checkpoint_seconds=0.05, upkeep_seconds=0, poll_seconds=0.01
)


def source(name: str = "test") -> JournalSource:
    return JournalSource("cluster", "topic", name, 0)


class ReplicaHarness:
    def __init__(
        self,
        journal: Journal,
        files: Files,
        settings: LogSettings = SMALL,
        committing: CommitterSettings = QUIET,
        name: str = "test",
    ) -> None:
        self.now = START
        self.journal, self.files = journal, files
        self.lost: list[str] = []
        self._settings, self._committing, self._name = settings, committing, name
        self.loop = asyncio.new_event_loop()
        try:
            self._open()
        except BaseException:
            self.loop.close()
            raise

    def _open(self) -> None:
        self.opening = ReplicaOpening(
            *(self.journal, source(self._name), self.files, self._settings, self.loop, lambda: self.now),
            self._committing,
            self.lost.append,
        )
        self.opening.replica.catch_up()
        assert self.opening.own(b"{}")
        self.engine: Engine = self.opening.engine

    def settle(self) -> None:
        self.wait(lambda: not self.engine.pending_bytes)

    def wait(self, done: Callable[[], bool]) -> None:
        async def turn() -> None:
            give_up = time.monotonic() + 20
            for _ in range(3):  # callbacks may append again
                await asyncio.sleep(0)
                while not done():
                    assert time.monotonic() < give_up, "the committer does not get on"
                    await asyncio.sleep(0.0005)

        self.loop.run_until_complete(turn())

    def reopen(self) -> Recovered:
        self.engine.close()
        self._open()
        return self.engine.recover()

    def kill(self) -> None:
        """The process ends, and closes nothing."""
        committer = self.opening._committer
        committer._stopped = True
        committer._answers.join()
        committer._background.stop()  # a thread of this process, which would go on with a disk that is another's then
        self.loop.close()

    def close(self) -> None:
        self.engine.close()
        self.loop.close()
