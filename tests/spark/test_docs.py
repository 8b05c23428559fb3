"""Every snippet of docs/spark.md, from top to bottom, against a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.test_up import FLIGHT
from tests.launcher import WITHOUT_SETTINGS, BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "spark.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "index.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_TESTS_OF_PIPELINES = ("dry-run", "run", "status", "logs", "stop", "reset")


def snippets() -> list[tuple[str, str, int]]:
    """(language, text, line)."""
    text = PAGE.read_text()
    return [(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(text)]


def test_the_page_has_snippets_of_known_kinds() -> None:
    kinds = [kind for kind, _, _ in snippets()]
    assert kinds.count("python") >= 8 and kinds.count("sh") >= 3
    assert set(kinds) == {"python", "sh"}


def test_all_snippets(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with BrokerProcess(tmp_path / "data", *FLIGHT).ready() as broker:
        for kind, text, line in snippets():
            if kind == "sh":
                shell(text, broker, tmp_path)
            else:
                # Relative paths are those of the directory in which Java was started: this session's is another.
                code = text.replace("localhost:8815", broker.address("flight")).replace('"out/', f'"{tmp_path}/out/')
                exec(compile("\n" * line + code, str(PAGE), "exec"), names)
        first_look(TUTORIAL, broker, names)
    assert names["spark"].sparkContext is spark.sparkContext


def first_look(page: Path, broker: BrokerProcess, names: dict[str, Any]) -> None:
    """The tutorial's program for Spark, on a topic that is there."""
    [text] = re.findall(r"^```python\n(import penstock\.spark\n.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    code = text.replace("127.0.0.1:8815", broker.address("flight")).replace('"rides"', '"orders"')
    exec(compile(code, str(page), "exec"), names)


def shell(text: str, broker: BrokerProcess, directory: Path) -> None:
    """Commands as they stand there. Those of a pipeline that runs have tests of their own."""
    elsewhere = tuple(f"penstock pipeline {command}" for command in IN_TESTS_OF_PIPELINES)
    lines = [line for line in text.splitlines() if not line.startswith(elsewhere)]
    environment = WITHOUT_SETTINGS | {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "PENSTOCK_SERVER": broker.address("rustlog"),
        "PENSTOCK_DATA_DIR": str(directory / "data"),
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", "\n".join(lines)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
