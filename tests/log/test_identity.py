"""A data directory whose journal is gone is told from a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.crash.simdisk import SimDisk
from tests.log.harness import A

from penstock.log import identity
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Bounds, Records
from penstock.log.errors import JournalMissing, LogError
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import Files, OsFiles
from penstock.log.repair import repair
from penstock.log.verify import verify

SETTINGS = LogSettings(file_bytes=8192, group_bytes=4096)
NOW = 1_700_000_000_000_000


def opened(files: Files) -> FileEngine:
    return FileEngine(files, SETTINGS, committer=InlineCommitter(), clock=lambda: NOW)


def used(root: Path) -> OsFiles:
    """A directory in which something was stored, closed like after a kill: without a snapshot."""
    files, committer = OsFiles(str(root)), InlineCommitter()
    engine = FileEngine(files, SETTINGS, committer=committer, clock=lambda: NOW)
    engine.append([Records(A, [b"stored"])])
    committer.run()
    return files


def test_a_new_directory_gets_an_identity_with_its_journal(tmp_path: Path) -> None:
    opened(OsFiles(str(tmp_path / "data"))).close()
    found = msgspec.json.decode((tmp_path / "data" / identity.PATH).read_bytes(), type=identity.Identity)
    assert found.created == "2023-11-14T22:13:20+00:00" and len(found.id) == 32
    opened(OsFiles(str(tmp_path / "data"))).close()
    again = msgspec.json.decode((tmp_path / "data" / identity.PATH).read_bytes(), type=identity.Identity)
    assert again == found


@pytest.mark.parametrize("whole", [False, True])
def test_a_journal_that_is_gone_is_refused_and_nothing_is_changed(tmp_path: Path, whole: bool) -> None:
    files = used(tmp_path)
    if whole:
        shutil.rmtree(tmp_path / "journal")
    else:
        (tmp_path / "journal" / "00000000000000000001.journal").unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(JournalMissing, match=r"the journal is gone.*IDENTITY.*Nothing was changed.*begin anew"):
        opened(files)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(LogError, match="the journal is gone"):
        repair(files, "kept")
    assert any("the journal is gone" in finding.reason for finding in verify(files).damage)


def test_removing_what_the_message_names_begins_anew(tmp_path: Path) -> None:
    files = used(tmp_path)
    (tmp_path / "journal" / "00000000000000000001.journal").unlink()
    before = (tmp_path / identity.PATH).read_bytes()
    (tmp_path / identity.PATH).unlink()
    engine = opened(files)
    assert engine.position == 0 and engine.bounds(A) == Bounds(0, 0)
    engine.close()
    assert (tmp_path / identity.PATH).read_bytes() != before


@pytest.mark.parametrize(
    "trace", ["snapshots/00000000000000000007.snapshot", "tables/orders", "staging/x", "journal/1.index"]
)
def test_a_directory_of_an_earlier_version_is_known_by_other_traces(tmp_path: Path, trace: str) -> None:
    path = tmp_path / trace
    path.parent.mkdir()
    path.write_bytes(b"")
    with pytest.raises(JournalMissing, match=trace.split("/")[0]):
        opened(OsFiles(str(tmp_path)))


@pytest.mark.parametrize("other", ["LOCK", "certificates/felix.key", "pipeline/project.yml", "journal/new.tmp"])
def test_what_is_there_before_the_first_start_is_no_trace(tmp_path: Path, other: str) -> None:
    path = tmp_path / other
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    opened(OsFiles(str(tmp_path))).close()
    assert (tmp_path / identity.PATH).exists()
    assert path.exists() == (path.suffix != ".tmp")  # nobody else's file is removed


def test_an_earlier_version_s_directory_gets_its_identity(tmp_path: Path) -> None:
    files = used(tmp_path)
    (tmp_path / identity.PATH).unlink()
    opened(files).close()
    assert (tmp_path / identity.PATH).exists()


def test_a_crash_at_any_moment_of_the_first_start_leaves_a_directory_that_opens() -> None:
    from random import Random

    from tests.crash.simdisk import Crash

    whole = SimDisk()
    opened(whole)
    for step in range(whole.operations):
        for seed in range(4):
            disk = SimDisk()
            disk.crash_at(step)
            with pytest.raises(Crash):
                opened(disk)
            opened(disk.crash(Random(seed)))
