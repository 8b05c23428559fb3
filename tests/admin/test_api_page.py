"""The examples of docs/api.md, run as they stand there against a broker with security on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "api.md"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
]


def examples() -> list[tuple[str, str]]:
    """(command, output) in their order."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)


def penstock(directory: Path, *arguments: str, given: str = "") -> str:
    command = [*COMMAND, *arguments, "--data-dir", str(directory)]
    done = subprocess.run(command, input=given, env=WITHOUT_SETTINGS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = examples()
    assert len(found) >= 8
    penstock(data, "users", "add", "ada", "--role", "admin", "--password-stdin", given="secret\n")
    with BrokerProcess(data, PENSTOCK_SECURITY__MODE="on") as broker:
        url = f"http://{broker.ready().address('http')}"
        environment = os.environ | {"URL": url}
        created = subprocess.run(
            ["curl", "-s", "-u", "ada:secret", "-H", "Content-Type: application/json", "-d",
             '{"name": "logs", "partitions": 2}', f"{url}/api/v1/topics"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert '"name":"logs"' in created.stdout
        for command, output in found:
            assert shown(command, output, environment, tmp_path) == output, command


def shown(command: str, due: str, environment: dict[str, str], directory: Path) -> str:
    """The output of a command; a job may take a moment to be what the page says that it is."""
    for _ in range(100):
        done = subprocess.run(
            ["bash", "-c", command], env=environment, cwd=directory, capture_output=True, text=True, timeout=30
        )
        if done.stdout == due or "/jobs/" not in command:
            break
    return done.stdout


def test_the_port_and_the_socket_answer_alike(tmp_path: Path) -> None:
    """The command line uses the socket; what it makes is there at the port, and the other way round."""
    data = tmp_path / "data"
    data.mkdir()
    with BrokerProcess(data) as broker:
        url = f"http://{broker.ready().address('http')}/api/v1"
        penstock(data, "roles", "set", "helper", "--allow", "read")
        shown = subprocess.run(["curl", "-s", f"{url}/roles"], capture_output=True, text=True, timeout=30).stdout
        assert '"helper"' in shown
        by_socket = subprocess.run(
            ["curl", "-s", "--unix-socket", str(data / "admin.sock"), "http://x/api/v1/roles"],
            capture_output=True, text=True, timeout=30,
        ).stdout  # fmt: skip
        assert by_socket == shown
        doors = subprocess.run(["curl", "-s", f"{url}/doors"], capture_output=True, text=True, timeout=30).stdout
        assert f'"name":"http","address":"{broker.address("http")}"' in doors
        connections = subprocess.run(
            ["curl", "-s", f"{url}/connections"], capture_output=True, text=True, timeout=30
        ).stdout
        assert '"door":"http"' in connections and '"request":"GET /api/v1/connections"' in connections
