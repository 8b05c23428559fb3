"""All canaries, and which of them a run of all tests has its turn with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import Final

from tests.canaries import broker_canaries, door_canaries, log_canaries, safety_canaries
from tests.canaries.canary import ROOT, Canary

CANARIES: Final[Sequence[Canary]] = (
    *log_canaries.CANARIES,
    *broker_canaries.CANARIES,
    *door_canaries.CANARIES,
    *safety_canaries.CANARIES,
)


def rotating(turn: int, count: int) -> list[Canary]:
    """The canaries of one turn; each has its own in `len(CANARIES) / count` turns."""
    return [CANARIES[(turn * count + number) % len(CANARIES)] for number in range(count)]


def turn() -> int:
    """The number of commits so far and of days: it moves with either, also where a clone has only the last commit."""
    if chosen := os.environ.get("PENSTOCK_CANARIES_TURN"):
        return int(chosen)
    commits = 0
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "rev-list", "--count", "HEAD"]
        commits = int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return commits + date.today().toordinal()
