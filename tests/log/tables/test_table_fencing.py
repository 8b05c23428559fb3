"""Tables are fenced as the journal is: when the later of two owners has changed one, the earlier one cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from tests.log.tables.object_store import object_store
from tests.log.tables.source import NAME, TOPIC, Source, spans
from tests.log.tables.test_build import agree

from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.commit import commit
from penstock.log.tables.errors import TableFenced, TableNotWritten
from penstock.log.tables.location import TableRef, TableWriter, table_ref
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table, owner_app_id

JOURNAL = "s1Tn_4kHR0-Xy"


STORES = ("s3://bucket/lake", "gs://bucket/lake")


@pytest.fixture(params=["folder", *(pytest.param(url, marks=pytest.mark.process) for url in STORES)])
def ref(request: pytest.FixtureRequest, source: Source) -> Iterator[TableRef]:
    if request.param == "folder":
        yield source.ref
        return
    with object_store() as options:
        yield table_ref(request.param, options, "default", "default", NAME, TOPIC)


def owner(ref: TableRef, term: int, journal: str = JOURNAL) -> TableRef:
    return ref._replace(writer=TableWriter(journal, term))


def terms(ref: TableRef) -> list[int]:
    """The term of each version of the table, in order."""
    store, found = TableStore(ref), []
    for path in sorted(file.path for file in store.log_files() if file.path.endswith(".json")):
        actions = [json.loads(line) for line in store.read(path).splitlines()]
        found += [
            each["txn"]["version"] for each in actions if each.get("txn", {}).get("appId") == owner_app_id(JOURNAL)
        ]
    return found


def test_an_owner_that_was_replaced_changes_nothing(source: Source, ref: TableRef) -> None:
    source.ref, zombie = owner(ref, 2), owner(ref, 1)
    source.fill(6)
    first, *rest = source.closed()
    build(zombie, first, spans(first))
    ends: dict[int, int] = {}
    for file in rest[:-1]:
        ends |= build(source.ref, file, spans(file))
    assert terms(ref) == [1, *[2] * (len(rest) - 1)]
    for change in (
        lambda: build(zombie, rest[-1], spans(rest[-1])),
        lambda: maintenance.compact(zombie, min_files=2),
        lambda: maintenance.drop_below(zombie, dict.fromkeys(range(3), 1 << 40)),
        lambda: maintenance.clean(zombie, source.now * 2, keep_seconds=0),
    ):
        with pytest.raises(TableFenced, match="which owns the journal since term 2"):
            change()
    assert set(terms(ref)[1:]) == {2}
    agree(source, ends)
    ends |= build(source.ref, rest[-1], spans(rest[-1]))
    agree(source, ends)


def test_an_owner_that_was_replaced_while_it_wrote(ref: TableRef) -> None:
    """It had looked at the table before the new owner changed it; so had both, when there was none."""
    zombie, new = owner(ref, 1), owner(ref, 2)
    commit(new, None, (), (), {0: 5})
    with pytest.raises(TableNotWritten):
        commit(zombie, None, (), (), {0: 4})
    seen = Table.open(zombie)
    commit(new, Table.open(new), (), (), {1: 7})  # another partition
    with pytest.raises(TableNotWritten):
        commit(zombie, seen, (), (), {0: 6})
    found = Table.open(ref)
    assert found is not None
    assert found.ends() == {0: 5, 1: 7}
    assert terms(ref) == [2, 2]


def test_any_order_of_two_owners(source: Source) -> None:
    """Each looks at the table and changes it, some time later. Terms never go back, and no change is lost."""
    refused = 0
    for seed in range(12):
        random = Random(seed)
        ref = source.ref._replace(url=f"{source.ref.url}-{seed}")
        owners = [owner(ref, 1), owner(ref, 2)]
        seen: list[Table | None] = [None, None]
        end = 0
        for _ in range(14):
            which = random.randrange(2)
            if random.random() < 0.5:
                seen[which] = Table.open(owners[which])
                continue
            try:
                commit(owners[which], seen[which], (), (), {0: end + 1})
                end += 1
            except TableNotWritten:
                refused += 1
        found = terms(ref)
        assert found == sorted(found), f"seed {seed}"
        assert len(found) == end
    assert refused > 20


def test_others_are_not_fenced(ref: TableRef) -> None:
    """A journal that was copied counts its terms anew, and one on files has none."""
    commit(owner(ref, 9), None, (), (), {0: 1})
    commit(owner(ref, 1, "another"), Table.open(ref), (), (), {0: 2})
    commit(ref, Table.open(ref), (), (), {0: 3})
    with suppress(TableFenced):
        commit(owner(ref, 8), Table.open(ref), (), (), {0: 4})
    found = Table.open(ref)
    assert found is not None
    assert found.ends() == {0: 3}
