"""The ends of the log, for the lag of a pipeline. While it does not respond, lag is unknown, without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from penstock.spark.pipelines.progress import Ends
from penstock.spark.pipelines.project import Project

RETRY_SECONDS: Final = 10.0  # between two attempts to reach a log


def log_ends(project: Project) -> Callable[[Collection[str]], Ends | None]:
    """A function that returns the ends of these topics; None if there is no response, or no password here."""
    from penstock.flight.connect import connect
    from penstock.flight.errors import FlightLogError

    again = 0.0

    def ends(topics: Collection[str]) -> Ends | None:
        nonlocal again
        if not project.broker or time.monotonic() < again:
            return None
        try:
            return {place: bounds.high_watermark for place, bounds in connect(project.broker).bounds(topics).items()}
        except FlightLogError:
            again = time.monotonic() + RETRY_SECONDS
            return None

    return ends
