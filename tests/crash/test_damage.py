"""Damage: every byte flipped, every length cut, every file gone, one at a time.

Opening then gives a correct prefix, or an error that says where; reading may say so later. Wrong data never comes
back, acknowledged data is never dropped without a word, and nothing fails with an error of another kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest
from tests.crash.model import Model, all_events, encode_events
from tests.crash.simdisk import SimDisk
from tests.log.harness import PLENTY, read

from penstock.log.committer import InlineCommitter
from penstock.log.engine import PartitionId, Producer, Records, partition_id
from penstock.log.errors import LogDamaged, LogError
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.group_format import HEADER_SIZE, GroupHeader, encode_header, entries_checksum
from penstock.log.repair import repair
from penstock.log.scan import Scan
from penstock.log.segment import FIRST_GROUP_AT, Segment, journal_path, sequences
from penstock.log.verify import verify

A, B = partition_id(1, 0), partition_id(2, 5)
NOW = 1_700_000_000_000_000
# Files just large enough for a few groups, so that flipping every byte of all of them takes seconds.
SETTINGS = LogSettings(file_bytes=FIRST_GROUP_AT + 1280, tail_bytes=0, cache_bytes=0)


@dataclass(frozen=True, eq=False)
class Journal:
    """A small journal, and what is in it."""

    disk: SimDisk
    model: Model
    prefixes: list[tuple[dict[PartitionId, int], dict[PartitionId, int], int]]  # starts, ends, events after each group

    @cache  # noqa: B019 - there are two journals, and they live as long as the tests
    def batches(self, partition: PartitionId) -> list[bytes]:
        """The bytes behind the records: equal batches need not be decoded to be compared."""
        engine, _ = open_engine(self.disk.copy())
        start, end = engine.bounds(partition)
        assert read(engine, partition, start) == self.model.tail.records[partition][start:end]
        return [part.batch.data for part in engine.read(partition, start, PLENTY, PLENTY).run()]

    def with_file(self, path: str, content: bytes | None) -> SimDisk:
        disk = self.disk.copy()
        if content is None:
            disk.delete(path)
        else:
            disk.replace(path, content)
        return disk


def open_engine(disk: SimDisk, snapshot_bytes: int = 1200) -> tuple[FileEngine, InlineCommitter]:
    committer = InlineCommitter()
    settings = replace(SETTINGS, snapshot_bytes=snapshot_bytes)
    return FileEngine(disk, settings, committer=committer, clock=lambda: NOW), committer


@cache
def journal(closed: bool = True) -> Journal:
    """Closed cleanly, so that a snapshot has all events; or stopped, with events behind the only snapshot."""
    disk, model = SimDisk(), Model()
    engine, committer = open_engine(disk)
    engine.recover()
    engine.snapshot_from(lambda: encode_events(model.tail.events))
    for i in range(8):
        writes = [Records(A, [b"value-%d-%d" % (i, j) + b"." * (i * 9) for j in range(i % 3 + 1)])]
        if i % 2:
            writes.append(Records(B, [b"b%d" % i], keys=[b"key"], headers=[(("name", b"x"),)], expires=[NOW]))
        events = [b"event-%d" % i] if i % 3 else []
        producer = Producer(b"p", 0, i // 4) if i % 4 == 0 else None
        model.appended(engine.append(writes, events, producer), writes, events, producer)
        if i == 5:
            model.trimmed(engine.trim({A: 3}), {A: 3})
        if i == 2 and not closed:
            engine.close()
            engine, committer = open_engine(disk, snapshot_bytes=1 << 20)
        committer.run()
    if closed:
        engine.close()
    assert model.acknowledged() == len(model.groups)
    prefixes = []
    for count in range(len(model.groups) + 1):
        state = model.state(count)
        starts = {partition: state.starts.get(partition, 0) for partition in (A, B)}
        ends = {partition: len(state.records.get(partition, ())) for partition in (A, B)}
        prefixes.append((starts, ends, len(state.events)))
    for path in disk.paths():
        if path.endswith(".tmp"):  # made in advance; the next start removes it unread
            disk.delete(path)
    journals = [path for path in disk.paths() if path.endswith(".journal")]
    assert len(journals) >= 3, disk.paths()
    assert any(path.endswith(".snapshot") for path in disk.paths())
    assert any(path.endswith(".index") for path in disk.paths())
    return Journal(disk.copy(), model, prefixes)


def check_place(disk: SimDisk, error: LogError) -> None:
    """The error says which file, and where in it."""
    assert isinstance(error, LogDamaged), repr(error)
    assert error.path in str(error)
    assert str(error.position) in str(error)
    size = len(disk.content(error.path)) if error.path in disk.paths() else 0
    assert 0 <= error.position <= max(size, SETTINGS.file_bytes)


def check_records(told: Journal, engine: FileEngine, partition: PartitionId, disk: SimDisk) -> bool:
    """Every record that can be read is right. False if some cannot, because the log says that they are damaged."""
    start, end = engine.bounds(partition)
    expected = told.model.tail.records[partition]
    try:
        parts = engine.read(partition, start, PLENTY, PLENTY).run()
        if [part.batch.data for part in parts] != told.batches(partition)[: len(parts)]:
            assert read(engine, partition, start) == expected[start:end]
        assert sum(map(len, parts)) == end - start
        return True
    except LogDamaged as error:
        check_place(disk, error)
    for offset in range(start, end):
        try:
            assert read(engine, partition, offset, max_records=1) == [expected[offset]]
        except LogDamaged as error:
            check_place(disk, error)
    return False


def outcome(told: Journal, disk: SimDisk) -> int | None:
    """The number of groups that the damaged log still has, all correct; None if it reports the damage."""
    try:
        engine, _ = open_engine(disk)
        events = all_events(engine.recover())
    except LogError as error:
        check_place(disk, error)
        return None
    seen = (
        {partition: engine.bounds(partition).start for partition in (A, B)},
        {partition: engine.bounds(partition).high_watermark for partition in (A, B)},
        len(events),
    )
    assert seen in told.prefixes, f"this is the state after no group: {seen}"
    assert events == told.model.tail.events[: len(events)]
    whole = [check_records(told, engine, partition, disk) for partition in (A, B)]
    return told.prefixes.index(seen) if all(whole) else None


@pytest.mark.parametrize("closed", [True, False])
def test_the_undamaged_journal_is_whole(closed: bool) -> None:
    told = journal(closed)
    assert outcome(told, told.disk.copy()) == len(told.model.groups)


@pytest.mark.parametrize(("closed", "mask"), [(True, 0xFF), (True, 0x01), (False, 0x01)])
def test_every_byte_flipped(closed: bool, mask: int) -> None:
    told = journal(closed)
    groups = len(told.model.groups)
    for path in told.disk.paths():
        content = told.disk.content(path)
        last = path == max(p for p in told.disk.paths() if p.endswith(".journal"))
        for position in range(len(content)):
            if mask == 0x01 and HEADER_SIZE < position < FIRST_GROUP_AT and path.endswith(".journal"):
                continue  # the rest of the header block is not used; one pattern shows it
            flipped = bytearray(content)
            flipped[position] ^= mask
            disk = told.with_file(path, bytes(flipped))
            try:
                left = outcome(told, disk)
            except BaseException as error:
                error.add_note(f"byte {position} of {path} xor {mask:#x}")
                raise
            if left is not None:
                # Only the last group, which no later one vouches for, may be taken for a torn tail.
                lowest = groups - 1 if last else groups
                assert left >= lowest, f"byte {position} of {path}: {groups - left} groups were dropped silently"


def test_every_length() -> None:
    told = journal()
    groups = len(told.model.groups)
    for path in told.disk.paths():
        content = told.disk.content(path)
        for length in range(len(content)):
            disk = told.with_file(path, content[:length])
            try:
                left = outcome(told, disk)
            except BaseException as error:
                error.add_note(f"{path} cut to {length} bytes")
                raise
            # A journal file keeps its length from the day it is made; the others can be made again.
            assert left == (None if path.endswith(".journal") else groups), f"{path} cut to {length}"


def test_every_file_missing() -> None:
    told = journal()
    for path in told.disk.paths():
        left = outcome(told, told.with_file(path, None))
        assert left == (None if path.endswith(".journal") else len(told.model.groups)), path


def test_files_swapped() -> None:
    told = journal()
    journals = [path for path in told.disk.paths() if path.endswith(".journal")]
    for path in journals:
        for other in journals:
            if path != other:
                assert outcome(told, told.with_file(path, told.disk.content(other))) is None


def test_all_snapshots_gone() -> None:
    told = journal()
    disk = told.disk.copy()
    for path in told.disk.paths():
        if path.endswith(".snapshot"):
            disk.delete(path)
    assert outcome(told, disk) == len(told.model.groups)


def test_damage_before_a_synced_group_is_reported_and_changes_nothing() -> None:
    """In the file that is being written, where the torn tail is: the group after the damaged one proves it."""
    disk = SimDisk()
    engine, committer = open_engine(disk)
    for i in range(3):
        engine.append([Records(A, [b"value-%d" % i])])
        committer.run()
    disk = disk.kill()
    (path,) = (path for path in disk.paths() if path.endswith(".journal"))
    content = disk.content(path)
    at = content.index(b"value-0")
    disk.replace(path, content[:at] + b"X" + content[at + 1 :])
    before = disk.content(path)
    with pytest.raises(LogDamaged) as raised:
        open_engine(disk)
    assert raised.value.path == path
    assert raised.value.position == FIRST_GROUP_AT
    assert disk.content(path) == before


def test_a_torn_last_group_is_cut_off_and_the_log_goes_on() -> None:
    disk = SimDisk()
    engine, committer = open_engine(disk)
    for i in range(3):
        engine.append([Records(A, [b"value-%d" % i])])
        committer.run()
    disk = disk.kill()
    (path,) = (path for path in disk.paths() if path.endswith(".journal"))
    content = disk.content(path)
    at = content.index(b"value-2")
    disk.replace(path, content[:at] + b"X" + content[at + 1 :])
    engine, committer = open_engine(disk)
    assert engine.recover().notes, "the operator is told"
    assert engine.bounds(A).high_watermark == 2
    assert engine.append([Records(A, [b"again"])]).base_offsets == (2,)
    committer.run()
    engine.close()
    engine, _ = open_engine(disk)
    assert [record.value for record in read(engine, A, 0)] == [b"value-0", b"value-1", b"again"]


def forged_group(number: int) -> bytes:
    """A record by an attacker who knows the format, but not the number that each file draws at random."""
    header = GroupHeader(
        number=number,
        synced_through=number - 1,
        position=0,
        advance=0,
        timestamp=NOW,
        length=HEADER_SIZE,
        entries=0,
        entries_checksum=entries_checksum(()),
        flags=0,
    )
    return b"".join(encode_header(salt, header) for salt in (0, 1, 2**64 - 1, 0x1234_5678))


@pytest.mark.parametrize("torn", ["header", "payload"])
def test_payload_that_looks_like_a_group_does_not_pass_for_one(torn: str) -> None:
    disk = SimDisk()
    engine, committer = open_engine(disk)
    engine.append([Records(A, [b"first"])])
    committer.run()
    aligned = [forged_group(number).rjust(size) for number, size in ((2, 296), (3, 296), (9, 304))]
    engine.append([Records(A, [*aligned, forged_group(3)])])
    engine.append([], events=[forged_group(3)])
    committer.run()
    whole = disk.kill()
    engine, _ = open_engine(whole.copy())
    assert [record.value for record in read(engine, A, 0)] == [b"first", *aligned, forged_group(3)]

    path = max(path for path in whole.paths() if path.endswith(".journal"))
    content = bytearray(whole.content(path))
    second = content.index(b"PSG1", content.index(b"first")) if b"first" in content else FIRST_GROUP_AT
    at = second if torn == "header" else content.index(aligned[0]) - 1
    content[at] ^= 0xFF
    whole.replace(path, bytes(content))
    engine, _ = open_engine(whole)
    assert [record.value for record in read(engine, A, 0)] == [b"first"]


# -- verify and repair


def group_places() -> list[tuple[str, int, int, int]]:
    """(path, start, end, groups of the model before it) of every group in the small journal."""
    disk, places, before = journal().disk.copy(), [], 0
    for sequence in sequences(disk):
        for group in Scan(Segment.open(disk, sequence, writable=False)).groups():
            places.append((journal_path(sequence), group.file_offset, group.file_offset + len(group.data), before))
            before += bool(group.entries)
    assert before == len(journal().model.groups)
    return places


def repair_and_check(damaged: SimDisk) -> int | None:
    """Repair; returns how many groups are left, or None if nothing could be saved, and then nothing was changed."""
    told = journal()
    before = {path: damaged.content(path) for path in damaged.paths()}
    try:
        repair(damaged, "kept")
    except LogError:
        assert {path: damaged.content(path) for path in damaged.paths()} == before
        return None
    kept = {path.removeprefix("kept/"): damaged.content(path) for path in damaged.paths() if path.startswith("kept/")}
    for path, content in before.items():
        if path not in damaged.paths() or damaged.content(path) != content:
            assert kept[path.rpartition("/")[2]] == content, f"{path} was changed, and is not in the copy"
    assert verify(damaged).damage == []
    left = outcome(told, damaged)
    assert left is not None, "the repaired log is still damaged"
    return left


def test_verify_finds_nothing_in_a_whole_journal() -> None:
    told = journal()
    report = verify(told.disk.copy())
    assert report.findings == []
    assert report.records == sum(len(records) for records in told.model.tail.records.values())
    assert report.groups >= len(told.model.groups)


@pytest.mark.parametrize("where", [0, 0.5, 1])
def test_a_damaged_group_is_found_and_cut_off(where: float) -> None:
    told = journal()
    for path, start, end, before in group_places()[:-1]:
        content = bytearray(told.disk.content(path))
        content[start + int(where * (end - start - 1))] ^= 0xFF
        disk = told.with_file(path, bytes(content))
        report = verify(disk)
        assert [(finding.path, finding.position) for finding in report.damage][:1] == [(path, start)]
        assert repair_and_check(disk) == before


def test_a_missing_or_short_file_is_found_and_the_rest_cut_off() -> None:
    told = journal()
    firsts: dict[str, int] = {}
    for path, _, _, before in group_places():
        firsts.setdefault(path, before)
    oldest = min(firsts)
    for path, before in firsts.items():
        for content in (None, b"", told.disk.content(path)[:100], told.disk.content(path)[:FIRST_GROUP_AT]):
            disk = told.with_file(path, content)
            found = {finding.path for finding in verify(disk).damage}
            if (path, content) == (oldest, None):
                assert found  # nothing says that there was a file before
                continue
            assert path in found
            left = repair_and_check(disk)
            assert left == before or (left is None and path == oldest), (path, left)


def test_when_the_oldest_file_is_missing_the_log_starts_behind_it() -> None:
    told = journal()
    path, start, _, _ = group_places()[0]
    assert start == FIRST_GROUP_AT
    disk = told.with_file(path, None)
    repair(disk, "kept")
    assert verify(disk).damage == []
    engine, _ = open_engine(disk)
    assert all_events(engine.recover()) == told.model.tail.events
    for partition in (A, B):
        first, end = engine.bounds(partition)
        expected = told.model.tail.records[partition]
        assert 0 < first < end == len(expected)
        assert read(engine, partition, first) == expected[first:]


def test_verify_finds_whatever_opening_or_reading_refuses() -> None:
    """`verify` finds all damage that opening or reading refuses, and damage that no reader happens to meet."""
    told = journal()
    for path in told.disk.paths():
        content = told.disk.content(path)
        for position in range(0, len(content), 13):
            if path.endswith(".journal") and HEADER_SIZE < position < FIRST_GROUP_AT:
                continue
            flipped = bytearray(content)
            flipped[position] ^= 0x10
            disk = told.with_file(path, bytes(flipped))
            damage = verify(disk).damage
            if outcome(told, disk) is None:
                assert damage, f"byte {position} of {path}"


def test_a_repaired_log_goes_on() -> None:
    told = journal()
    path, start, _, before = group_places()[5]
    content = bytearray(told.disk.content(path))
    content[start] ^= 0xFF
    disk = told.with_file(path, bytes(content))
    assert repair_and_check(disk) == before
    engine, committer = open_engine(disk)
    end = engine.bounds(A).high_watermark
    assert engine.append([Records(A, [b"after the repair"])]).base_offsets == (end,)
    committer.run()
    disk = disk.kill()
    engine, _ = open_engine(disk)
    assert read(engine, A, end)[0].value == b"after the repair"
