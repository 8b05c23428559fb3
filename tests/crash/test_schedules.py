"""Random schedules of work and crashes on the simulated disk, each compared with the model.

`PENSTOCK_CRASH_SEEDS` sets how many random schedules run. A failure names its seed; `python -m tests.crash.long
--schedule SEED` does the same again.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.crash import schedule
from tests.crash.simdisk import Crash, SimDisk
from tests.log.harness import read_all

from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records
from penstock.log.file_engine import FileEngine, LogSettings

SEEDS = int(os.environ.get("PENSTOCK_CRASH_SEEDS", "1000"))
CHUNKS = 10
BOUNDARY_SEEDS = range(3)


def run_seed(seed: int) -> schedule.Schedule:
    try:
        return schedule.run(seed)
    except Exception as error:
        error.add_note(f"schedule {seed}; to repeat it: python -m tests.crash.long --schedule {seed}")
        raise


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules(chunk: int) -> None:
    crashes = reads = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        done = run_seed(seed)
        crashes += done.crashes
        reads += done.table.reads > 0
    assert crashes >= SEEDS // CHUNKS, "hardly any schedule crashed: they test nothing"
    assert reads >= SEEDS // CHUNKS // 25, "hardly any schedule read from a table: they do not test it"


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("durability", [Durability.SYNCED, Durability.WRITTEN])
@pytest.mark.parametrize("seed", BOUNDARY_SEEDS)
def test_a_crash_at_every_boundary(seed: int, durability: Durability, power: bool) -> None:
    boundaries, _ = schedule.run_every_boundary(seed, power=power, durability=durability)
    assert boundaries > 20


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("seed", [4, 32, 54])
def test_a_crash_at_every_boundary_while_files_become_tables(seed: int, power: bool) -> None:
    """Among them: after the table's commit and before the journal's, and between that and the removal of files."""
    boundaries, reads = schedule.run_every_boundary(seed, power=power, steps=36, tabling=0.3)
    assert boundaries > 20
    assert reads > boundaries // 10, "hardly anything was read from a table"


def test_remains_of_lost_groups_do_not_come_back() -> None:
    """At level `written` a crash may lose a group and keep those behind it. A new group of the same length then lies
    exactly where the lost one lay, and the old ones behind it, whole and with the right numbers, must be gone."""
    lost = 0
    settings = LogSettings(durability=Durability.WRITTEN, file_bytes=16384)
    for seed in range(60):
        disk = SimDisk()
        for restart in range(3):
            committer = InlineCommitter()
            engine = FileEngine(disk, settings, committer=committer, clock=lambda: schedule.START)
            found = [record.value for record in read_all(engine, schedule.PARTITIONS[0])]
            if restart == 1:
                lost += len(found) < 12
                expected = [*found, b"new--00"]
            elif restart == 2:
                assert found == expected, f"seed {seed}"
            for i in range((12, 1, 0)[restart]):
                value = b"new--%02d" % i if restart else b"value%02d" % i
                engine.append([Records(schedule.PARTITIONS[0], [value])])
                committer.run()
            disk = disk.kill() if restart else disk.crash(Random(seed))
    assert lost > 10, "hardly anything was lost: this tests nothing"


# -- the simulated disk itself: it must lose what can be lost, and nothing else


def outcomes(build: SimDisk, path: str) -> set[bytes]:
    found = set()
    for seed in range(200):
        left = build.crash(Random(seed))
        found.add(left.content(path) if path in left.paths() else b"<missing>")
    return found


def test_synced_bytes_survive_and_unsynced_ones_may_or_may_not() -> None:
    disk = SimDisk()
    file = disk.create("f", 1024)
    file.write(0, b"a" * 1024)
    file.sync()
    disk.sync_directory("")
    file.write(0, b"b" * 1024)
    a, b = b"a" * 512, b"b" * 512
    assert outcomes(disk, "f") == {a + a, a + b, b + a, b + b}


def test_a_reserved_area_reads_as_zeros_and_its_size_may_be_lost() -> None:
    disk = SimDisk()
    disk.create("f", 700)
    disk.sync_directory("")
    assert outcomes(disk, "f") == {b"", bytes(700)}


def test_a_name_needs_a_sync_of_its_directory() -> None:
    disk = SimDisk()
    disk.create("f", 0).sync()
    assert outcomes(disk, "f") == {b"<missing>", b""}


def test_a_rename_is_all_or_nothing() -> None:
    disk = SimDisk()
    for name in ("old", "new"):
        file = disk.create(name, 0)
        file.write(0, name.encode())
        file.sync()
    disk.sync_directory("")
    disk.rename("new", "old")
    assert outcomes(disk, "old") == {b"old", b"new"}
    assert outcomes(disk, "new") == {b"new", b"<missing>"}


def test_a_failed_sync_is_not_made_good_by_a_later_one() -> None:
    disk = SimDisk()
    file = disk.create("f", 512)
    file.sync()
    disk.sync_directory("")
    disk.fail("sync")
    file.write(0, b"x" * 512)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert outcomes(disk, "f") == {bytes(512), b"x" * 512}


def test_a_kill_keeps_everything_written_but_makes_nothing_durable() -> None:
    disk = SimDisk()
    file = disk.create("f", 512)
    file.sync()
    disk.sync_directory("")
    file.write(0, b"x" * 512)
    after = disk.kill()
    assert after.content("f") == b"x" * 512
    assert outcomes(after, "f") == {bytes(512), b"x" * 512}


def test_a_crash_can_be_anywhere_and_stops_the_disk() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.create("f", 0)
        file.write(0, b"x" * 2048)
        file.sync()
        disk.sync_directory("")

    whole = SimDisk()
    work(whole)
    for boundary in range(whole.operations):
        disk = SimDisk()
        disk.crash_at(boundary)
        with pytest.raises(Crash):
            work(disk)
        with pytest.raises(Crash):
            disk.list("")
    halfway = SimDisk()
    halfway.crash_at(2)
    with pytest.raises(Crash):
        work(halfway)
    assert halfway.kill().content("f") == b"x" * 1024


def test_a_full_disk_refuses_until_there_is_room() -> None:
    disk = SimDisk(capacity=1000)
    file = disk.create("f", 600)
    with pytest.raises(OSError, match="No space left"):
        disk.create("g", 600)
    file.write(0, b"x" * 600)
    with pytest.raises(OSError, match="No space left"):
        file.write(600, b"y" * 600)
    assert disk.content("f") == b"x" * 600 + b"y" * 400
    disk.capacity = 2000
    disk.create("g", 600)
