"""One process per data directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.errors import DirectoryLocked
from penstock.log.lock import DirectoryLock

pytestmark = pytest.mark.process

HOLD = """
import sys
from penstock.log.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


def holder(directory: Path) -> subprocess.Popen[bytes]:
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def end(process: subprocess.Popen[bytes], number: int) -> None:
    process.send_signal(number)
    process.communicate()


def refused_by_this_process(directory: Path) -> None:
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()} "):
        DirectoryLock(str(directory)).acquire()


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(DirectoryLocked) as refused:
            DirectoryLock(str(tmp_path)).acquire()
        assert str(tmp_path) in str(refused.value)
        assert f"process {process.pid}" in str(refused.value)
    finally:
        end(process, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_process_holds_nothing(tmp_path: Path, number: int) -> None:
    end(holder(tmp_path), number)
    lock = DirectoryLock(str(tmp_path))
    lock.acquire()
    refused_by_this_process(tmp_path)
    lock.release()


def test_the_holder_is_named_anew_by_each_holder(tmp_path: Path) -> None:
    """The dead process's name must not be told as the holder's."""
    end(holder(tmp_path), signal.SIGKILL)
    mine = DirectoryLock(str(tmp_path))
    mine.acquire()
    refused_by_this_process(tmp_path)
    mine.release()


def test_a_released_directory_is_free(tmp_path: Path) -> None:
    first = DirectoryLock(str(tmp_path))
    first.acquire()
    first.release()
    second = DirectoryLock(str(tmp_path))
    second.acquire()
    first.release()  # once more does no harm
    refused_by_this_process(tmp_path)
    second.release()


def test_a_refused_attempt_leaves_the_lock_as_it_was(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    lock.acquire()
    for _ in range(2):
        refused_by_this_process(tmp_path)
    lock.release()


def test_the_directory_is_made(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path / "new" / "data"))
    lock.acquire()
    assert (tmp_path / "new" / "data").is_dir()
    lock.release()
