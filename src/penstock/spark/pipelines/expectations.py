"""Data quality expectations: rules that rows must meet, what becomes of rows that do not, and their counts.

    RULES = rules(
        ("has an id", "order_id IS NOT NULL", "drop"),
        ("sells something", "quantity > 0", "warn"),
    )

A condition is SQL; where it is null, it is not met. `warn` keeps the row, `drop` leaves it out, `fail` ends the query.
All work on streams and on tables. Counts belong into `foreachBatch`, where `delta.append` keeps those of a batch once.
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
        """The rows that are kept. One that breaks a rule of action `fail` ends the query; the error names the rule."""
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
        """One row for each rule: `rule`, `condition`, `action`, how many `rows` there were, and how many `broke` it."""
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
