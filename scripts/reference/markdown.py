"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(columns)
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield _row([" ".join(cell.replace("|", "\\|").split()) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
