"""The matrix as a document: tables between markers in `docs/conformance.md`, written from the adapters and from what a
run of the tests found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.doors import test_largest_record as largest
from tests.matrix import test_matrix
from tests.matrix.observations import PHASES
from tests.matrix.readers import READERS
from tests.matrix.writers import WRITERS
from tests.spark import matrix_cells

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "conformance.md"
SPARK: Final = "spark"
LETTERS: Final = {"offset": "o", "key": "k", "value": "v", "timestamp": "t", "headers": "h"}
MISSING: Final = "✗"
LARGEST: Final = "tests/doors/test_largest_record.py::test_the_largest_record_of_every_door_at_every_other"
LARGEST_AFTER_ALL: Final = (
    "tests/e2e/test_largest_record.py::test_the_largest_records_through_a_kill_and_the_move_to_a_table"
)
IN_LARGEST: Final = {"kimberlite_1": "kimberlite-seed", "sql": "", "flight": "", "table": "", SPARK: ""}
"""Names of ways there, where it is not the same with hyphens. Of Kimberlite's versions one writes."""

Outcomes = Mapping[str, str]
"""The outcome of each test, `passed` or another, by its node id."""


def rows() -> list[str]:
    return [*WRITERS, SPARK]


def columns() -> list[str]:
    return [*READERS, SPARK]


def tests_of(writer: str, reader: str) -> list[str]:
    """The node ids of a cell's tests."""
    return [*tests_of_phases(writer, reader), *tests_of_largest(writer, reader)]


def tests_of_largest(writer: str, reader: str) -> list[str]:
    """Of the largest record that the way in takes."""
    if writer == "flymq" and reader in ("sql", "flight"):
        return [LARGEST_AFTER_ALL]
    names = [IN_LARGEST.get(name, name.replace("_", "-")) for name in (writer, reader)]
    if names[0].startswith("kimberlite-"):
        names[0] = "kimberlite"
    if names[0] not in largest.WRITERS or names[1] not in largest.READERS:
        return []
    return [f"{LARGEST}[{names[0]}-{names[1]}]"]


def tests_of_phases(writer: str, reader: str) -> list[str]:
    if SPARK in (writer, reader):
        return [f"tests/spark/test_matrix.py::{test}" for test in matrix_cells.tests_of(writer, reader)]
    phases = [phase for phase in PHASES if phase in READERS[reader].phases]
    return [f"tests/matrix/test_matrix.py::test_cell[{writer}-{reader}-{phase}]" for phase in phases]


def shown(reader: str) -> str:
    """The letters of what is compared."""
    shows = {"value"} | (set(LETTERS) if reader == SPARK else READERS[reader].shows)
    return "".join(letter for name, letter in LETTERS.items() if name in shows)


def cell(writer: str, reader: str, outcomes: Outcomes) -> str:
    tests = tests_of(writer, reader)
    held = all(outcomes.get(test) == "passed" for test in tests)
    path, _, name = tests[0].partition("::")
    where = f"{path}#L{line_of(path, name)}"
    said = name if len(tests_of_phases(writer, reader)) == 1 else re.sub(r"-\w+\]$", "]", name)
    return f'[{shown(reader) if held else MISSING}](../{where} "{said}")'


def line_of(path: str, name: str) -> int:
    function = name.partition("[")[0]
    if path.startswith("tests/matrix"):
        return _line(getattr(test_matrix, function))
    source = (ROOT / path).read_text().splitlines()
    return next(number for number, text in enumerate(source, 1) if text.startswith(f"def {function}("))


def _line(function: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, text in enumerate(lines) if text.startswith("def "))


def matrix(outcomes: Outcomes) -> str:
    head = ["written by ↓, read by →", *(name.replace("_", " ") for name in columns())]
    table = [_row(head), _row(["---"] * len(head))]
    table += [
        _row([writer.replace("_", " "), *(cell(writer, reader, outcomes) for reader in columns())]) for writer in rows()
    ]
    return "\n".join(table)


def limits() -> str:
    """The largest value of each way in and out, with a topic's name of one byte."""
    table = [_row(["Way", "Largest written", "Largest read"]), _row(["---"] * 3)]
    for name in sorted({*largest.WRITERS, *largest.READERS}, key=[*largest.WRITERS, *largest.READERS].index):
        writer, reader = largest.WRITERS.get(name), largest.READERS.get(name)
        table.append(_row([name, f"{writer.size:,}" if writer else "", f"{reader.size:,}" if reader else ""]))
    return "\n".join(table)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->\n", 1)[1].split(f"\n<!-- end of {name} -->", 1)[0]


def replaced(text: str, name: str, table: str) -> str:
    before, _, rest = text.partition(f"<!-- {name} -->\n")
    return f"{before}<!-- {name} -->\n{table}\n<!-- end of {name} -->{rest.partition(f'<!-- end of {name} -->')[2]}"


def write(outcomes: Outcomes) -> None:
    text = DOCUMENT.read_text()
    text = replaced(text, "matrix", matrix(outcomes))
    DOCUMENT.write_text(replaced(text, "limits", limits()))
