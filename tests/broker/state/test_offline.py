"""A data directory without a broker: the same as a broker that starts would know, and nothing is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.crash.simdisk import Crash, SimDisk

from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.offline import OfflineBusy, OfflineLog, OfflineMissing
from penstock.broker.state.state import encode_snapshot
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Bounds, Records, Retention, partition_id
from penstock.log.errors import LogDamaged
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.lock import DirectoryLock
from penstock.log.segment import FIRST_GROUP_AT, journal_path, sequences
from penstock.log.snapshots import groups, snapshot_path

SMALL = LogSettings(file_bytes=FIRST_GROUP_AT + 1024, group_bytes=2048, tail_bytes=0, snapshot_bytes=2048)
PLACE = partition_id(1, 0)


def offline(disk: SimDisk) -> OfflineLog:
    return OfflineLog(disk, "data", lambda: None)


def values(log: OfflineLog, place: int = PLACE) -> list[bytes]:
    start, end = log.bounds(partition_id(place >> 32, place & 0xFFFFFFFF))
    partition = partition_id(place >> 32, place & 0xFFFFFFFF)
    return [value for part in log.tailer.slices(partition, start, end) for value in part.values()]


def assert_same(log: OfflineLog, fixture: BrokerFixture) -> None:
    """Offline is known what a broker knows that starts on a copy of the disk."""
    other = BrokerFixture.__new__(BrokerFixture)
    other.__dict__ |= fixture.__dict__ | {"disk": fixture.disk.copy()}
    other.open()
    state = other.broker.state_log.state
    assert encode_snapshot(log.state) == encode_snapshot(state)
    for topic in state.topics_by_id.values():
        for number in range(topic.partitions):
            partition = partition_id(topic.id, number)
            assert log.bounds(partition) == other.engine.bounds(partition)
            start, end = log.bounds(partition)
            found = [value for part in log.tailer.slices(partition, start, end) for value in part.values()]
            expected: list[bytes] = []
            while start < end:
                for part in other.engine.read(partition, start, 1 << 30, 1 << 30).run():
                    expected += part.values()
                    start = part.end_offset
            assert found == expected


def worked(settings: LogSettings | None = None, seed: int = 0, steps: int = 40) -> BrokerFixture:
    """A broker that has seen a bit of everything."""
    fixture = BrokerFixture(settings)
    work(fixture, Random(seed), steps)
    return fixture


def work(fixture: BrokerFixture, rng: Random, steps: int) -> None:
    broker = fixture.broker
    for i in range(steps):
        names = [topic.name for topic in broker.topics.list(ME, HERE)]
        match rng.randrange(6) if names else 0:
            case 0 if len(names) < 5:
                broker.topics.create(ME, HERE, f"t{fixture.now}", rng.randint(1, 3), TopicSettings())
            case 1:
                broker.groups.commit(ME, HERE, "g", rng.choice(names), 0, i)
            case 2 if rng.random() < 0.2:
                broker.topics.delete(ME, HERE, rng.choice(names))
            case _:
                broker.produce.append(ME, HERE, rng.choice(names), 0, [b"%d" % i] * rng.randint(1, 5))
        fixture.pass_time(1)
        fixture.commit()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [None, SMALL], ids=["one file", "many files"])
def test_it_knows_what_a_broker_would(settings: LogSettings | None, seed: int) -> None:
    fixture = worked(settings, seed)
    before = fixture.disk.copy()
    log = offline(fixture.disk)
    assert_same(log, fixture)
    assert {path: fixture.disk.content(path) for path in fixture.disk.paths()} == {
        path: before.content(path) for path in before.paths()
    }
    work(fixture, Random(seed + 100), 30)
    log.refresh()
    assert_same(log, fixture)
    fixture.broker.close()
    log.refresh()
    assert_same(log, fixture)


def test_schemas_removals_and_trims() -> None:
    fixture = BrokerFixture(SMALL)
    fixture.broker.topics.create(ME, HERE, "t", 1, TopicSettings(expiry_seconds=60.0))
    work = fixture.broker.schemas.register(ME, HERE, "s", SchemaKind.JSON, b'{"type": "object"}')
    work.run()
    work.finish()
    for i in range(200):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"%0100d" % i])
        fixture.pass_time(1)
        fixture.commit()
    log = offline(fixture.disk)
    assert log.state.schemas[HERE]["s"].versions[1].definition == b'{"type": "object"}'
    view = log.view(log.state.topics[HERE]["t"], 0, fixture.now)
    assert view.horizon == fixture.now - 60_000_000
    for _ in range(8):
        fixture.engine.maintain(fixture.now, lambda _: Retention(bytes=0))
        fixture.commit()
    log.refresh()
    assert log.bounds(PLACE).start > 0
    assert sequences(fixture.disk)[0] > 1
    assert_same(log, fixture)


@pytest.mark.parametrize("seed", range(25))
def test_after_a_loss_of_power_in_the_middle_of_something(seed: int) -> None:
    rng = Random(seed)
    fixture = worked(SMALL, seed, 25)
    fixture.disk.crash_at(fixture.disk.operations + rng.randint(0, 40))
    with pytest.raises(Crash):
        work(fixture, rng, 1000)
    fixture.disk = fixture.disk.crash(rng)
    assert_same(offline(fixture.disk), fixture)


def test_a_torn_tail_is_passed_over_and_left_where_it_is() -> None:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ME, HERE, "t", 1, TopicSettings())
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"kept"])
    fixture.commit()
    fixture.disk.crash_at(fixture.disk.operations + 1)  # in the middle of the next write
    with pytest.raises(Crash):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"torn" * 500])
        fixture.commit()
    fixture.disk = fixture.disk.kill()
    before = fixture.disk.content(journal_path(1))
    log = offline(fixture.disk)
    assert values(log) == [b"kept"]
    assert fixture.disk.content(journal_path(1)) == before
    fixture.open()  # cuts it off
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"next"])
    fixture.commit()
    log.refresh()
    assert values(log) == [b"kept", b"next"]


def test_the_end_is_synced_before_it_is_believed() -> None:
    """Data that was only written when the broker was killed must not be shown and then lost with the power."""
    fixture = BrokerFixture(LogSettings(durability="written", file_bytes=64 << 10))  # type: ignore[arg-type]
    fixture.broker.topics.create(ME, HERE, "t", 1, TopicSettings())
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"a"])
    fixture.commit()
    disk = fixture.disk.kill()
    assert values(offline(disk)) == [b"a"]
    for seed in range(20):
        assert values(offline(disk.crash(Random(seed)))) == [b"a"]


def test_damage_is_told_with_its_place() -> None:
    fixture = worked(SMALL)
    fixture.disk.delete(journal_path(sequences(fixture.disk)[-2]))
    with pytest.raises(LogDamaged, match="the file is missing"):
        offline(fixture.disk)
    fixture = worked(None)
    content = bytearray(fixture.disk.content(journal_path(1)))
    content[FIRST_GROUP_AT + 100] ^= 1
    fixture.disk.replace(journal_path(1), bytes(content))
    with pytest.raises(LogDamaged, match="written after this had been synced") as refused:
        offline(fixture.disk)
    assert (refused.value.path, refused.value.position) == (journal_path(1), FIRST_GROUP_AT)


def test_a_damaged_snapshot_is_passed_over() -> None:
    fixture = worked(SMALL)
    newest = snapshot_path(groups(fixture.disk)[-1])
    fixture.disk.replace(newest, b"x" + fixture.disk.content(newest)[1:])
    assert_same(offline(fixture.disk), fixture)


def test_a_journal_that_lost_its_beginning_is_damaged() -> None:
    fixture = worked(SMALL)
    for group in groups(fixture.disk):
        fixture.disk.delete(snapshot_path(group))
    for sequence in sequences(fixture.disk)[:-1]:
        fixture.disk.delete(journal_path(sequence))
    with pytest.raises(LogDamaged, match="no snapshot reaches that far"):
        offline(fixture.disk)


# -- real directories


def write(root: Path, *payloads: bytes) -> None:
    """The directory that a broker leaves."""
    lock = DirectoryLock(str(root))
    lock.acquire()
    committer = InlineCommitter()
    engine = FileEngine(OsFiles(str(root)), SMALL, committer=committer, clock=lambda: 1)
    engine.append([Records(PLACE, payloads)])
    committer.run()
    engine.close()
    lock.release()


def test_a_directory_in_which_there_is_no_log(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", Path(__file__)):
        with pytest.raises(OfflineMissing, match="no Penstock log in"):
            OfflineLog.open(str(path))
    assert list(tmp_path.iterdir()) == []


def test_it_writes_nothing_into_the_directory(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    (tmp_path / "LOCK").unlink()
    (tmp_path / "journal" / "new.tmp").write_bytes(b"left over")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    log = OfflineLog.open(str(tmp_path))
    assert values(log) == [b"a"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_directory_that_may_only_be_read(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    for path in tmp_path.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert values(OfflineLog.open(str(tmp_path))) == [b"a"]
    finally:
        for path in tmp_path.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_what_a_broker_wrote_in_between_is_seen_and_a_running_one_refuses(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    log = OfflineLog.open(str(tmp_path))
    write(tmp_path, b"b", b"c")
    assert log.bounds(PLACE) == Bounds(0, 1)
    log.refresh()
    assert log.bounds(PLACE) == Bounds(0, 3)
    lock = DirectoryLock(str(tmp_path))
    lock.acquire()
    for look in (log.refresh, lambda: OfflineLog.open(str(tmp_path))):
        with pytest.raises(OfflineBusy, match=f"process {os.getpid()} .*bootstrap.servers"):
            look()
    lock.release()
    log.refresh()
    assert values(log) == [b"a", b"b", b"c"]


@pytest.mark.process
def test_readers_do_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    code = "import sys\nfrom penstock.log.lock import holder\nprint(flush=True)\nwhile True: holder(sys.argv[1])"
    reader = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        reader.stdout.readline()
        for _ in range(20):
            lock = DirectoryLock(str(tmp_path))
            lock.acquire()
            lock.release()
    finally:
        reader.send_signal(signal.SIGKILL)
        reader.communicate()
