"""`penstock bench`: its table, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

from tests.cli.secured import secured
from tests.launcher import COMMAND, WITHOUT_SETTINGS

SMALL = ("--seconds", "0.3", "--size", "100", "--batch", "10")


def test_a_load_is_measured_and_its_topic_deleted(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        done = broker.run("admin", "bench", *SMALL, "--output", "json")
        assert done.returncode == 0, done.stderr
        produced, consumed = json.loads(done.stdout)
        assert produced["records"] == consumed["records"] > 0 and produced["records/s"] > 0
        assert produced["p50_ms"] <= produced["p99_ms"] <= produced["max_ms"]
        assert done.stderr == "", "a bar is for terminals"
        assert "penstock-bench" not in broker.admin("topic", "list", "--output", "json")
        done = broker.run("reader", "bench", *SMALL)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("penstock: "), done

        login = ("--user", "admin", "--password-file", str(broker.elsewhere / "admin"))
        shown = on_terminal(tmp_path, "bench", *SMALL, "--server", broker.server, *login)
        assert "producing" in shown and "consuming" in shown and "records/s" in shown
        assert "penstock-bench" not in broker.admin("topic", "list", "--output", "json")


def on_terminal(directory: Path, *arguments: str) -> str:
    """The output on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = WITHOUT_SETTINGS | {"COLUMNS": "80", "TERM": "xterm", "HOME": str(directory)}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=directory
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown.decode()
