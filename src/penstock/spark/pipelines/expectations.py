"""Data quality expectations: rules for rows, the handling of rows that break them, and counts.

    RULES = rules(
        ("has an id", "order_id IS NOT NULL", "drop"),
        ("sells something", "quantity > 0", "warn"),
    )

A condition is SQL; null counts as not met. `warn` keeps the row, `drop` removes it, `fail` ends the query. All work on
streams and on tables. Use counts in `foreachBatch`, where `delta.append` stores those of a batch exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Action = Literal["warn", "drop", "fail"]
ACTIONS: Final[tuple[str, ...]] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Expectation:
    name: str
    condition: str
    action: Action

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"{self.name}: the action is {self.action!r}; allowed are {', '.join(ACTIONS)}")

    @property
    def met(self) -> Column:
        from pyspark.sql import functions as fn

        return fn.coalesce(fn.expr(self.condition), fn.lit(False))


def rules(*rows: tuple[str, str, Action]) -> Expectations:
    """Expectations from a table of (name, condition, action)."""
    return Expectations(tuple(Expectation(*row) for row in rows))


@dataclass(frozen=True, slots=True)
class Expectations:
    rules: tuple[Expectation, ...]

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError(f"names of expectations differ; there are {', '.join(names)}")

    def enforce(self, rows: DataFrame) -> DataFrame:
        """The rows that are kept. A row that breaks a rule with action `fail` ends the query with an error that names
        the rule."""
        kept = [self._kept(rule) for rule in self.rules if rule.action != "warn"]
        return rows.where(reduce(and_, kept)) if kept else rows

    def broken(self, rows: DataFrame) -> DataFrame:
        """The rows that are dropped, with the names of the rules they break in `broken`."""
        from pyspark.sql import functions as fn

        dropping = [rule for rule in self.rules if rule.action == "drop"]
        names = fn.array_compact(fn.array(*(fn.when(~rule.met, rule.name) for rule in dropping)))
        found = rows.select("*", names.alias("broken")) if dropping else rows.select("*", fn.array().alias("broken"))
        return found.where("size(broken) > 0")

    def count(self, rows: DataFrame) -> DataFrame:
        """One row for each rule: `rule`, `condition`, `action`, the number of `rows`, and of those that `broke` it."""
        from pyspark.sql import functions as fn

        counts = [
            fn.struct(
                fn.lit(rule.name).alias("rule"),
                fn.lit(rule.condition).alias("condition"),
                fn.lit(rule.action).alias("action"),
                fn.count("*").alias("rows"),
                fn.count_if(~rule.met).alias("broke"),
            )
            for rule in self.rules
        ]
        return rows.agg(fn.array(*counts).alias("counts")).select(fn.inline("counts"))

    def _kept(self, rule: Expectation) -> Column:
        from pyspark.sql import functions as fn

        if rule.action == "drop":
            return rule.met
        said = f"a row breaks the expectation {rule.name!r}: {rule.condition}"
        return fn.when(rule.met, True).otherwise(fn.raise_error(fn.lit(said)).cast("boolean"))
