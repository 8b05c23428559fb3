"""Disks that fail and fill up, and clocks that jump: in the file interface, and once for real."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.crash.rustlog_load import Connection, ServerError
from tests.crash.schedule import LaggingCommitter
from tests.crash.simdisk import SimDisk
from tests.launcher import RestartableBroker
from tests.log.harness import SECOND, read_all, values

from penstock.broker.runtime.clock import RetentionClock
from penstock.log.committer import InlineCommitter
from penstock.log.committer import Log as CommittedLog
from penstock.log.engine import Appended, Durability, GroupState, Producer, Records, Retention, partition_id
from penstock.log.errors import CommitFailed, LogFull, LogReadOnly
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.open_group import PendingGroup

A, B = partition_id(1, 0), partition_id(1, 1)
SETTINGS = LogSettings(file_bytes=8192, group_bytes=4096, tail_bytes=0, snapshot_bytes=1 << 20)
START = 1_700_000_000_000_000


class Log:
    """An engine on a simulated disk, with a clock to turn."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        settings: LogSettings = SETTINGS,
        committer: InlineCommitter | Beside | None = None,
    ) -> None:
        self.disk = disk or SimDisk()
        self.now = START
        self.committer = committer or InlineCommitter()
        self.engine = FileEngine(self.disk, settings, committer=self.committer, clock=lambda: self.now)

    def append(self, *payloads: bytes, events: tuple[bytes, ...] = ()) -> Appended:
        return self.engine.append([Records(A, payloads)], events)

    def commit(self, *payloads: bytes) -> GroupState:
        appended = self.append(*payloads)
        self.committer.run()
        return appended.group.state

    def maintain(self, retention: Retention | None = None) -> None:
        self.engine.maintain(self.now, lambda _: retention or Retention())
        self.committer.run()


# -- a failed sync or write is final


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_failed_sync_or_write_makes_the_log_read_only(operation: str) -> None:
    log = Log()
    assert log.commit(b"before") is GroupState.COMMITTED
    log.disk.fail(operation, count=1)
    failed = log.append(b"lost", events=(b"lost",))
    waiting = log.append(b"x" * SETTINGS.group_bytes)  # a group of its own, behind that
    log.committer.run()
    for appended, error in ((failed, CommitFailed), (waiting, LogReadOnly)):
        assert appended.group.state is GroupState.FAILED
        assert type(appended.group.error) is error
    for _ in range(2):  # the disk works again, and still nothing is written: what a failed sync lost is unknown
        with pytest.raises(LogReadOnly, match=r"read-only until the broker is started again.*Input/output error"):
            log.append(b"refused")
        log.maintain()
    health = log.engine.health()
    assert not health.writable
    assert "Input/output error" in health.reason
    assert values(read_all(log.engine, A)) == [b"before"]
    assert list(log.engine.recover().events) == []
    log.engine.close()


def written_and_failed(log: Log, payload: bytes) -> type[Exception] | None:
    """The error of a group with this payload; None if it is committed."""
    appended = log.append(payload)
    log.committer.run()
    return None if appended.group.error is None else type(appended.group.error)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_the_outcome_is_unknown_and_the_group_may_well_be_there(error: int) -> None:
    log = Log()
    log.commit(b"before")
    log.disk.fail("sync", error=error)
    assert written_and_failed(log, b"doubtful") is CommitFailed
    with pytest.raises(LogReadOnly):
        log.append(b"refused")
    assert values(read_all(Log(log.disk.kill()).engine, A)) == [b"before", b"doubtful"]


def test_what_was_refused_or_waited_behind_a_failure_is_never_there() -> None:
    for seed in range(20):
        log = Log()
        log.commit(b"before")
        log.disk.fail("sync")
        doubtful, waiting = log.append(b"doubtful"), log.append(b"x" * SETTINGS.group_bytes)
        log.committer.run()
        assert type(doubtful.group.error) is CommitFailed
        assert type(waiting.group.error) is LogReadOnly
        disk = log.disk.kill() if seed == 0 else log.disk.crash(Random(seed))
        assert values(read_all(Log(disk).engine, A)) in ([b"before"], [b"before", b"doubtful"])


def test_a_write_that_a_full_disk_cut_short_is_surely_not_there() -> None:
    log = Log(settings=replace(SETTINGS, file_bytes=1 << 16, group_bytes=1 << 16))
    log.commit(b"before")
    log.disk.tear_write(errno.ENOSPC, 1500)
    assert written_and_failed(log, b"torn" * 1000) is LogFull
    assert values(read_all(Log(log.disk.kill()).engine, A)) == [b"before"]


