"""`make canaries`: plant every bug of the catalogue, one at a time, and name the tests that notice it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rich.console import Console
from rich.table import Column, Table
from tests.canaries.canary import Canary
from tests.canaries.catalog import CANARIES
from tests.canaries.run import Outcome, run, run_without

WIDTH: Final = 400  # that the table may have: names of tests are long, and are looked for as a whole


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.canaries", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="so many at the same time (2)")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="run these instead, and name all that notice the bug: for a new one"
    )
    chosen = parser.parse_args(arguments)
    known = {canary.name: canary for canary in CANARIES}
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"there is no canary {', '.join(unknown)}")
    canaries = [known[name] for name in chosen.names or known]
    if chosen.list:
        for canary in canaries:
            print(f"{canary.name}: {canary.bug} ({canary.path})")
        return 0
    if chosen.tests:
        return max(_explore(canary, chosen.tests) for canary in canaries)
    return _run(canaries, chosen.jobs)


def _run(canaries: Sequence[Canary], jobs: int) -> int:
    failed, trouble = run_without(canaries)
    if failed or trouble:
        print(f"without any bug, too, these tests fail: {' '.join(failed)} {trouble}", file=sys.stderr)
        return 2
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(run, canaries):
            outcomes.append(outcome)
            print(f"{outcome.canary.name}: {'caught' if outcome.caught else 'NOT CAUGHT'}", file=sys.stderr, flush=True)
    Console(width=WIDTH).print(_table(outcomes))
    escaped = [outcome for outcome in outcomes if not outcome.caught]
    for outcome in escaped:
        print(report(outcome), file=sys.stderr)
    print(f"{len(outcomes) - len(escaped)} of {len(outcomes)} bugs were caught, each by two tests or more")
    return 1 if escaped else 0


def _explore(canary: Canary, tests: Sequence[str]) -> int:
    outcome = run(canary, tests)
    print(f"{canary.name}: {len(outcome.failed)} tests notice it, {outcome.seconds:.0f} s {outcome.trouble}")
    for name in outcome.failed:
        print(f"  {name}")
    return 0


def report(outcome: Outcome) -> str:
    """A bug that got away."""
    lines = [f"{outcome.canary.name}: {outcome.canary.bug} ({outcome.canary.path}) {outcome.trouble}"]
    for test, name in outcome.caught_by.items():
        lines.append(f"  {test} {'did not notice it' if name is None else 'noticed it'}")
    return "\n".join(lines)


def _table(outcomes: Sequence[Outcome]) -> Table:
    names = Column("caught by", no_wrap=True)
    table = Table("canary", Column("bug", max_width=60), names, "seconds", show_lines=True)
    for outcome in outcomes:
        caught = [name for name in outcome.caught_by.values() if name is not None]
        table.add_row(outcome.canary.name, outcome.canary.bug, "\n".join(caught) or "nobody", f"{outcome.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
