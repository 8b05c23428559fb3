"""The history of a table, as maintenance keeps it: it reads each entry of the log once, and never deletes a file that
a version within the time of keeping needs, whatever happens between two runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from random import Random

import pytest
from tests.log.tables.source import Source, spans
from tests.log.tables.test_build import agree

from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.errors import TableNotWritten
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.table_history import LONGEST_PAUSE, SWEEPS, TableHistory

pytestmark = pytest.mark.crash

SECOND = 1_000_000
HOUR = 3600 * SECOND
KEEP = 240.0  # seconds; so files are searched for every ten
START = 4_000_000_000 * SECOND  # later than the times of files on the disk


class AgingTable:
    """A table in a time that the test moves, with the times of its files, and the moment of each version."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.now = START
        self.history = TableHistory()
        self.made: dict[int, int] = {}  # version → when
        self._dated: set[str] = set()
        self._segments = 0

    def step(self, action: str) -> None:
        match action:
            case "build":
                self._segments += 1
                self.source.fill(self._segments)
                segment = self.source.closed()[self._segments - 1]
                build(self.source.ref, segment, spans(segment))
            case "compact":
                maintenance.compact(self.source.ref, min_files=2)
            case "clean":
                maintenance.clean(self.source.ref, self.now, keep_seconds=KEEP, history=self.history)
            case "restart":
                self.history = TableHistory()
        self._date()

    def merge(self) -> None:
        """Build until there is something to merge, and merge it."""
        replaced = len(TableStore(self.source.ref).data_files())
        while len(TableStore(self.source.ref).data_files()) < replaced + 9:
            self.step("build")
        before = self.source.table().version
        self.step("compact")
        assert self.source.table().version == before + 1

    def _date(self) -> None:
        """Give files that are new the time of the test."""
        for path in Path(self.source.ref.url).rglob("*"):
            if path.is_file() and str(path) not in self._dated:
                self._dated.add(str(path))
                os.utime(path, ns=(self.now * 1000, self.now * 1000))
        self.made.setdefault(self.source.table().version, self.now)

    def check(self) -> None:
        """Every version that somebody could have opened within `KEEP` has all its files."""
        since, versions = self.now - int(KEEP * SECOND), sorted(self.made)
        replaced = dict(zip(versions, [self.made[version] for version in versions[1:]], strict=False))
        for version in versions:
            if replaced.get(version, self.now + 1) > since:
                table = Table.open(self.source.ref, version)
                assert table is not None
                missing = [uri for uri in table.file_uris() if not os.path.exists(uri)]
                assert not missing, f"version {version}"


@pytest.fixture
def aging(source: Source) -> AgingTable:
    made = AgingTable(source)
    made.merge()
    made.step("clean")
    return made


def read_entries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries of the log that are read from now on."""
    found: list[str] = []
    read = TableStore.read

    def noted(store: TableStore, path: str) -> bytes:
        found.append(path.rsplit("/", 1)[1].lstrip("0"))
        return read(store, path)

    monkeypatch.setattr(TableStore, "read", noted)
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_file_that_a_kept_version_needs_is_deleted(
    aging: AgingTable, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds, merges, searches, restarts, and errors in the middle of reading or deleting, in any order."""
    random = Random(seed)
    remove, read = TableStore.remove, TableStore.read
    left = 1 << 30  # calls until something fails

    def failing() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("the disk does not answer")

    def removing(store: TableStore, paths: list[str]) -> None:
        for path in paths:
            failing()
            remove(store, [path])

    def reading(store: TableStore, path: str) -> bytes:
        failing()
        return read(store, path)

    monkeypatch.setattr(TableStore, "remove", removing)
    monkeypatch.setattr(TableStore, "read", reading)
    deleted = 0
    for _ in range(40):
        aging.now += random.choice((1, 20, 45)) * SECOND
        action = random.choice(("build", "build", "compact", "clean", "clean", "restart", "fail"))
        before = len(TableStore(aging.source.ref).data_files())
        if action == "fail":
            left = random.randrange(6)
            with contextlib.suppress(TableNotWritten):
                aging.step("clean")
            left = 1 << 30
            if random.random() < 0.3:  # it was killed
                aging.step("restart")
        else:
            aging.step(action)
        deleted += max(0, before - len(TableStore(aging.source.ref).data_files()))
        aging.check()
    assert deleted
    agree(aging.source, aging.source.table().ends())


