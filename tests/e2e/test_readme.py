"""The README and the tutorial, from top to bottom, beside what `make up` starts: their commands and programs, and what
these print.

`penstock up` runs without Java here; programs for Spark are run by `tests/spark/test_docs.py`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_up import Up
from tests.launcher import BrokerProcess
from tests.ports import steady_port, steady_udp_port
from tests.snippets import PORTS, Reader, snippets

ROOT = Path(__file__).parents[2]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs/tutorial/index.md"
BY_OTHERS = ("make up", "penstock.spark")
SECURED = "<!-- with security on -->"


class ReaderBesideUp(Reader):
    """Kills the process that `penstock up` names, when the page says so."""

    up: Up
    kills = 0

    def command(self, command: str, expected: str) -> None:
        self.up.wait_for_times("the broker is back", self.kills, 60)
        processes = re.findall(r"(?:broker      process|the broker is back, as process) (\d+)", self.up.said)
        super().command(command.replace("4711", processes[-1]), expected)
        self.kills += command == "kill -9 4711"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def reader(directory: Path) -> Iterator[ReaderBesideUp]:
    ports = {port: steady_udp_port() if port == "5000" else steady_port() for port in PORTS}
    listen = [
        part
        for port, doors in PORTS.items()
        for door in doors
        for part in ("--listen", f"{door}=127.0.0.1:{ports[port]}")
    ]
    without_java = {"PATH": os.path.dirname(sys.executable), "JAVA_HOME": str(directory)}
    with Up(directory / "data", *listen, **without_java) as up:
        up.wait_for("supervises all of this", 60)
        reader = ReaderBesideUp(directory, ports, {"PENSTOCK_SERVER": f"127.0.0.1:{ports['9092']}"})
        reader.up = up
        yield reader
        assert up.stop() == 0


def test_the_readme_word_for_word_beside_what_make_up_starts(reader: ReaderBesideUp) -> None:
    page = [each for each in snippets(README) if not any(text in each.text for text in BY_OTHERS)]
    assert len(page) == 2
    before = reader.kills
    reader.names.clear()
    reader.follow(page)
    assert reader.kills == before + 1


def test_the_tutorial_word_for_word(reader: ReaderBesideUp, directory: Path) -> None:
    reader.names.clear()
    before = reader.kills
    reader.follow(snippets(TUTORIAL, before=SECURED))
    assert reader.kills == before + 1
    reader.shell("penstock backup create copy --data-dir data && penstock restore copy --data-dir secured/data")
    with BrokerProcess(directory / "secured" / "data", PENSTOCK_SECURITY__MODE="on") as broker:
        ports = {"9092": broker.ready().endpoint("rustlog")[1]}
        Reader(directory / "secured", ports, {}).follow(snippets(TUTORIAL, after=SECURED))