def test_a_failure_before_the_group_was_written_is_no_doubt() -> None:
    log = Log()
    log.commit(b"x" * 3000)
    log.disk.fail("sync")  # of the file that is closed, before the next one is begun
    assert written_and_failed(log, b"y" * 3000) is LogReadOnly
    assert values(read_all(Log(log.disk.kill()).engine, A)) == [b"x" * 3000]


def test_a_sync_that_somebody_else_saw_fail_acknowledges_nothing() -> None:
    """The system tells the failure once: here to the one who keeps a snapshot, while a group is on its way."""
    log = Log(settings=replace(SETTINGS, snapshot_bytes=1), committer=Beside())
    beside = log.committer
    assert isinstance(beside, Beside)
    log.engine.snapshot_from(lambda: b"state")
    log.commit(b"before")
    log.commit(b"too")  # now a snapshot is to be kept, in the other thread
    failed = log.append(b"on its way")
    sealed = log.engine.seal()
    assert sealed is not None
    log.disk.fail("sync", path="journal/new.tmp")  # as the first file was called when it was made
    beside.start()
    beside.join()
    beside.complete(sealed)
    assert type(failed.group.error) is CommitFailed
    log.disk.faults.clear()


def test_after_a_failed_sync_the_log_opens_again_with_all_that_was_acknowledged() -> None:
    seen = set()
    for seed in range(40):
        log = Log()
        log.commit(b"before")
        log.disk.fail("sync")
        assert log.commit(b"doubtful") is GroupState.FAILED
        again = Log(log.disk.crash(Random(seed)))
        found = values(read_all(again.engine, A))
        assert found in ([b"before"], [b"before", b"doubtful"])  # nobody was told that it is there, or that it is not
        seen.add(len(found))
        assert again.commit(b"after") is GroupState.COMMITTED
        assert values(read_all(again.engine, A)) == [*found, b"after"]
    assert seen == {1, 2}


def test_a_failed_append_of_a_producer_may_be_sent_again_after_reopening() -> None:
    for seed in range(20):
        log = Log()
        log.disk.fail("sync")
        appended = log.engine.append([Records(A, [b"once"])], producer=Producer(b"p", 0, 0))
        log.committer.run()
        assert appended.group.state is GroupState.FAILED
        again = Log(log.disk.crash(Random(seed)))
        again.engine.append([Records(A, [b"once"])], producer=Producer(b"p", 0, 0))
        again.committer.run()
        assert values(read_all(again.engine, A)) == [b"once"]


@pytest.mark.parametrize("operation", ["create", "rename", "sync_directory"])
def test_a_failure_while_a_new_file_is_made_acknowledges_nothing(operation: str) -> None:
    log = Log()
    log.disk.fail(operation, count=None, path="journal")
    log.commit(b"x" * 3000)
    assert log.commit(b"y" * 3000) is GroupState.FAILED
    assert values(read_all(log.engine, A)) == [b"x" * 3000]
    again = Log(log.disk.crash(Random(1)))
    assert values(read_all(again.engine, A)) == [b"x" * 3000]
    assert again.commit(b"z" * 3000) is GroupState.COMMITTED


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_snapshot_or_index_that_cannot_be_written_is_no_failure(operation: str) -> None:
    log = Log(settings=replace(SETTINGS, snapshot_bytes=1))
    log.engine.snapshot_from(lambda: b"state")
    log.disk.fail(operation, path="snapshots/", count=None)
    log.disk.fail(operation, path="index", count=None)
    for i in range(8):
        assert log.commit(b"%d" % i * 1500) is GroupState.COMMITTED
    assert log.engine.health().writable
    assert len(read_all(log.engine, A)) == 8
    again = Log(log.disk.crash(Random(2)))
    assert len(read_all(again.engine, A)) == 8


def test_at_level_written_a_failed_sync_in_the_background_stops_writing_too() -> None:
    log = Log(settings=replace(SETTINGS, durability=Durability.WRITTEN))
    assert log.commit(b"acknowledged") is GroupState.COMMITTED
    log.disk.fail("sync")
    log.now += 5 * SECOND
    log.maintain()
    with pytest.raises(LogReadOnly):
        log.append(b"refused")
    assert values(read_all(log.engine, A)) == [b"acknowledged"]


# -- a full disk is an error to the producer, for as long as it is full


