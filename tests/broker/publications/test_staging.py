from __future__ import annotations

import errno
from random import Random

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.harness import A, columns_of

from penstock.broker.errors import StagedNotFound
from penstock.broker.publications.staging import (
    DIRECTORY,
    KEPT_US,
    UNFINISHED,
    Chunk,
    Manifest,
    Ref,
    StagedWriter,
    Staging,
    leftovers,
    new_ref,
    parse_ref,
)
from penstock.log.engine import Records

NOW = 1_700_000_000_000_000
REF = new_ref(b"k" * 16, 7, NOW, bytes)
COLUMNS = [columns_of(Records(A, [b"%d" % n] * (n + 1), keys=[b"key"] * (n + 1))) for n in range(4)]


def write(disk: SimDisk, ref: Ref = REF, *, sync: bool = True) -> StagedWriter:
    writer = StagedWriter(disk, ref, sync=sync)
    for number, columns in enumerate(COLUMNS):
        writer.add(1 + number % 2, f"topic-{1 + number % 2}", number, columns)
    return writer


def places(manifest: Manifest) -> list[tuple[str, Chunk]]:
    return [(str(REF), chunk) for chunk in manifest.chunks]


def test_a_staged_file_holds_what_was_added() -> None:
    disk = SimDisk()
    staged = write(disk).finish()
    assert staged == (str(REF), 10)
    staging = Staging(disk)
    manifest = staging.manifest(staged.ref)
    assert manifest.topics == {1: "topic-1", 2: "topic-2"}
    assert [(chunk.topic, chunk.partition, chunk.count) for chunk in manifest.chunks] == [
        (1, 0, 1), (2, 1, 2), (1, 2, 3), (2, 3, 4),
    ]  # fmt: skip
    assert staging.read(places(manifest)) == COLUMNS
    assert staging.read(places(manifest)[2:3]) == COLUMNS[2:3]
    assert staging.names() == [staged.ref]


def test_nothing_has_a_name_before_it_is_whole_and_nothing_is_left_of_what_was_abandoned() -> None:
    disk = SimDisk()
    writer = write(disk)
    assert Staging(disk).names() == [f"{REF}{UNFINISHED}"]
    with pytest.raises(StagedNotFound):
        Staging(disk).manifest(str(REF))
    writer.abandon()
    assert Staging(disk).names() == []


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_file_that_cannot_be_written_leaves_nothing(operation: str) -> None:
    disk = SimDisk()
    writer = write(disk)
    disk.fail(operation, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        writer.finish()
    writer.abandon()
    assert Staging(disk).names() == []


def test_what_is_synced_survives_a_loss_of_power_at_any_moment() -> None:
    for seed in range(50):
        disk = SimDisk()
        staged = write(disk).finish()
        staging = Staging(disk.crash(Random(seed)))
        assert staging.read(places(staging.manifest(staged.ref))) == COLUMNS


def test_without_a_sync_a_loss_of_power_is_noticed() -> None:
    outcomes = set()
    for seed in range(100):
        disk = SimDisk()
        staged = write(disk, sync=False).finish()
        disk.sync_directory(DIRECTORY)
        staging = Staging(disk.crash(Random(seed)))
        try:
            assert staging.read(places(staging.manifest(staged.ref))) == COLUMNS
            outcomes.add("whole")
        except StagedNotFound as error:
            outcomes.add("damaged" if "damaged" in str(error) else "gone")
    assert outcomes == {"whole", "damaged"}


@pytest.mark.parametrize("at", [0, 50, -1, -12, -20])
def test_damage_is_told_wherever_it_is(at: int) -> None:
    disk = SimDisk()
    staged = write(disk).finish()
    path = f"{DIRECTORY}/{staged.ref}"
    data = bytearray(disk.content(path))
    data[at] ^= 0x55
    disk.replace(path, bytes(data))
    staging = Staging(disk)
    if at == -1:  # of the trailer's padding: no harm
        staging.manifest(staged.ref)
        return
    with pytest.raises(StagedNotFound, match="damaged"):
        staging.read(places(staging.manifest(staged.ref)))


@pytest.mark.parametrize("length", [0, 3, 16, 40])
def test_a_file_that_was_cut_is_told(length: int) -> None:
    disk = SimDisk()
    staged = write(disk).finish()
    path = f"{DIRECTORY}/{staged.ref}"
    disk.replace(path, disk.content(path)[:length])
    with pytest.raises(StagedNotFound, match="damaged"):
        Staging(disk).manifest(staged.ref)


def test_names_tell_whose_it_is_and_nothing_else_is_one() -> None:
    assert parse_ref(str(REF)) == REF
    for name in ("", "x", "../journal", str(REF).upper(), f"{REF} ", f"{REF}\n", f"{REF}{UNFINISHED}", f"../{REF}"):
        assert parse_ref(name) is None


def test_a_directory_that_is_not_there_holds_nothing() -> None:
    for staging in (Staging(SimDisk()), Staging()):
        assert staging.names() == []
        staging.remove(["x"])
        with pytest.raises(StagedNotFound):
            staging.manifest(str(REF))


def test_leftovers_are_what_is_published_or_old_and_not_in_use() -> None:
    def name(batch: int, at: int = NOW, key: bytes = b"k" * 16) -> str:
        return str(Ref(key, batch, at, bytes(8)))

    old, other = NOW - KEPT_US, b"o" * 16
    names = [
        name(6), name(7), name(7) + UNFINISHED, name(8), name(9, old), name(9, old + 1), name(10, old),
        name(0, key=other), name(0, old, other) + UNFINISHED, "unknown",
    ]  # fmt: skip
    found = leftovers(names, lambda key: 7 if key == b"k" * 16 else -1, {name(10, old)}.__contains__, NOW)
    assert found == [name(6), name(7), name(7) + UNFINISHED, name(9, old), name(0, old, other) + UNFINISHED]


def test_what_was_not_finished_when_the_broker_ended_is_a_leftover_too() -> None:
    names = [str(Ref(b"k" * 16, 0, at, bytes(8))) + suffix for at in (NOW - 1, NOW) for suffix in ("", UNFINISHED)]
    assert leftovers(names, lambda _: -1, lambda _: False, NOW, NOW) == [names[1]]


def test_what_was_published_is_removed_with_everything_before_it() -> None:
    disk = SimDisk()
    for batch, key in ((6, b"k"), (7, b"k"), (8, b"k"), (6, b"o")):
        write(disk, new_ref(key * 16, batch, NOW, bytes)).finish()
    staging = Staging(disk)
    staging.remove_published(b"k" * 16, 7)
    left = [parse_ref(name) for name in staging.names()]
    assert [(ref.key[:1], ref.batch) for ref in left if ref] == [(b"k", 8), (b"o", 6)]
