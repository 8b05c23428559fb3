"""The tables of the command line: tabs for scripts, aligned columns for people."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from penstock.cli.tables import aligned, print_aligned, print_fields, print_ruled, print_table, printable, utc

AtTerminal = Callable[[Callable[[], None]], str]
ROWS = [("orders", 12), ("a[b]", 3), ("x\t\x1b[2J\n", 100)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> AtTerminal:
    """Runs this at a terminal of 40 columns, and gives back what it printed."""

    def printed(show: Callable[[], None]) -> str:
        terminal = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "40")
        with monkeypatch.context() as patch:  # not for the fixture's setup: pytest sets it anew for the test
            patch.setattr(sys, "stdout", terminal)
            show()
        return terminal.getvalue()

    return printed


def test_a_pipe_gets_tabs_and_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records"), ROWS, numbers=("records",))
    assert capsys.readouterr().out == "topic\trecords\norders\t12\na[b]\t3\nx\\t\\x1b[2J\\n\t100\n"


def test_a_pipe_may_get_rows_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records"), ROWS[:1], header_in_pipe=False)
    assert capsys.readouterr().out == "orders\t12\n"


def test_a_terminal_gets_aligned_columns(at_terminal: AtTerminal) -> None:
    shown = at_terminal(lambda: print_table(("topic", "records"), ROWS, numbers=("records",), header_in_pipe=False))
    head, *lines = shown.splitlines()
    assert "topic" in head and "\x1b[1m" in head
    assert lines == ["orders             12", "a[b]                3", r"x\t\x1b[2J\n      100"]


def test_a_terminal_folds_what_is_too_long_and_cuts_nothing(at_terminal: AtTerminal) -> None:
    shown = at_terminal(lambda: print_table(("name", "number"), [("n" * 90, 7)], numbers=("number",)))
    assert sum(line.count("n") for line in shown.splitlines()[1:]) == 90
    assert len(shown.splitlines()) > 3


def test_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("topic", "orders"), ("size", 3)])
    assert capsys.readouterr().out == "topic\torders\nsize\t3\n"


def test_fields_at_a_terminal(at_terminal: AtTerminal) -> None:
    assert at_terminal(lambda: print_fields([("topic", "orders"), ("size", 3)])) == "topic  orders\nsize   3\n"


def test_a_ruled_table_is_the_same_everywhere(capsys: pytest.CaptureFixture[str], at_terminal: AtTerminal) -> None:
    long = "v" * 300

    def show() -> None:
        print_ruled(("id", "name"), [["1", "Ada"], ["2", "数据"], ["3", long]])

    show()
    shown = capsys.readouterr().out
    assert shown == at_terminal(show)
    assert shown.splitlines() == ["id  name", "--  " + "-" * 300, "1   Ada", "2   数据", f"3   {long}"]


def test_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [])
    print_ruled(("a", "bb"), [])
    print_aligned(aligned(("c",)))
    assert capsys.readouterr().out == "a\tb\na  bb\n-  --\nc\n"


def test_texts() -> None:
    assert printable("é ⏎") == "é ⏎"
    assert printable("\u202e\x00") == r"\u202e\x00"
    assert utc(1_700_000_000_999_999) == "2023-11-14 22:13:20"
