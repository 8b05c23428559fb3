"""`penstock top`: once in a pipe, live on a terminal until q or Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.secured import Secured, secured
from tests.launcher import COMMAND, WITHOUT_SETTINGS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("top")) as found:
        found.admin("topic", "create", "orders")
        found.admin("produce", "orders", "one", "two")
        yield found


def test_in_a_pipe_it_looks_twice_and_ends(broker: Secured) -> None:
    rows = json.loads(broker.admin("top", "--interval", "0.1", "--output", "json"))
    (orders,) = (row for row in rows if row["name"] == "orders")
    assert orders["kind"] == "topic" and orders["records"] == 2 and orders["records/s"] == 0
    lines = broker.admin("top", "--once", "--interval", "0.1").splitlines()
    assert lines[0].startswith("kind\tname\t") and "\x1b" not in "".join(lines)
    done = broker.run(None, "top", "--once")
    assert done.returncode == 1 and "--user" in done.stderr


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 130)])
def test_on_a_terminal_it_is_live_until_a_key(broker: Secured, tmp_path: Path, key: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    login = ("--server", broker.server, "--user", "admin", "--password-file", str(broker.elsewhere / "admin"))
    environment = WITHOUT_SETTINGS | {"COLUMNS": "120", "LINES": "40", "TERM": "xterm", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*COMMAND, "top", "--interval", "0.2", *login],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(theirs), os.O_RDWR)),  # the terminal that Ctrl-C is typed at
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"orders" not in shown:
        shown += os.read(ours, 65536)
    os.write(ours, key)
    with pytest.raises(OSError):  # the other end is closed
        while True:
            shown += os.read(ours, 65536)
    os.close(ours)
    assert process.wait(30) == code
    assert b"Traceback" not in shown and b"q ends" in shown
