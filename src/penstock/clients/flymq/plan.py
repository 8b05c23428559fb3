"""Plans: what takes several steps, written once for both clients.

A plan is a generator. It yields what is to be done next: questions, to be asked together, or a number of seconds to
wait. It gets back the outcomes of the questions. A client carries a plan out; the plan itself does no input or output.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from penstock.clients.flymq.questions import Question

T = TypeVar("T")

Step: TypeAlias = list[Question[Any]] | float
Plan: TypeAlias = Generator[Step, list[Any], T]