def test_a_full_disk_refuses_appends_and_goes_on_when_there_is_room() -> None:
    log = Log()
    log.engine.append([], events=[b"kept"])
    log.commit(b"0" * 1000)
    log.disk.capacity = log.disk.used()
    acknowledged, refused = 1, 0
    for i in range(1, 10):
        try:
            state = log.commit(b"%d" % i * 1000)
        except LogFull:
            refused += 1
        else:
            acknowledged += state is GroupState.COMMITTED
            refused += state is GroupState.FAILED
    assert acknowledged >= 2  # what was reserved is used
    assert refused >= 2
    assert not log.engine.health().writable
    assert "no space" in log.engine.health().reason.lower()
    assert len(read_all(log.engine, A)) == acknowledged
    with pytest.raises(LogFull, match="no space"):
        log.append(b"refused")
    with pytest.raises(LogFull, match="no space"):
        log.engine.append_event(b"refused")

    log.disk.capacity = None
    log.now += 2 * SECOND
    log.maintain()
    assert log.engine.health().writable
    appended = log.append(b"again")
    log.committer.run()
    assert appended.group.state is GroupState.COMMITTED
    assert appended.base_offsets == (acknowledged,)  # no gap
    assert values(read_all(log.engine, A))[-1] == b"again"
    again = Log(log.disk.crash(Random(3)))
    assert len(read_all(again.engine, A)) == acknowledged + 1
    assert list(again.engine.recover().events) == [b"kept"]


def test_appends_that_a_full_disk_failed_are_all_failed_and_leave_no_trace() -> None:
    log = Log(SimDisk(capacity=SETTINGS.file_bytes))  # room for one journal file and nothing else
    log.commit(b"0" * 3000)
    failed = [
        log.engine.append([Records(A, [b"%d" % i * 3000]), Records(B, [b"b"])], [b"event"], Producer(b"p", 0, i))
        for i in range(3)
    ]
    log.committer.run()
    for appended in failed:
        assert appended.group.state is GroupState.FAILED
        assert isinstance(appended.group.error, LogFull)
    assert log.engine.next_offset(A) == 1
    assert log.engine.next_offset(B) == 0
    assert log.engine.pending_bytes == 0
    assert list(log.engine.recover().events) == []
    log.disk.capacity = None
    log.maintain()
    again = log.engine.append([Records(A, [b"1" * 3000])], producer=Producer(b"p", 0, 0))
    log.committer.run()
    assert not again.repeated
    assert again.base_offsets == (1,)
    assert again.group.state is GroupState.COMMITTED


def test_a_full_disk_can_be_reopened_and_read() -> None:
    log = Log()
    acknowledged = 0
    log.disk.capacity = 30_000
    for i in range(20):
        try:
            acknowledged += log.commit(b"%d" % (i % 10) * 1000) is GroupState.COMMITTED
        except LogFull:
            break
    again = Log(log.disk.crash(Random(4)))
    assert len(read_all(again.engine, A)) == acknowledged


def test_retention_makes_room_on_a_full_disk() -> None:
    log = Log(settings=replace(SETTINGS, snapshot_bytes=4096))
    log.engine.snapshot_from(lambda: b"")
    for i in range(20):
        log.now += SECOND
        log.commit(b"%d" % (i % 10) * 1000)
    log.disk.capacity = log.disk.used() + 3000
    writable = True
    for _ in range(20):
        if writable:
            try:
                writable = log.commit(b"x" * 1000) is GroupState.COMMITTED
            except LogFull:
                writable = False
    assert not writable
    for _ in range(6):
        log.now += 2 * SECOND
        log.maintain(Retention(bytes=3000))
    assert log.engine.health().writable
    assert log.commit(b"again") is GroupState.COMMITTED


# -- two threads at once


def test_a_spare_file_made_meanwhile_does_not_touch_the_one_in_use() -> None:
    """Work beside the groups goes on while a new journal file is begun: here at each step of that, in turn."""
    for step in range(12):
        log = Log(committer=Beside())
        beside = log.committer
        assert isinstance(beside, Beside)
        seen = 0

        def interrupt(text: str, beside: Beside = beside, step: int = step) -> None:
            nonlocal seen
            if threading.current_thread() is threading.main_thread() and "journal/" in text:
                if seen == step:
                    beside.start()
                seen += 1

        log.commit(b"0" * 2500)  # most of the first file: a spare is wanted
        beside.start()
        beside.join()
        beside.again()  # and asked for once more, as when the first time took long
        log.disk.trace = interrupt
        log.commit(b"1" * 2500)
        log.disk.trace = None
        beside.join()
        log.commit(b"2" * 100)
        again = Log(log.disk.crash(Random(step)))
        assert values(read_all(again.engine, A)) == [b"0" * 2500, b"1" * 2500, b"2" * 100], f"step {step}"


