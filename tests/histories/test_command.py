"""The command that checks histories."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.histories.__main__ import main
from tests.histories.history import KINDS
from tests.histories.rules.table import RULES
from tests.histories.story import LOG, Story


def _file(directory: Path, *, lost: bool) -> str:
    story = Story()
    if lost:
        story.replace(LOG, "a1", "a2")
    path = str(directory / f"{'lost' if lost else 'sound'}.jsonl")
    story.finish().dump(path)
    return path


def test_a_sound_history_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", _file(tmp_path, lost=False)]) == 0
    assert f"{len(RULES)} rules, no violation" in capsys.readouterr().out


def test_a_violation_is_shown_with_its_rule_and_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [_file(tmp_path, lost=lost) for lost in (True, False)]
    assert main(["check", "--rule", "acknowledged_are_there", *files]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("acknowledged_are_there: ") and "b1 was acknowledged at 2" in shown[0]
    assert shown[1].startswith('    {"client":"b","kind":"append","place":["log",0],"ids":["b1"]')
    assert shown[2].endswith("1 rules, 1 violations: acknowledged_are_there 1")


def test_a_file_that_is_no_history_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.jsonl").write_text("no\n")
    assert main(["check", str(tmp_path / "no.jsonl")]) == 2
    assert "is not a history" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "missing.jsonl")]) == 2


@pytest.mark.parametrize(("command", "names"), [("rules", [rule.__name__ for rule in RULES]), ("kinds", list(KINDS))])
def test_rules_and_kinds_are_listed(command: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if not line.startswith(" ")] == names


PAGE = Path(__file__).parent.parent.parent / "docs" / "histories.md"


def test_the_example_of_the_page_is_checked_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ((command, expected),) = re.findall(
        r"^\$ python -m tests.histories ([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    (tmp_path / "history.jsonl").write_text(example)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 1
    assert capsys.readouterr().out == expected


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "histories.md", "exec"), {})
    assert main(["check", "history.jsonl"]) == 0