def test_an_entry_is_read_once(aging: AgingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    first = aging.source.table().version
    aging.now += int(2 * KEEP * SECOND)  # what was merged at first is deleted now
    aging.merge()
    read = read_entries(monkeypatch)
    aging.step("clean")
    last = aging.source.table().version
    assert read == [f"{version}.json" for version in range(first + 1, last + 1)]  # older ones are of no use
    read.clear()
    aging.now += int(KEEP * SECOND) - SECOND
    for action in ("build", "clean"):
        aging.step(action)
    assert read == [f"{last + 1}.json"]
    aging.now += 20 * SECOND
    aging.step("clean")
    assert read == [f"{last + 1}.json"]
    assert len(TableStore(aging.source.ref).data_files()) == len(aging.source.table().file_uris())
    aging.check()


def test_after_an_error_the_same_entry_is_read_again(aging: AgingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry of the merge, whose files were just replaced: if it were forgotten, they would be deleted."""
    aging.now += int(KEEP * SECOND) - 10 * SECOND  # the first ones may be deleted soon, so that the log is asked
    aging.merge()
    aging.now += 11 * SECOND
    merged, read = aging.source.table().version, TableStore.read

    def failing(store: TableStore, path: str) -> bytes:
        if path.endswith(f"{merged}.json"):
            raise OSError("the disk does not answer")
        return read(store, path)

    with monkeypatch.context() as patch:
        patch.setattr(TableStore, "read", failing)
        with pytest.raises(TableNotWritten, match="does not answer"):
            aging.step("clean")
    aging.now += int(KEEP * SECOND) - 20 * SECOND
    aging.step("clean")
    aging.check()
    aging.now += 30 * SECOND
    aging.step("clean")
    assert len(TableStore(aging.source.ref).data_files()) == len(aging.source.table().file_uris())


def test_a_log_that_is_another_one_is_read_again(aging: AgingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a repair, or when a copy was put back."""
    aging.now += 20 * SECOND
    aging.merge()
    aging.now += int(KEEP * SECOND) - 10 * SECOND
    read = read_entries(monkeypatch)
    aging.step("clean")
    known = len(read)
    assert known
    entry = max(Path(aging.source.ref.url, "_delta_log").glob("*.json"))
    os.utime(entry, ns=((aging.now - SECOND) * 1000,) * 2)
    aging.now += 11 * SECOND
    aging.step("clean")
    assert read[known:] == [entry.name.lstrip("0")]  # the others are too old by now
    aging.check()


def test_when_files_are_searched_for() -> None:
    history = TableHistory()
    week = 7 * 24 * HOUR
    assert history.due(START, week)
    history.swept(START)
    assert not history.due(START, week) and not history.due(START + LONGEST_PAUSE - 1, week)
    assert history.due(START + LONGEST_PAUSE, week)
    assert history.due(START + HOUR // SWEEPS, HOUR) and not history.due(START + HOUR // SWEEPS - 1, HOUR)
    assert history.due(START, 0)
    assert history.due(START - 1, week)  # the clock was set back


def test_between_two_searches_only_checkpoints_are_written(aging: AgingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 2)
    log = Path(aging.source.ref.url, "_delta_log")
    monkeypatch.setattr(TableStore, "data_files", lambda _: pytest.fail("it was not due"))
    for _ in range(4):
        aging.now += SECOND
        aging.step("build")
        aging.step("clean")
    assert len(list(log.glob("*.checkpoint.parquet"))) == 2
