"""The catalogue of canaries is in order, without running any of them: each still fits the source, and names tests that
exist. One after the other is run, too, a few with each run of all tests."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from tests.canaries.__main__ import report
from tests.canaries.canary import KINDS, ROOT, SOURCE, Canary, CanaryLost
from tests.canaries.catalog import CANARIES, rotating, turn
from tests.canaries.run import run
from tests.syntax_trees import statements

AT_ONCE = 3
DOORS = ("rustlog", "blipmq", "flymq", "kimberlite", "felix")


@cache
def defined_in(path: str) -> frozenset[str]:
    """The functions and classes that a file defines; what its classes inherit is not looked for."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))


@cache
def parsed(path: str) -> str:
    return ast.dump(ast.parse((SOURCE / path).read_text()))


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name)
def test_a_canary_fits_the_source_and_makes_python_of_it(canary: Canary) -> None:
    planted = canary.planted((SOURCE / canary.path).read_text())
    assert ast.dump(ast.parse(planted)) != parsed(canary.path)


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name)
def test_a_canary_names_tests_of_two_files_that_exist(canary: Canary) -> None:
    files = set()
    for test in canary.caught_by:
        path, *names = test.split("::")
        files.add(path)
        assert names and names[0].partition("[")[0] in defined_in(path), f"there is no {test}"
    assert len(files) > 1, "tests of one file have too much in common"


def test_a_canary_whose_place_is_gone_is_lost() -> None:
    canary = CANARIES[0]._replace(before="no such text")
    with pytest.raises(CanaryLost, match="0 times instead of once: 'no such text'"):
        canary.planted((SOURCE / canary.path).read_text())


def test_there_are_canaries_of_every_kind_and_at_every_door() -> None:
    assert len(CANARIES) >= 25
    assert len({canary.name for canary in CANARIES}) == len(CANARIES)
    assert {canary.kind for canary in CANARIES} == KINDS
    unchecked = {canary.name.partition("-")[0] for canary in CANARIES if canary.kind == "access check skipped"}
    assert unchecked >= set(DOORS)


def test_every_canary_has_its_turn() -> None:
    turns = -(-len(CANARIES) // AT_ONCE)
    seen = {canary.name for number in range(turns) for canary in rotating(number, AT_ONCE)}
    assert seen == {canary.name for canary in CANARIES}


@pytest.mark.process
@pytest.mark.parametrize("number", range(AT_ONCE))
def test_a_canary_whose_turn_it_is_is_caught_by_all_its_tests(number: int) -> None:
    """PENSTOCK_CANARIES_TURN repeats a turn; `make canaries` runs them all."""
    outcome = run(rotating(turn(), AT_ONCE)[number])
    assert outcome.caught, report(outcome)
