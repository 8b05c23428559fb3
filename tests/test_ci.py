"""CI's own script, on a tiny suite: `make test` is strict, and a few tests that failed get a second look."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
ON_KAFKA = "tests on Kafka"
WITH_DELTA = "tests with the connector"
ALL_PASSED = "all passed"
PASSES = "def test_{name}(): pass\n"
FAILS = "def test_{name}(): assert False\n"
UNSTEADY = """
from pathlib import Path
def test_{name}():
    before = Path("was-here-{name}")
    again = before.exists()
    before.touch()
    assert again
"""


def ci(directory: Path, *suite: str, types: str = "true", kafka: str = "true") -> tuple[bool, str]:
    """Run CI in a new project with one file for each of these tests, and tools that take no time; whether it passed,
    and what it printed. Without tests there is no pytest either: all have passed."""
    pytest = f'exec {sys.executable} -m pytest "$@"' if suite else f"echo {ALL_PASSED}"
    for name in ("Makefile", "requirements", ".ci"):
        (directory / name).symlink_to(ROOT / name)
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "tests/spark/class_archive.py": "",
        "build/spark-classes.jsa": "",
        ".venv/bin/uv": "#!/bin/sh\n",
        ".venv/bin/ruff": "#!/bin/sh\n",
        ".venv/bin/mypy": f"#!/bin/sh\n{types}\n",
        ".venv/bin/python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        ".venv/bin/pytest": f'#!/bin/sh\n[ "$1" = tests/kafka ] && echo {ON_KAFKA} "$@" && {{ {kafka}; exit; }}\n'
        f'[ "$1" = tests/spark/test_delta_connector.py ] && echo {WITH_DELTA} && exit\n'
        f"{pytest}\n",
        ".venv/.ready-to-test": "",
        "tools/mvn": "#!/bin/sh\n",
        "tests/kafka/pom.xml": "",
        "build/kafka/.ready": "",
        "tests/spark/delta_connector/pom.xml": "",
        "build/delta-connector/.ready": "",
        **{f"test_{at}.py": text.format(name=at) for at, text in enumerate(suite)},
    }.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "MAKE", "MFLAGS"))}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}  # starts in half the time
    environment["PATH"] = f"{directory / 'tools'}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode == 0, done.stdout + done.stderr


def test_tests_that_pass_alone_are_named(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, PASSES, UNSTEADY, UNSTEADY)  # in other processes
    assert passed, out
    assert "2 failed, 1 passed" in out and "2 passed" in out
    assert sorted(line.split()[1] for line in out.splitlines() if line.startswith("unsteady:")) == [
        "test_1.py::test_1",
        "test_2.py::test_2",
    ]
    assert ON_KAFKA in out


def test_where_maven_is_what_it_brings_comes_last(tmp_path: Path) -> None:
    passed, out = ci(tmp_path)
    assert passed and 0 < out.index(ALL_PASSED) < out.index(WITH_DELTA) < out.index(ON_KAFKA), out


def test_those_that_fail_on_kafka_get_a_second_look_too(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, kafka='[ "$2" = --last-failed ]')
    assert passed and out.count(ON_KAFKA) == 2, out


def test_those_that_fail_again_on_kafka_are_broken(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, kafka="false")
    assert not passed and out.count(ON_KAFKA) == 2, out


def test_a_test_that_fails_again_is_broken(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, UNSTEADY, FAILS)
    assert not passed and "1 failed, 1 passed" in out and "unsteady" not in out and ON_KAFKA not in out, out


def test_many_failures_get_no_second_look(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, *[UNSTEADY] * 21)
    assert not passed and out.count("short test summary") == 1 and "unsteady" not in out, out


def test_types_have_to_be_right_all_the_same(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, UNSTEADY, types="echo wrong; exit 1")
    assert not passed and "wrong" in out and "unsteady" not in out, out


def test_what_is_no_failure_of_a_test_gets_no_second_look(tmp_path: Path) -> None:
    passed, out = ci(tmp_path, UNSTEADY, "not python\n")
    assert not passed and "unsteady" not in out, out
