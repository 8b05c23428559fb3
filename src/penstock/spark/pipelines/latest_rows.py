"""The latest row of each key: of rows with the same keys, the one with the greatest order. Pure: Arrow in, Arrow out.

Orders are compared column by column, from left to right; null is the smallest value. Rows that are identical in every
column count as one. Different rows with the same keys and the same order leave it undecided: no row with these keys
is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipelines.exact_cast import CastFailure

if TYPE_CHECKING:
    import pyarrow as pa


class LatestRows(NamedTuple):
    numbers: list[int]  # of these rows, in their original order
    undecided: dict[int, CastFailure]


def latest_rows(rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> LatestRows:
    """One row for each key."""
    by_key: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, key in enumerate(_tuples(rows, keys)):
        by_key[key].append(number)
    if len(by_key) == rows.num_rows:
        return LatestRows(list(range(rows.num_rows)), {})
    ranks = [tuple((value is not None, value) for value in rank) for rank in _tuples(rows, order)]
    latest: list[int] = []
    undecided: dict[int, CastFailure] = {}
    for key, numbers in by_key.items():
        best = max(ranks[number] for number in numbers) if order else ()
        first, *others = [number for number in numbers if not order or ranks[number] == best]
        if all(_same(rows, first, other) for other in others):
            latest.append(first)
        else:
            undecided |= dict.fromkeys(numbers, _tie(keys, key, order, first, others[0]))
    return LatestRows(sorted(latest), dict(sorted(undecided.items())))


def update_condition(order: Sequence[str]) -> str | None:
    """An SQL condition: whether the row `source` replaces the row `target`. With the same order the later one wins."""
    if not order:
        return None
    condition = "true"
    for name in reversed(order):
        source, target = f"source.`{name}`", f"target.`{name}`"
        greater = f"({source} > {target} OR ({target} IS NULL AND {source} IS NOT NULL))"
        condition = f"({greater} OR (({source} IS NOT DISTINCT FROM {target}) AND {condition}))"
    return condition


def _tuples(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    if not names:
        return iter([()] * rows.num_rows)
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def _same(rows: pa.Table, one: int, other: int) -> bool:
    return bool(rows.slice(one, 1).to_pylist() == rows.slice(other, 1).to_pylist())


def _tie(keys: Sequence[str], key: tuple[Any, ...], order: Sequence[str], one: int, other: int) -> CastFailure:
    said = ", ".join(f"{name}={value!r}" for name, value in zip(keys, key, strict=True))
    same = f"and the same order ({', '.join(order)})" if order else "and no order says which is the later one"
    advice = "add a column to order" if order else "give order=('offset',) or another column that grows"
    return CastFailure(
        ", ".join(keys), f"rows {one} and {other} of this batch have the same key {said} {same}; {advice}"
    )
