"""Workers leave processor and disk to those who produce and consume."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHOW = """
import ctypes, os, platform
from penstock.workers import priority
priority.{}()
get = {{"x86_64": 252, "aarch64": 31}}[platform.machine()]
print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE, ctypes.CDLL(None).syscall(get, 1, 0) >> 13)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other classes")
@pytest.mark.parametrize(("how", "shown"), [("lower_priority", ("False", "2")), ("idle_priority", ("True", "3"))])
def test_a_worker_has_its_class_at_the_processor_and_at_the_disk(how: str, shown: tuple[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW.format(how)], capture_output=True, text=True, check=True)
    nice, idle, disk = done.stdout.split()
    assert (idle, disk) == shown
    assert how != "lower_priority" or int(nice) >= 5


SESSION = Path("/proc/self/autogroup")
WEIGHED = SESSION.exists() and bool(SESSION.read_text())  # empty in a control group of its own, as in many containers


@pytest.mark.skipif(not WEIGHED, reason="this kernel does not weigh sessions, or not in this control group")
@pytest.mark.parametrize(("how", "nice"), [("lower_priority", 5), ("idle_priority", 19)])
@pytest.mark.parametrize("own", [True, False])
def test_a_worker_lowers_its_own_session_and_no_other(how: str, nice: int, own: bool) -> None:
    """A priority counts only within a session; that of the broker is not a worker's to lower."""
    program = f"from penstock.workers import priority; priority.{how}(); print(open('{SESSION}').read())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=own)
    before = SESSION.read_text().split()[-1]
    assert done.stdout.split()[-1] == (str(nice) if own else before)
