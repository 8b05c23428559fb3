"""At level `memory` a group is readable and acknowledged when it is sealed. Until it is written, and indexed, whatever
looks for records by time or recovers the state has to find it in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from tests.crash.simdisk import SimDisk, SimFile
from tests.log.harness import SECOND, A, B, read_all, state, values

from penstock.log.committer import INLINE_BYTES, Log, ThreadCommitter
from penstock.log.engine import Bounds, Durability, GroupState, Records
from penstock.log.errors import LogReadOnly
from penstock.log.file_engine import FileEngine
from penstock.log.open_group import PendingGroup
from penstock.log.settings import LogSettings

START = 1_700_000_000 * SECOND
SETTINGS = LogSettings(durability=Durability.MEMORY, file_bytes=16 << 10)


class HeldFile(SimFile):
    """Writes what is longer than its header when the disk lets it."""

    def write_parts(self, position: int, parts: Sequence[bytes]) -> None:
        assert isinstance(self._disk, HeldDisk)
        self._disk.writing.set()
        assert self._disk.may_write.wait(30), "the test forgot to let the disk write"
        super().write_parts(position, parts)


class HeldDisk(SimDisk):
    """A disk that writes no large group until the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.may_write = threading.Event(), threading.Event()

    def create(self, path: str, size: int) -> SimFile:
        made = super().create(path, size)
        return HeldFile(self, made._inode, path, writable=True)


class Steps:
    """Seals, writes and completes a group when told to, and tells of work beside the groups, which it does at once."""

    def __init__(self) -> None:
        self._log: Log
        self.on_background: Callable[[], None] = lambda: None

    def attach(self, log: Log) -> None:
        self._log = log

    def request(self) -> None:
        """Nothing: the test commits."""

    def seal(self) -> PendingGroup:
        sealed = self._log.seal()
        assert isinstance(sealed, PendingGroup)
        return sealed

    def write(self, sealed: PendingGroup) -> Exception | None:
        try:
            self._log.write(sealed)
        except OSError as error:
            return error
        return None

    def complete(self, sealed: PendingGroup, error: Exception | None) -> None:
        self._log.complete(sealed, error)

    def commit(self) -> None:
        sealed = self.seal()
        self.complete(sealed, self.write(sealed))

    def run_in_background(self, work: Callable[[], None]) -> None:
        self.on_background()
        work()

    def drain(self) -> None:
        while (sealed := self._log.seal()) is not None:
            self.complete(sealed, self.write(sealed))


class Opened:
    """An engine at level `memory`, whose groups are committed step by step."""

    def __init__(self) -> None:
        self.disk, self.committer, self.now = SimDisk(), Steps(), START
        self.engine = FileEngine(self.disk, SETTINGS, committer=self.committer, clock=lambda: self.now)

    def append(self, *payloads: bytes, event: bytes) -> None:
        self.now += SECOND
        self.engine.append([Records(A, payloads)], [event])

    def found(self) -> tuple[list[int | None], list[bytes]]:
        """The offset at each of the times at which something was appended, and the events."""
        times = range(START + SECOND, self.now + 1, SECOND)
        return [self.engine.offset_at(A, at) for at in times], list(self.engine.recover().events)


@pytest.fixture
def opened() -> Opened:
    return Opened()


def test_what_the_thread_is_writing_is_found_by_time_and_recovered() -> None:
    loop, disk, now = asyncio.new_event_loop(), HeldDisk(), START
    engine = FileEngine(disk, SETTINGS, committer=ThreadCommitter(loop), clock=lambda: now)

    async def test() -> None:
        nonlocal now
        engine.append([Records(A, [b"small"])], [b"first"])
        await asyncio.sleep(0)  # so small a group is written in its turn
        now += SECOND
        large = engine.append([Records(A, [b"x", b"l" * INLINE_BYTES]), Records(B, [b"b"])], [b"second"])
        await asyncio.to_thread(disk.writing.wait, 30)
        assert state(large) is GroupState.COMMITTED and engine.bounds(A) == Bounds(0, 3)
        found = await asyncio.to_thread(lambda: [engine.offset_at(A, at) for at in (START, START + 1, now, now + 1)])
        assert found == [0, 1, 1, None]
        assert engine.offset_at(B, START) == 0
        assert list(engine.recover().events) == [b"first", b"second"]
        disk.may_write.set()

    try:
        loop.run_until_complete(test())
    finally:
        disk.may_write.set()
        engine.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_a_group_is_found_between_any_two_steps_of_its_commit(opened: Opened) -> None:
    expected: tuple[list[int | None], list[bytes]] = ([], [])
    for i in range(40):  # several files
        opened.append(b"%d" % i, b"v" * 900, event=b"e%d" % i)
        expected[0].append(2 * i)
        expected[1].append(b"e%d" % i)
        sealed = opened.committer.seal()
        assert opened.found() == expected
        error = opened.committer.write(sealed)
        assert error is None and opened.found() == expected
        opened.committer.complete(sealed, error)
        assert opened.found() == expected
    assert opened.engine.segment_count(A) > 1


def test_a_group_is_found_while_it_goes_into_the_index(opened: Opened) -> None:
    """A reader's thread may look at any moment; here, after the next file has begun and before the index has it."""
    seen: list[int | None] = []
    opened.committer.on_background = lambda: seen.append(opened.engine.offset_at(A, opened.now))
    for i in range(12):
        opened.append(b"v" * 4000, event=b"e")
        opened.committer.commit()
        assert set(seen) <= {i}
        seen.clear()
    assert opened.engine.segment_count(A) > 1, "no file was full: this tests nothing"


def test_what_a_trim_has_removed_is_not_found_in_memory(opened: Opened) -> None:
    opened.append(b"0", b"1", b"2", event=b"e")
    opened.engine.trim({A: 1})
    opened.committer.seal()
    assert opened.found()[0] == [1]


def test_the_state_is_recovered_when_a_group_that_was_acknowledged_cannot_be_written(opened: Opened) -> None:
    """The group is gone after a restart. Until then its records are readable, so its events have to be there too."""
    opened.append(b"written", event=b"first")
    opened.committer.commit()
    opened.append(b"acknowledged", event=b"second")
    sealed = opened.committer.seal()
    recovered: list[bytes] = []
    behind = opened.engine.append([Records(A, [b"behind"])], [b"third"])
    behind.group.on_done(lambda _: recovered.extend(opened.engine.recover().events))
    opened.disk.fail("write")
    opened.committer.complete(sealed, opened.committer.write(sealed))
    assert state(behind) is GroupState.FAILED and isinstance(behind.group.error, LogReadOnly)
    assert recovered == [b"first", b"second"]
    assert values(read_all(opened.engine, A)) == [b"written", b"acknowledged"]
    assert opened.found() == ([0, 1], [b"first", b"second"])
