"""Histories as files: what is written is read again, and what is no history is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.histories.checker import check
from tests.histories.history import FormatError, History
from tests.histories.story import LOG, Story


def test_a_history_survives_a_file(tmp_path: Path) -> None:
    history = Story().finish()
    path = str(tmp_path / "history.jsonl")
    history.dump(path)
    loaded = History.load(path)
    assert loaded.operations == history.operations
    assert check(loaded) == []


def test_a_loaded_history_can_go_on(tmp_path: Path) -> None:
    history = Story().finish()
    history.dump(str(tmp_path / "history.jsonl"))
    loaded = History.load(str(tmp_path / "history.jsonl"))
    assert loaded.invoke("a", "append", LOG, ["x"]).invoked > max(one.answered or 0 for one in history.operations)


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of operation called appand"):
        History().invoke("a", "appand", LOG)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a history"),
        ('{"client":"a","kind":"append"}\n', "is not a history"),
        ('{"history":9}\n', "version 9"),
        ('{"history":1}\n{"client":"a","kind":"appand"}\n', "line 2: there is no kind of operation called appand"),
        ('{"history":1}\n{"client":"a","kind":"append","ofset":1}\n', "line 2: .*ofset"),
        ('{"history":1}\n{"client":"a","kind":"append","ids":["a"]}\n{"client"\n', "line 3: "),
    ],
)
def test_what_is_no_history_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match=said):
        History.load(str(path))
