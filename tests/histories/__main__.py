"""The command: `python -m tests.histories check FILE...` says which rule a history breaks, and which operations show
it; `rules` and `kinds` print what there is."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from collections.abc import Sequence
from textwrap import fill, indent

import msgspec
from tests.histories.checker import Violation, check
from tests.histories.history import KINDS, FormatError, History
from tests.histories.rules.table import RULES

SHOWN_OPERATIONS = 4  # of each violation
LONGEST = 400  # characters of an operation


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="check histories; ends with 1 if a rule is broken, 2 if a file is bad")
    checking.add_argument("files", nargs="+", metavar="FILE")
    checking.add_argument("--limit", type=int, default=20, help="how many violations of each file are shown")
    checking.add_argument("--rule", action="append", choices=[rule.__name__ for rule in RULES], help="only this rule")
    commands.add_parser("rules", help="all rules")
    commands.add_parser("kinds", help="all kinds of operations")
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        return max(check_file(path, chosen.limit, chosen.rule) for path in chosen.files)
    if chosen.command == "rules":
        _print_table({rule.__name__: inspect.getdoc(rule) or "" for rule in RULES})
    else:
        _print_table(KINDS)
    return 0


def check_file(path: str, limit: int, only: Sequence[str] | None = None) -> int:
    rules = [rule for rule in RULES if not only or rule.__name__ in only]
    try:
        history = History.load(path)
    except (FormatError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    violations = check(history, rules)
    for violation in violations[:limit]:
        _print_violation(violation)
    operations = f"{path}: {len(history.operations)} operations, {len(rules)} rules"
    if not violations:
        print(f"{operations}, no violation")
        return 0
    counts = Counter(violation.rule for violation in violations)
    print(f"{operations}, {len(violations)} violations: {', '.join(f'{rule} {n}' for rule, n in counts.items())}")
    return 1


def _print_violation(violation: Violation) -> None:
    print(violation)
    for operation in violation.operations[:SHOWN_OPERATIONS]:
        text = msgspec.json.encode(operation).decode()
        print(f"    {text if len(text) <= LONGEST else text[:LONGEST] + '…'}")
    if (more := len(violation.operations) - SHOWN_OPERATIONS) > 0:
        print(f"    and {more} more")


def _print_table(rows: dict[str, str]) -> None:
    for name, text in rows.items():
        print(name)
        print(indent(fill(" ".join(text.split()), 110), "    "))


if __name__ == "__main__":
    sys.exit(main())
