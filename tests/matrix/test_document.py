"""`docs/conformance.md` shows the matrix as it is: the ways in and out of the code, each cell with its test."""

from __future__ import annotations

import re

import pytest
from tests.matrix import document


@pytest.fixture(scope="module")
def text() -> str:
    return document.DOCUMENT.read_text()


def test_the_table_is_that_of_the_code_and_every_cell_held(text: str) -> None:
    """Written by `make matrix`: run it if a way in or out, or a test, is another."""
    all_held = dict.fromkeys(
        (
            test
            for writer in document.rows()
            for reader in document.columns()
            for test in document.tests_of(writer, reader)
        ),
        "passed",
    )
    assert document.between(text, "matrix") == document.matrix(all_held)


def test_a_cell_that_does_not_hold_is_shown() -> None:
    (first, *_) = document.tests_of("flymq", "flight")
    assert document.cell("flymq", "flight", {first: "passed"}).startswith(f"[{document.MISSING}]"), "of three phases"


def test_the_largest_records_are_those_of_the_code(text: str) -> None:
    assert document.between(text, "limits") == document.limits()


def test_every_link_leads_to_a_test(text: str) -> None:
    links = re.findall(r'\]\(\.\./(tests/[\w/.]+)#L(\d+) "(\w+)', document.between(text, "matrix"))
    assert len(links) == len(document.rows()) * len(document.columns())
    for path, line, name in set(links):
        assert (document.ROOT / path).read_text().splitlines()[int(line) - 1].startswith(f"def {name}(")
