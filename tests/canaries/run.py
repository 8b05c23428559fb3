"""Running canaries: one bug at a time is planted in a copy of the source, and the tests that have to notice it are run
on that copy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.canaries.canary import ROOT, SOURCE, Canary, plant

SECONDS: Final = 300  # that the tests of one canary may take: a safety net
PASSED: Final = 0  # pytest's exit codes; any other says that tests could not even be run
TESTS_FAILED: Final = 1
OPTIONS: Final = ("-q", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-profile", "canaries")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*|)(?: - .*)?$", re.MULTILINE)


class Outcome(NamedTuple):
    """The outcome of the tests of a canary."""

    canary: Canary
    failed: Sequence[str]  # tests, without their parameters
    trouble: str  # why tests could not be run, or not to their end
    seconds: float

    @property
    def caught_by(self) -> dict[str, str | None]:
        """Of each of the tests that have to notice the bug, the name, if it did."""
        return {
            test: next((name for name in self.failed if belongs(name, test)), None) for test in self.canary.caught_by
        }

    @property
    def caught(self) -> bool:
        """Whether all of them noticed it, and these are two or more."""
        return not self.trouble and len(self.caught_by) > 1 and None not in self.caught_by.values()


def belongs(name: str, test: str) -> bool:
    """Whether a test is the one, or of the class or file, that pytest was told of."""
    wanted = test.partition("[")[0]
    return name == wanted or name.startswith(wanted + "::")


def run(canary: Canary, tests: Sequence[str] = ()) -> Outcome:
    """Plant the bug in a copy of the source and run its tests, or others."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-canary-") as place:
        plant(canary, _copy(place))
        failed, trouble = _pytest(tests or canary.caught_by, Path(place), SECONDS)
    return Outcome(canary, failed, trouble, time.monotonic() - began)


def run_without(canaries: Sequence[Canary]) -> tuple[list[str], str]:
    """The tests of these canaries that fail without any bug, and catch nothing therefore; and what else went wrong."""
    tests = dict.fromkeys(test for canary in canaries for test in canary.caught_by)
    with tempfile.TemporaryDirectory(prefix="penstock-canary-") as place:
        _copy(place)
        return _pytest(list(tests), Path(place), SECONDS + 10 * len(tests))


def _copy(place: str) -> Path:
    package = Path(place) / "src" / "penstock"
    shutil.copytree(SOURCE, package)  # with what is compiled, for whose sake times stay as they are
    return package


def _pytest(tests: Sequence[str], place: Path, seconds: float) -> tuple[list[str], str]:
    """The tests that failed, and what else went wrong."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, *tests],
        cwd=ROOT,
        env=environment(os.environ, place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # apart, as what libraries write there could get in between the names of tests
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return [], f"not done after {seconds:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and the brokers that a failed test has left behind
        process.wait()
    failed = list(dict.fromkeys(_FAILED.findall(output)))
    # Python itself exits with 1, too, when pytest does not even start: a failure that names no test is none of a test.
    expected = TESTS_FAILED if failed else PASSED
    trouble = f"exit code {process.returncode}: {(output + errors)[-2000:]}"
    return failed, "" if process.returncode == expected else trouble


def environment(inherited: Mapping[str, str], place: Path) -> dict[str, str]:
    """The environment of a pytest whose tests, and all processes that they start, import the copy, without the settings
    of the pytest around it."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("PYTEST_", "PENSTOCK_"))}
    return kept | {
        "PYTHONPATH": str(place / "src"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "examples"),
    }
