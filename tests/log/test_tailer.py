"""A tailer beside a real engine that writes, rolls, trims, runs out of space, and is killed."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.simdisk import Crash, SimDisk, SimFile
from tests.effort import scaled
from tests.log.harness import A, B, C

from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, GroupState, PartitionId, Records, Retention
from penstock.log.errors import LogDamaged, LogError, OffsetOutOfRange
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.segment import FIRST_GROUP_AT, index_path, journal_path, sequences
from penstock.log.tailer import NotThereYet, Tailer

SETTINGS = LogSettings(file_bytes=FIRST_GROUP_AT + 2048, group_bytes=4096, tail_bytes=0, snapshot_bytes=1024)
START = 1_700_000_000_000_000
EMPTY = Retention(bytes=0)  # all but the active file may go


class Writer:
    """An engine on a disk, as a broker has it. `Files` of another process may be the same disk."""

    def __init__(self, disk: SimDisk | None = None, settings: LogSettings = SETTINGS) -> None:
        self.disk = disk or SimDisk()
        self.now = START
        self.settings = settings
        self._values = count()
        self.open()

    def open(self) -> None:
        self.committer = InlineCommitter()
        self.engine = FileEngine(self.disk, self.settings, committer=self.committer, clock=lambda: self.now)
        self.engine.snapshot_from(lambda: b"state")

    def append(self, partition: PartitionId = A, records: int = 1, size: int = 20) -> GroupState:
        self.now += 1000
        values = [b"%0*d" % (size, next(self._values)) for _ in range(records)]
        appended = self.engine.append([Records(partition, values)])
        self.committer.run()
        return appended.group.state

    def roll(self) -> None:
        """Fill the file until the next one begins."""
        last = sequences(self.disk)[-1]
        while sequences(self.disk)[-1] == last:
            self.append(B, 4, 50)

    def maintain(self, retention: Retention | None = None) -> None:
        self.engine.maintain(self.now, lambda _: retention or Retention())
        self.committer.run()

    def restart(self) -> None:
        """Another process after the first was killed; the disk goes on as it is."""
        self.disk._dead, self.disk._crash_at = False, None
        self.open()


def engine_values(engine: FileEngine, partition: PartitionId, start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    while start < end:
        for part in engine.read(partition, start, 1 << 30, end - start).run():
            found += part.values()
            start = part.end_offset
    return found


def followed(tailer: Tailer, partition: PartitionId, start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    for part in tailer.slices(partition, start, end):
        assert part.base_offset == start
        found += part.values()
        start = part.end_offset
    assert start == end
    return found


def assert_same(tailer: Tailer, engine: FileEngine) -> None:
    """The tailer has at least what is committed, and the same."""
    for partition in (A, B, C):
        start, end = engine.bounds(partition)
        if start < end:
            assert followed(tailer, partition, start, end) == engine_values(engine, partition, start, end)


def flip(disk: SimDisk, path: str, at: int) -> None:
    content = bytearray(disk.content(path))
    content[at] ^= 1
    disk.replace(path, bytes(content))


# -- keeping up


def test_it_sees_what_is_appended_and_where_files_begin() -> None:
    writer = Writer()
    tailer = Tailer(writer.disk)
    tailer.refresh()
    assert tailer.partitions() == []
    assert tailer.extent(A) is None
    writer.append(A, 3)
    assert tailer.extent(A) is None  # not before it looks
    tailer.refresh()
    assert tailer.extent(A) == (0, 3)
    assert followed(tailer, A, 0, 3) == engine_values(writer.engine, A, 0, 3)
    assert followed(tailer, A, 1, 2) == engine_values(writer.engine, A, 1, 2)
    assert list(tailer.slices(A, 2, 2)) == []
    for _ in range(3):
        writer.roll()
        writer.append(A, 2)
        writer.append(C)
        tailer.refresh()
        assert_same(tailer, writer.engine)
    assert sorted(tailer.partitions()) == sorted([A, B, C])
    assert [file.sequence for file in tailer.segments] == sequences(writer.disk)


def test_a_reader_that_asks_for_what_is_new_finds_it_without_a_refresh() -> None:
    writer = Writer()
    tailer = Tailer(writer.disk)
    writer.append(A, 3)
    assert len(followed(tailer, A, 0, 3)) == 3
    with pytest.raises(NotThereYet, match="up to offset 3, not 4"):
        tailer.slices(A, 0, 4)


def test_a_file_that_grew_and_was_closed_since_the_last_look() -> None:
    writer = Writer()
    writer.append(A, 2)
    tailer = Tailer(writer.disk)
    tailer.refresh()
    writer.append(A, 2)
    for _ in range(4):
        writer.roll()
    tailer.refresh()
    assert_same(tailer, writer.engine)


@pytest.mark.parametrize("damaged", [False, True])
def test_closed_files_without_a_usable_index_are_scanned(damaged: bool) -> None:
    writer = Writer()
    writer.append(A, 3)
    writer.roll()
    writer.roll()
    for sequence in sequences(writer.disk)[:-1]:
        if damaged:
            flip(writer.disk, index_path(sequence), 30)
        else:
            writer.disk.delete(index_path(sequence))
    tailer = Tailer(writer.disk)
    tailer.refresh()
    assert_same(tailer, Writer(writer.disk.copy()).engine)


def test_a_scan_goes_on_where_it_stopped() -> None:
    """A look at a large file that has grown a little must not read it all."""
    writer = Writer(settings=LogSettings(file_bytes=8 << 20, tail_bytes=0))
    for _ in range(40):
        writer.append(A, 100, 1000)
    tailer = Tailer(writer.disk)
    tailer.refresh()
    writer.append(A)
    read = [0]
    plain = SimFile.read

    def counted(file: SimFile, position: int, size: int) -> bytes:
        data = plain(file, position, size)
        read[0] += len(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimFile, "read", counted)
        tailer.refresh()
    assert tailer.extent(A) == (0, 4001)
    assert read[0] < 200_000


def test_it_changes_nothing() -> None:
    writer = Writer()
    writer.append(A)
    writer.roll()
    before = writer.disk.operations
    tailer = Tailer(writer.disk)
    tailer.refresh()
    tailer.check_end()
    followed(tailer, A, 0, 1)
    assert writer.disk.operations == before


def test_events_of_the_last_file() -> None:
    writer = Writer(settings=LogSettings(file_bytes=SETTINGS.file_bytes, snapshot_bytes=1 << 20))
    writer.engine.append([], [b"one", b"two"])
    writer.committer.run()
    tailer = Tailer(writer.disk, events=True)
    tailer.refresh()
    assert [payload for _, owner, payload in tailer.events if owner == 1] == [b"one", b"two"]
    writer.engine.append([], [b"three"])
    writer.committer.run()
    tailer.refresh()
    assert [payload for _, owner, payload in tailer.events if owner == 1] == [b"one", b"two", b"three"]
    writer.roll()
    tailer.refresh()
    assert [payload for _, owner, payload in tailer.events if owner == 1] == []


# -- files that go


def test_retention_while_a_reader_is_under_way() -> None:
    writer = Writer()
    for _ in range(3):
        writer.append(A, 4)
        writer.roll()
    tailer = Tailer(writer.disk)
    tailer.refresh()
    start, end = writer.engine.bounds(B)
    all_of_it = engine_values(writer.engine, B, start, end)
    slices = tailer.slices(B, start, end)
    found = next(slices).values()
    later = tailer.slices(A, 0, 12)  # has touched no index yet
    for _ in range(6):
        writer.maintain(EMPTY)
    assert sequences(writer.disk)[0] > 2
    tailer.refresh()
    found += [value for part in slices for value in part.values()]
    assert found == all_of_it
    assert [value for part in later for value in part.values()] != []
    first, known = tailer.extent(B) or (0, 0)
    assert first > start
    with pytest.raises(OffsetOutOfRange) as refused:
        tailer.slices(B, start, end)
    assert (refused.value.start, refused.value.end) == (first, known)
    assert_same(tailer, writer.engine)


def test_a_closed_file_for_who_knows_its_number() -> None:
    writer = Writer()
    writer.append(A)
    writer.roll()
    tailer = Tailer(writer.disk)
    tailer.refresh()
    extent = tailer.file(1).index.extent(A)
    assert extent is not None and (extent.first_offset, extent.end_offset) == (0, 1)
    with pytest.raises(LogError, match="no closed segment"):
        tailer.file(sequences(writer.disk)[-1])


def test_another_journal_in_the_same_place() -> None:
    disk = SimDisk()
    Writer(disk).append(A, 3)
    tailer = Tailer(disk)
    tailer.refresh()
    mark = tailer.mark
    for path in disk.paths():
        disk.delete(path)
    tailer.refresh()
    assert tailer.partitions() == []
    Writer(disk).append(A, 2)
    tailer.refresh()
    assert tailer.extent(A) == (0, 2)
    assert tailer.mark != mark


def test_a_place_without_a_journal_is_empty() -> None:
    tailer = Tailer(SimDisk())
    tailer.refresh()
    tailer.check_end()
    assert tailer.partitions() == []


# -- groups that are not whole


def test_what_a_failed_group_left_is_not_read_and_what_replaces_it_is() -> None:
    writer = Writer()
    writer.append(A, 2)
    tailer = Tailer(writer.disk)
    tailer.refresh()
    # Half of the group is written when the disk is full.
    half = writer.disk.fail("write", error=errno.ENOSPC)
    plain = writer.disk.write

    def torn(inode: object, path: str, position: int, data: bytes) -> None:
        if half.count:
            inode.write(position, data[: len(data) // 2], 512)  # type: ignore[attr-defined]
        plain(inode, path, position, data)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer.disk, "write", torn)
        assert writer.append(A, 5) is GroupState.FAILED
    tailer.refresh()
    assert tailer.extent(A) == (0, 2)
    tailer.check_end()  # that is no damage
    with pytest.raises(NotThereYet):
        tailer.slices(A, 0, 7)
    writer.maintain()  # finds room, and clears
    tailer.refresh()
    assert tailer.extent(A) == (0, 2)
    assert writer.append(A, 1, 300) is GroupState.COMMITTED
    tailer.refresh()
    assert tailer.extent(A) == (0, 3)
    assert_same(tailer, writer.engine)


def test_a_group_that_was_whole_and_is_replaced() -> None:
    """No writer does that while it runs, but one that starts after a repair may."""
    disk = SimDisk()
    writer = Writer(disk)
    writer.append(A, 2)
    earlier = disk.content(journal_path(1))
    writer.append(A, 3)
    tailer = Tailer(disk)
    tailer.refresh()
    assert tailer.extent(A) == (0, 5)
    disk.replace(journal_path(1), earlier)
    tailer.refresh()
    assert tailer.extent(A) == (0, 2)
    other = Writer(disk)
    other.append(A, 1)
    assert followed(tailer, A, 0, 3) == engine_values(other.engine, A, 0, 3)


def test_an_unfinished_group_in_the_last_file_is_waited_for_and_before_another_file_it_is_damage() -> None:
    writer = Writer()
    writer.append(A, 2)
    at = len(writer.disk.content(journal_path(1)).rstrip(b"\0"))
    writer.append(A, 2)
    whole = writer.disk.content(journal_path(1))
    flip(writer.disk, journal_path(1), at + 100)
    tailer = Tailer(writer.disk)
    tailer.refresh()
    assert tailer.extent(A) == (0, 2)
    tailer.check_end()
    writer.roll()
    writer.disk.delete(index_path(1))
    for _ in range(2):  # nor is it passed over the second time
        with pytest.raises(LogDamaged, match=r"wrong checksum.*0002.journal goes on with group") as refused:
            tailer.refresh()
        assert refused.value.path == journal_path(1)
        assert tailer.extent(A) is None
    content = bytearray(writer.disk.content(journal_path(1)))
    content[at + 100] = whole[at + 100]
    writer.disk.replace(journal_path(1), bytes(content))
    tailer.refresh()
    assert_same(tailer, Writer(writer.disk.copy()).engine)


def test_a_group_behind_it_proves_that_one_had_been_synced() -> None:
    writer = Writer()
    writer.append(A, 2)
    end = len(writer.disk.content(journal_path(1)).rstrip(b"\0"))
    writer.append(A, 2)
    writer.append(A, 2)
    flip(writer.disk, journal_path(1), (end + 100) & ~7)
    tailer = Tailer(writer.disk)
    tailer.refresh()
    with pytest.raises(LogDamaged, match="was written after this had been synced") as refused:
        tailer.check_end()
    assert refused.value.path == journal_path(1)


def test_a_missing_file_is_damage() -> None:
    writer = Writer()
    for _ in range(3):
        writer.roll()
    last = sequences(writer.disk)[-1]
    for missing in (2, last):
        disk = writer.disk.copy()
        disk.delete(journal_path(missing))
        with pytest.raises(LogDamaged, match="the file is missing") as refused:
            Tailer(disk).refresh()
        assert refused.value.path == journal_path(missing)


def test_a_damaged_batch_is_found_when_it_is_read() -> None:
    writer = Writer()
    writer.append(A, 3)
    writer.roll()
    tailer = Tailer(writer.disk)
    tailer.refresh()
    flip(writer.disk, journal_path(1), writer.disk.content(journal_path(1)).index(b"%020d" % 1))
    with pytest.raises(LogDamaged, match="wrong checksum of a batch"):
        list(tailer.slices(A, 0, 3))


# -- by time and by size


@settings(max_examples=scaled(30), deadline=None)
@given(
    appends=st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 6), st.integers(-3, 5)), max_size=25),
    seed=st.integers(0, 1000),
)
def test_offsets_by_time_and_by_size(appends: list[tuple[PartitionId, int, int]], seed: int) -> None:
    writer = Writer()
    stamps: list[int] = []
    for partition, records, step in appends:
        writer.now += step * 1_000_000  # clocks may step back
        writer.append(partition, records)
        if partition == A:
            stamps += [max([writer.now, *stamps[-1:]])] * records
    tailer = Tailer(writer.disk)
    tailer.refresh()
    sizes = [(part.end_offset, len(part.batch.data)) for part in tailer.slices(A, 0, len(stamps))]
    rng = Random(seed)
    for _ in range(20):
        start = rng.randint(0, len(stamps))
        end = rng.randint(start, len(stamps))
        moment = rng.choice(stamps) + rng.randint(-1, 1) if stamps else START
        expected = next((at for at in range(start, end) if stamps[at] >= moment), None)
        assert tailer.offset_at(A, moment, start, end) == expected
        limit = rng.randint(0, 3000)
        assert tailer.offset_after(A, start, end, limit) == reach(sizes, start, end, limit)


def reach(sizes: list[tuple[int, int]], start: int, end: int, limit: int) -> int:
    reached = start
    for behind, size in sizes:
        if behind <= start or reached >= end:
            continue
        limit -= size
        if limit < 0 and reached > start:
            break
        reached = min(behind, end)
    return reached


# -- a life


@settings(max_examples=scaled(60), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_life_of_writing_rolling_trimming_filling_up_and_being_killed(seed: int) -> None:
    rng = Random(seed)
    writer = Writer()
    tailer = Tailer(writer.disk)
    for _ in range(rng.randint(5, 60)):
        step = rng.random()
        try:
            if step < 0.6:
                writer.append(rng.choice([A, B, C]), rng.randint(1, 8), rng.choice([20, 100]))
            elif step < 0.7:
                writer.maintain(Retention(bytes=rng.choice([0, 2000])))
            elif step < 0.8:
                fault = writer.disk.fail("write", error=errno.ENOSPC, count=None, path="journal/")
                writer.append(A, 2)
                tailer.refresh()
                fault.count = 0
                writer.maintain()
            else:
                writer.disk.crash_at(writer.disk.operations + rng.randint(0, 6))
                for _ in range(5):
                    writer.append(rng.choice([A, B]), rng.randint(1, 8), 60)
                writer.maintain(EMPTY)
        except Crash:
            writer.disk._dead, writer.disk._crash_at = False, None
            if rng.random() < 0.5:
                tailer.refresh()  # between the end of one process and the start of the next
            writer.restart()
        writer.disk._crash_at = None
        if rng.random() < 0.5:
            tailer.refresh()
            assert_same(tailer, writer.engine)
    tailer.refresh()
    assert_same(tailer, writer.engine)


def test_many_readers_beside_a_writer_on_a_real_disk(tmp_path: Path) -> None:
    """Threads read and refresh while another process' worth of writing, rolling and removing goes on."""
    files = OsFiles(str(tmp_path))
    committer = InlineCommitter()
    config = LogSettings(
        durability=Durability.WRITTEN, file_bytes=64 << 10, snapshot_bytes=32 << 10, tail_bytes=0, roll_seconds=1e9
    )
    engine = FileEngine(files, config, committer=committer, clock=lambda: time.time_ns() // 1000)
    engine.snapshot_from(lambda: b"")
    tailer = Tailer(files)
    stop, problems, read = threading.Event(), list[BaseException](), [0, 0, 0]

    def follow(number: int) -> None:
        rng = Random(number)
        try:
            while not stop.is_set():
                if rng.random() < 0.5:
                    tailer.refresh()
                first, end = tailer.extent(A) or (0, 0)
                at = rng.randint(first, end)
                try:
                    for part in tailer.slices(A, at, end):
                        assert part.base_offset == at
                        assert part.values() == [b"%d" % i for i in range(at, part.end_offset)]
                        at = part.end_offset
                    assert at == end
                except OffsetOutOfRange as gone:
                    assert gone.start > at  # retention was quicker
                read[number] += 1
        except BaseException as error:  # noqa: BLE001 - told by the test
            problems.append(error)

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    deadline, at = time.monotonic() + 30, 0
    while (sequences(files)[0] < 10 or min(read) < 10) and not problems and time.monotonic() < deadline:
        records = Random(at).randint(1, 400)
        engine.append([Records(A, [b"%d" % i for i in range(at, at + records)]), Records(B, [b"x" * 500])])
        at += records
        committer.run()
        engine.maintain(0, lambda _: Retention(bytes=100_000))
        committer.run()
    stop.set()
    for thread in threads:
        thread.join(10)
    assert problems == []
    assert sequences(files)[0] >= 10 and min(read) >= 10  # files did go while they were read
    tailer.refresh()
    assert (tailer.extent(A) or (0, 0))[1] == at
    engine.close()


WRITE = """
import sys, time
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records, partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

committer = InlineCommitter()
settings = LogSettings(durability=Durability.WRITTEN, file_bytes=256 << 10, snapshot_bytes=64 << 10)
engine = FileEngine(OsFiles(sys.argv[1]), settings, committer=committer, clock=lambda: time.time_ns() // 1000)
engine.snapshot_from(lambda: b"")
place = partition_id(1, 0)
while True:
    at = engine.next_offset(place)
    engine.append([Records(place, [b"%d" % i for i in range(at, at + 1 + at % 300)])])
    committer.run()
    print(engine.bounds(place).high_watermark, flush=True)
"""


@pytest.mark.process
def test_a_writer_that_is_killed_and_followed_by_another(tmp_path: Path) -> None:
    """The same tailer all along: what was acknowledged is there, and nothing that it has shown changes."""
    tailer = Tailer(OsFiles(str(tmp_path)))
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        acknowledged = 0
        for _ in range(60):
            acknowledged = int(process.stdout.readline())
            tailer.refresh()
            assert (tailer.extent(A) or (0, 0))[1] >= acknowledged
        process.send_signal(signal.SIGKILL)
        acknowledged = int((process.communicate()[0].splitlines() or [b"%d" % acknowledged])[-1])
        tailer.refresh()
        first, end = tailer.extent(A) or (0, 0)
        assert first == 0 and end >= acknowledged > 0
        assert followed(tailer, A, 0, end) == [b"%d" % i for i in range(end)]


def listing_without(disk: SimDisk, hidden: Iterator[str]) -> None:
    """Let each call of `list` miss the next name of `hidden`, as a directory that is changed while it is read may."""
    plain = disk.list

    def list_(directory: str) -> list[str]:
        name = next(hidden, "")
        return [each for each in plain(directory) if each != name]

    disk.list = list_  # type: ignore[method-assign]


def test_a_listing_that_misses_a_file_is_repeated() -> None:
    writer = Writer()
    for _ in range(3):
        writer.roll()
    listing_without(writer.disk, iter([journal_path(2).removeprefix("journal/")]))
    tailer = Tailer(writer.disk)
    tailer.refresh()
    assert_same(tailer, writer.engine)


def test_a_file_that_goes_between_the_listing_and_the_opening() -> None:
    writer = Writer()
    for _ in range(4):
        writer.roll()
    for _ in range(4):
        writer.maintain()
    plain = writer.disk.open
    gone = [False]

    def open_(path: str, *, writable: bool) -> SimFile:
        if not gone[0]:
            gone[0] = True
            for _ in range(6):
                writer.maintain(EMPTY)
            assert path not in writer.disk.paths()
        return plain(path, writable=writable)

    tailer = Tailer(writer.disk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer.disk, "open", open_)
        tailer.refresh()
    assert gone == [True]
    assert_same(tailer, writer.engine)
