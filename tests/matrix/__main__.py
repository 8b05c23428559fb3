"""`python -m tests.matrix`: runs the tests of the matrix and writes its tables to `docs/conformance.md`."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from tests.matrix import document


class Outcomes:
    """Of each test: `passed` only if it was, from its setup to its end."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" or report.nodeid not in self.by_test:
            self.by_test[report.nodeid] = report.outcome


TESTS: Final = (
    "tests/spark/test_matrix.py",
    "tests/matrix/test_matrix.py",
    document.LARGEST.partition("::")[0],
    document.LARGEST_AFTER_ALL.partition("::")[0],
)


def main() -> int:
    outcomes = Outcomes()
    code = pytest.main(["-q", *TESTS, *sys.argv[1:]], [outcomes])
    document.write(outcomes.by_test)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
