"""The check: every rule of the table is applied to a history, and says what is against it, with the operations that
show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.histories.evidence import Evidence, Rule
from tests.histories.history import History, Operation
from tests.histories.rules.table import RULES


class Violation(NamedTuple):
    rule: str
    text: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History, rules: Sequence[Rule] = RULES) -> list[Violation]:
    evidence = Evidence(history)
    return [Violation(rule.__name__, *found) for rule in rules for found in rule(evidence)]