def test_a_snapshot_taken_between_two_trims_keeps_the_higher_one() -> None:
    disk, committer = SimDisk(), LaggingCommitter(Random(0))
    settings = replace(SETTINGS, snapshot_bytes=1)
    engine = FileEngine(disk, settings, committer=committer, clock=lambda: START)
    engine.snapshot_from(lambda: b"")
    engine.append([Records(A, [b"%d" % i for i in range(5)])])
    committer.drain()
    engine.trim({A: 3})
    engine.append([Records(B, [bytes(SETTINGS.group_bytes)])])  # too much for the same group
    engine.trim({A: 1})
    committer.run()  # the first is written, and not completed when the second is sealed
    committer.run()
    committer.drain()
    assert engine.bounds(A).start == 3
    assert Log(disk.kill()).engine.bounds(A).start == 3


class Beside:
    """Commits inline, and does the work beside it in a thread, when told to."""

    def __init__(self) -> None:
        self._inline = InlineCommitter()
        self._log: CommittedLog
        self._work: list[Callable[[], None]] = []
        self._done: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None

    def attach(self, log: CommittedLog) -> None:
        self._log = log
        self._inline.attach(log)

    def request(self) -> None:
        """Nothing: `run` commits."""

    def run(self) -> bool:
        return self._inline.run()

    def drain(self) -> None:
        self._inline.drain()

    def run_in_background(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    def again(self) -> None:
        self._work, self._done = [*self._done, *self._work], []

    def complete(self, sealed: PendingGroup) -> None:
        """Write a group that was sealed before."""
        error: Exception | None = None
        try:
            self._log.write(sealed)
        except OSError as found:
            error = found
        self._log.complete(sealed, error)

    def start(self) -> None:
        """Let the thread work, and give it a little time; it may have to wait for the commit."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._thread.join(0.05)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        work, self._work = self._work, []
        for item in work:
            item()
        self._done += work


# -- clocks


def test_a_clock_that_jumps_back_and_forth_breaks_neither_order_nor_search() -> None:
    log = Log()
    for jump in (0, 3600, -7200, 10, 86_400, -86_400, 5, 5):
        log.now += jump * SECOND
        log.commit(b"x")
    for engine in (log.engine, Log(log.disk.copy()).engine):
        records = read_all(engine, A)
        assert [record.offset for record in records] == list(range(8))
        stamps = [record.timestamp for record in records]
        for probe in [*stamps, *(stamp + 1 for stamp in stamps), 0]:
            wanted = next((offset for offset, stamp in enumerate(stamps) if stamp >= probe), None)
            assert engine.offset_at(A, probe) == wanted


def test_times_never_go_down_in_a_partition() -> None:
    log = Log()
    stamps: dict[int, list[int]] = {A: [], B: []}
    for jump in (0, 3600, -7200, 10, 86_400, -86_400, 5, 5):
        log.now += jump * SECOND
        for partition in (A, B) if jump != 3600 else (A,):  # B has seen nothing of that hour
            appended = log.engine.append([Records(partition, [b"x"])])
            stamps[partition].append(appended.timestamp)
            log.committer.run()
    assert stamps[B][1] == START + (3600 - 7200) * SECOND or stamps[B][1] >= stamps[B][0]
    both = log.engine.append([Records(A, [b"x"]), Records(B, [b"x"])])
    log.committer.run()
    for engine in (log.engine, Log(log.disk.copy()).engine):
        for partition in (A, B):
            found = [record.timestamp for record in read_all(engine, partition)]
            assert found == [*stamps[partition], both.timestamp] == sorted(found)


def test_a_partition_that_was_not_written_meanwhile_keeps_the_true_time() -> None:
    log = Log()
    log.now += 3600 * SECOND
    log.commit(b"ahead")
    log.now -= 3600 * SECOND
    assert log.append(b"x").timestamp == START + 3600 * SECOND
    assert log.engine.append([Records(B, [b"x"])]).timestamp == START


def test_times_do_not_go_down_over_a_restart_and_in_closed_files() -> None:
    log = Log()
    for at in range(8):
        log.now = START + at * SECOND
        log.commit(b"%d" % at * 1000)
    assert len([path for path in log.disk.paths() if path.endswith(".journal")]) > 1
    again = Log(log.disk.copy())
    again.now = START - 10**12
    again.commit(b"y" * 3000)
    third = Log(again.disk.copy())
    third.now = START - 10**12
    third.commit(b"z" * 3000)
    found = [record.timestamp for record in read_all(third.engine, A)]
    assert found == sorted(found)
    assert found[-1] == START + 7 * SECOND


def test_a_clock_set_back_at_a_restart_does_no_harm() -> None:
    log = Log()
    log.commit(b"future")
    again = Log(log.disk.crash(Random(6)))
    again.now = START - 10**12
    assert again.commit(b"past") is GroupState.COMMITTED
    again.maintain(Retention(seconds=60))
    assert values(read_all(again.engine, A)) == [b"future", b"past"]


def test_retention_does_not_follow_a_clock_that_jumps_forward() -> None:
    """The broker hands retention a clock that never runs faster than the monotonic one."""
    log = Log()
    monotonic = 0
    clock = RetentionClock(log.now, monotonic)
    for i in range(12):
        log.now += SECOND
        monotonic += SECOND
        log.commit(b"%d" % (i % 10) * 1000)
    log.now += 365 * 86_400 * SECOND  # the wall clock is a year ahead all at once
    for _ in range(3):
        monotonic += SECOND
        log.engine.maintain(clock.read(log.now, monotonic), lambda _: Retention(seconds=60))
        log.committer.run()
    assert len(read_all(log.engine, A)) == 12
    for _ in range(3):
        monotonic += 3600 * SECOND  # an hour later they are really old
        log.engine.maintain(clock.read(log.now, monotonic), lambda _: Retention(seconds=60))
        log.committer.run()
    assert len(read_all(log.engine, A)) < 12


# -- for real


def health(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def strace() -> list[str]:
    """The command that makes the sixth fdatasync of each thread fail, or a reason to skip."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    command = [program, "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync"]
    tried = subprocess.run([*command, "-e", "inject=fdatasync:error=EIO:when=6", "true"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"strace cannot be used here: {tried.stderr.decode()[:200]}")
    return [*command, "-e", "inject=fdatasync:error=EIO:when=6"]


WITH_HTTP = {"rustlog": "127.0.0.1:0", "http": "127.0.0.1:0"}


def test_a_real_failure_of_fdatasync(tmp_path: Path) -> None:
    acknowledged = []
    with RestartableBroker(str(tmp_path), prefix=strace(), doors=WITH_HTTP) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            connection.create_topic("t", 1)
            with pytest.raises(ServerError, match="outcome unknown"):
                for i in range(10):
                    assert connection.produce("t", 0, [b"%d" % i]) == i
                    acknowledged.append((i, b"%d" % i))
            assert acknowledged
            for _ in range(3):  # only one sync failed, and the log stays read-only all the same
                with pytest.raises(ServerError, match="takes no writes"):
                    connection.produce("t", 0, [b"refused"])
            assert list(connection.fetch_all("t", 0)) == acknowledged
        status, text = health(broker.ports["http"])
        assert status == 503
        assert "read-only" in text
        broker.kill()
    with RestartableBroker(str(tmp_path)) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            found = list(connection.fetch_all("t", 0))
            assert found[: len(acknowledged)] == acknowledged
            doubtful = (len(acknowledged), b"%d" % len(acknowledged))
            assert found[len(acknowledged) :] in ([], [doubtful])  # and nothing of what was refused
            assert connection.produce("t", 0, [b"after"]) == len(found)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("mount is not installed")
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode()[:200]}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_real_full_disk(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1 << 20))
    settings = {"PENSTOCK_LOG__FILE_BYTES": "65536", "PENSTOCK_LOG__GROUP_BYTES": "65536"}
    acknowledged = []
    with RestartableBroker(str(small_disk), settings=settings, doors=WITH_HTTP) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            connection.create_topic("t", 1)
            with pytest.raises(ServerError, match="Insufficient space"):
                for i in range(2000):
                    payload = b"%d" % i * 1000
                    assert connection.produce("t", 0, [payload]) == i
                    acknowledged.append((i, payload))
            with pytest.raises(ServerError, match="Insufficient space"):
                connection.produce("t", 0, [b"x" * 60_000])
            assert list(connection.fetch_all("t", 0)) == acknowledged
            assert health(broker.ports["http"])[0] == 503

            filler.unlink()
            deadline = time.monotonic() + 20
            while health(broker.ports["http"])[0] != 200:
                assert time.monotonic() < deadline, "writing does not resume"
                time.sleep(0.05)
            assert connection.produce("t", 0, [b"again"]) == len(acknowledged)
            acknowledged.append((len(acknowledged), b"again"))
        broker.kill()
        broker.start()
        with Connection(broker.port) as connection:
            assert list(connection.fetch_all("t", 0)) == acknowledged
