"""Declarations of a stream over time."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.queries.declarations import (
    MAX_DROPPED,
    MAX_DROPPED_COLUMNS,
    Declarations,
    Dropped,
    TableState,
)
from penstock.broker.queries.query import Column, Declared


def columns(count: int) -> tuple[Column, ...]:
    return tuple(Column(f"c{number}", "BIGINT") for number in range(count))


def test_the_last_thing_before_a_position_counts() -> None:
    first = Declared(columns(1), 10, owned=True)
    again = Declared(columns(2), 30, owned=True, starts=(5,))
    found = Declarations(first).drop(20).declare(Declared(columns(2)), 30, [5])
    assert found == Declarations(again, (Dropped(first, 20),))
    gone = TableState(None, hidden=True)
    expected = {10: TableState(None), 11: TableState(first), 20: TableState(first), 21: gone, 30: gone}
    assert {position: found.at(position) for position in expected} == expected
    assert found.at(31) == found.at(None) == TableState(again)
    assert found.before(31) == found and found.before(20) == Declarations(first) and found.drop(40).at(None).hidden


def test_a_stream_of_another_door_is_shown_again_as_it_is() -> None:
    found = Declarations().declare(Declared(columns(1)), 10, [7])
    assert found.declared == Declared(columns(1), 10)
    assert found.drop(20).at(None) == found.drop(20).at(21) == TableState(None)


def test_so_many_are_remembered_and_the_oldest_forgotten() -> None:
    for wide, kept in ((1, MAX_DROPPED), (1_000, MAX_DROPPED_COLUMNS // 1_000)):
        found = Declarations()
        for position in range(0, 200, 2):
            found = found.declare(Declared(columns(wide)), position, [0]).drop(position + 1)
        assert [one.position for one in found.dropped] == list(range(201 - 2 * kept, 200, 2))


def test_how_many_is_said_where_users_look() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "sql.md").read_text().split())
    assert f"The last {MAX_DROPPED} dropped tables of a stream are remembered" in page
    assert f"with at most {MAX_DROPPED_COLUMNS:,} columns together" in page
