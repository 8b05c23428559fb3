"""The file engine keeps the contract: on a simulated disk and on a real one, inline and with its thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.contract import EngineContract
from tests.log.harness import SECOND, A, B, Harness, read_all, values

from penstock.log.committer import InlineCommitter, ThreadCommitter
from penstock.log.engine import Durability, Engine, Records, Recovered, Retention
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import Files, OsFiles

SMALL = LogSettings(file_bytes=16 << 10, tail_bytes=4096, snapshot_bytes=8 << 10)
START = 1_700_000_000_000_000


class InlineHarness:
    def __init__(self, files: Files, settings: LogSettings) -> None:
        self.now = START
        self._files = files
        self._settings = settings
        self._open()

    def _open(self) -> None:
        self._committer = InlineCommitter()
        self.engine: Engine = FileEngine(self._files, self._settings, committer=self._committer, clock=lambda: self.now)

    def settle(self) -> None:
        while self._committer.run():
            pass

    def reopen(self) -> Recovered:
        self.engine.close()
        self._open()
        return self.engine.recover()

    def close(self) -> None:
        self.engine.close()


class ThreadHarness:
    """The engine with its thread, on a loop that runs only while the test waits."""

    def __init__(self, files: Files, settings: LogSettings) -> None:
        self.now = START
        self._files = files
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._open()

    def _open(self) -> None:
        committer = ThreadCommitter(self._loop)
        self.engine: Engine = FileEngine(self._files, self._settings, committer=committer, clock=lambda: self.now)

    def settle(self) -> None:
        async def wait() -> None:
            give_up = time.monotonic() + 30
            for _ in range(3):  # callbacks may append again
                await asyncio.sleep(0)
                while self.engine.pending_bytes:
                    assert time.monotonic() < give_up, "the committer does not get on"
                    await asyncio.sleep(0.0005)

        self._loop.run_until_complete(wait())

    def reopen(self) -> Recovered:
        self.engine.close()
        self._open()
        return self.engine.recover()

    def close(self) -> None:
        self.engine.close()
        self._loop.close()


class TestInlineOnSimulatedDisk(EngineContract):
    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = InlineHarness(SimDisk(), SMALL)
        yield harness
        harness.close()

    def test_retention_removes_whole_files(self, log: Harness) -> None:
        for _ in range(200):
            log.now += SECOND
            log.engine.append([Records(A, [b"v" * 400])])
            log.settle()
        before = log.engine.segment_count(A)
        log.engine.maintain(log.now, lambda _: Retention(seconds=50))
        log.settle()
        assert 100 < log.engine.bounds(A).start <= 150
        assert log.engine.segment_count(A) < before
        log.reopen()
        assert 100 < log.engine.bounds(A).start <= 150
        assert len(read_all(log.engine, A)) == 200 - log.engine.bounds(A).start

    def test_a_partition_without_limits_keeps_the_files_it_shares(self, log: Harness) -> None:
        for i in range(200):
            log.now += SECOND
            log.engine.append([Records(A, [b"v" * 400]), Records(B, [b"%d" % i])])
            log.settle()
        log.engine.maintain(log.now, lambda p: Retention(seconds=50) if p == A else Retention())
        log.settle()
        log.reopen()
        assert log.engine.bounds(A).start > 100
        assert values(read_all(log.engine, B)) == [b"%d" % i for i in range(200)]


class TestInlineInMemoryTail(EngineContract):
    """With a memory tail that holds everything: no read touches the disk."""

    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = InlineHarness(SimDisk(), LogSettings(file_bytes=1 << 20))
        yield harness
        harness.close()

    def test_a_live_reader_does_not_touch_the_disk(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        assert log.engine.read(A, 0, 1000, 1000).ready


class TestInlineOnRealDisk(EngineContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Harness]:
        harness = InlineHarness(OsFiles(str(tmp_path)), SMALL)
        yield harness
        harness.close()


class TestThreadOnRealDisk(EngineContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Harness]:
        harness = ThreadHarness(OsFiles(str(tmp_path)), SMALL)
        yield harness
        harness.close()


class TestThreadOnSimulatedDisk(EngineContract):
    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = ThreadHarness(SimDisk(), SMALL)
        yield harness
        harness.close()


class TestWritten(EngineContract):
    """Level `written`: an acknowledgement needs no sync."""

    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = ThreadHarness(SimDisk(), LogSettings(durability=Durability.WRITTEN, file_bytes=16 << 10))
        yield harness
        harness.close()


class TestMemory(EngineContract):
    """Level `memory`: an acknowledgement needs not even a write."""

    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = ThreadHarness(SimDisk(), LogSettings(durability=Durability.MEMORY, file_bytes=16 << 10))
        yield harness
        harness.close()
