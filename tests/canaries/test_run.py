"""The verdict on a canary: which tests failed, and whether they were run at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.canaries import run
from tests.canaries.catalog import CANARIES
from tests.canaries.run import Outcome

pytestmark = pytest.mark.process

FIRST, SECOND = CANARIES[0].caught_by[:2]


def outcome(place: Path, pytest_is: str) -> Outcome:
    """The outcome with another pytest, which is found first."""
    (place / "src").mkdir()
    (place / "src" / "pytest.py").write_text(f"import sys\n{pytest_is}\n")
    failed, trouble = run._pytest(["tests"], place, 60)
    return Outcome(CANARIES[0]._replace(caught_by=(FIRST, SECOND)), failed, trouble, 0)


def failing(*tests: str) -> str:
    return "\n".join(f"print('FAILED {test} - assert not 1')" for test in tests) + "\nsys.exit(1)"


def test_it_is_caught_if_all_its_tests_fail(tmp_path: Path) -> None:
    found = outcome(tmp_path, failing(FIRST, SECOND))
    assert found.caught and found.trouble == ""


def test_it_is_not_caught_if_one_of_its_tests_passes(tmp_path: Path) -> None:
    found = outcome(tmp_path, failing(FIRST))
    assert not found.caught and found.trouble == ""
    assert found.caught_by[SECOND] is None


def test_it_is_not_caught_if_all_its_tests_pass(tmp_path: Path) -> None:
    found = outcome(tmp_path, "print('2 passed')")
    assert (found.caught, found.failed, found.trouble) == (False, [], "")


def test_what_a_library_writes_hides_no_test(tmp_path: Path) -> None:
    noise = "sys.stderr.write('leaked')\nsys.stderr.flush()"
    found = outcome(tmp_path, f"{noise}\n{failing(FIRST, SECOND)}")
    assert found.caught


@pytest.mark.parametrize(("pytest_is", "code", "said"), [("1 / 0", 1, "ZeroDivisionError"), ("sys.exit(4)", 4, "")])
def test_why_tests_could_not_be_run_is_told(tmp_path: Path, pytest_is: str, code: int, said: str) -> None:
    found = outcome(tmp_path, pytest_is)
    assert not found.caught
    assert found.trouble.startswith(f"exit code {code}: ") and said in found.trouble
