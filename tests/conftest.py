"""The way all tests run: in tiers, the longest first, or in any order; of Spark's, two at a time; property tests
without deadlines, because a shared machine is slow at times, and in CI always with the same examples."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import re
import signal
import subprocess
from collections.abc import Generator
from functools import cache
from itertools import groupby
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import Phase, settings
from tests.spark.environment import variables
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

settings.register_profile("penstock", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", deadline=None, max_examples=20)  # for `make check`
settings.register_profile(  # for `make canaries`: whether it fails, always alike, not how it fails most simply
    "canaries", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("penstock")

gc.set_threshold(50_000, 10, 10)  # with the default, to collect all tests takes a third more time

# In the background of a script SIGINT is ignored, and so by every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update(variables())  # for every Spark that a test starts, in whatever process

HERE = Path(__file__).parent
RETURN_MEMORY = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of GNU's C library
TIERS = ("spark", "crash", "process", "unit")  # in the order in which they run: the longest first
TIER = pytest.StashKey[str]()
TIER_OF_DIRECTORY = {
    "crash": "crash",
    "cli": "process",
    "compatibility": "process",
    "connection": "process",
    "console": "process",
    "e2e": "process",
    "fuzz": "process",
    "mirror": "process",
    "workers": "process",
}
OTHER_TIER = re.compile(rb"^pytestmark = \[?pytest\.mark\.(spark|crash|process)\b", re.MULTILINE)  # of a whole file
LONGEST = (
    "test_pipeline_runs.py",
    "test_pipeline_up.py",
    "test_spark_kill.py",
    "test_connect.py",
    "test_docs.py",
    "test_felix_resources.py",
    "test_schedules.py",
    "test_rustlog_kill.py",
    # of the tier `unit`, which is the last, so that short ones are left for the end; first those that mostly wait
    "test_matrix.py",
    "test_replica.py",
    "test_quic_sessions.py",
    "test_robustness.py",
    "test_damage.py",
    "test_isolation.py",
    "test_targets.py",
    "test_hostile.py",
    "test_fencing.py",
    "test_file_engine_contract.py",
    "test_json_dialect.py",
    "test_generations.py",
    "test_binary_dialect.py",
    "test_delays.py",
)

# One Spark takes two processors. Its files are two pieces of work, which two workers begin with; every other file is a
# piece by itself. The first has Sparks of its own; what shares a session is in the second.
FIRST_SPARK = ("test_pipeline_runs.py", "test_spark_kill.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-order",
        metavar="SEED",
        help="shuffle the files, and the tests in each of them; the same seed gives the same order",
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The second process of `make test` begins at the other end, so that in a new clone each compiles a half of the
    tests, and finds the other half done. The order in which they run does not come from here."""
    report = yield
    if isinstance(collector, pytest.Dir) and os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        report.result = list(reversed(report.result or []))
    return report


class TwoSparks(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """The tests that are a piece of work for one of the workers."""

    def _split_scope(self, nodeid: str) -> str:
        path = str(super()._split_scope(nodeid))
        if path.endswith(FIRST_SPARK):
            return "spark, first"
        return "spark, second" if path.startswith("tests/spark/") else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return TwoSparks(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` does not even import what has no unit test: to collect takes a good part of its time."""
    if config.getoption("markexpr") != "unit":
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(map(_may_have_unit_tests, files)) else True


@cache
def _may_have_unit_tests(path: Path) -> bool:
    source = path.read_bytes()
    if b"mark.unit" in source:
        return True
    return directory_tier(path) == "unit" and OTHER_TIER.search(source) is None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Before all tests are ordered, and selected by marker."""
    tier = item.stash[TIER] = tier_of(item)
    if item.get_closest_marker(tier) is None:
        item.add_marker(tier)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--random-order")
    items[:] = sorted(items, key=_rank) if seed is None else _shuffled(items, seed)


def pytest_collection_finish() -> None:
    """Ten thousand tests and what they import stay until the end: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()


def tier_of(item: pytest.Item) -> str:
    """The one that the test or its module is marked with; else that of what it uses, or of its directory."""
    marked = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
    if len(marked) > 1:
        raise pytest.UsageError(f"{item.nodeid} is in more than one tier: {', '.join(sorted(marked))}")
    if marked:
        return marked.pop()
    if shares_session(item):
        return "spark"
    return directory_tier(item.path)


@cache
def directory_tier(path: Path) -> str:
    return TIER_OF_DIRECTORY.get(path.relative_to(HERE).parts[0], "unit")


def shares_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _rank(item: pytest.Item) -> tuple[int, int, int, Path]:
    """The longest tests come first, so that nobody waits for it alone in the end. The rest is mixed: files of one
    directory are alike, and while some wait, as those of the clients do, others should work."""
    name = item.path.name
    longest = LONGEST.index(name) if name in LONGEST else len(LONGEST)
    return TIERS.index(item.stash[TIER]), longest, crc32(bytes(item.path.relative_to(HERE))), item.path


def _shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """The tests of a file stay together: they share what it takes long to start."""
    chance = random.Random(seed)
    by_path = sorted(items, key=lambda item: item.path)
    files = [list(group) for _, group in groupby(by_path, key=lambda item: item.path)]
    chance.shuffle(files)
    for tests in files:
        if tests[0].get_closest_marker("in_order") is None:
            chance.shuffle(tests)
    return [item for tests in files for item in tests]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A unit test starts no process: `make check` would get slow without anybody noticing why."""
    if item.stash[TIER] != "unit":
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", _refuse)
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, memory goes back to the system: frames of many sizes leave gigabytes of gaps in the heap."""
    if RETURN_MEMORY is not None and (nextitem is None or nextitem.path != item.path):
        RETURN_MEMORY(0)


def _refuse(*arguments: object, **_: object) -> None:
    raise AssertionError(f"a test of the tier `unit` starts a process: {arguments}; mark it with `process`")
