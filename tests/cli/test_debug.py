"""`penstock debug bundle`: what is in it, and what is not."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.secured import Secured, secured
from tests.launcher import penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("debug")) as found:
        found.admin("topic", "create", "orders")
        found.admin("produce", "orders", "a secret value")
        yield found


def content(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name.removeprefix("penstock-debug/"): file.read() for name, file in files.items() if file}


def test_on_the_machine_it_has_all_parts_and_no_secrets(broker: Secured, tmp_path: Path) -> None:
    data = broker.elsewhere.parent / "data"
    (tmp_path / "broker.log").write_text("started\n")
    path = tmp_path / "report.tar.gz"
    arguments = ("--data-dir", str(data), "--log", str(tmp_path / "broker.log"), "--file", str(path))
    done = penstock("debug", "bundle", *arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    files = content(path)
    assert sorted(files) == sorted(part["part"] for part in json.loads(done.stdout))
    assert {"config.json", "metrics.json", "topics.json", "connections.json", "logs/0-broker.log"} <= files.keys()
    assert b"orders" in files["topics.json"] and files["logs/0-broker.log"] == b"started\n"
    assert json.loads(files["versions.json"])["penstock"] == json.loads(files["broker.json"])["version"]
    assert b"a secret value" not in b"".join(files.values())
    assert path.stat().st_mode & 0o077 == 0
    done = penstock("debug", "bundle", *arguments)
    assert done.returncode == 1 and "there is such a file already" in done.stderr


def test_from_elsewhere_it_says_what_is_left_out(broker: Secured, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    parts = {
        part["part"]: part for part in json.loads(broker.admin("debug", "bundle", "--file", str(path), "-o", "json"))
    }
    assert parts["config.json"]["bytes"] is None and "left out" in parts["config.json"]["what_it_is"]
    assert "topics.json" in content(path) and "config.json" not in content(path)
