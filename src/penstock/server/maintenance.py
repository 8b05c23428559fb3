"""Maintenance of a running broker: periodic work on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.broker.runtime.clock import wall_clock

logger = logging.getLogger(__name__)

MAINTAIN_SECONDS = 1.0
SWEEP_SECONDS = 0.1


async def maintain(broker: Broker, every_second: Callable[[], None]) -> None:
    """Sweep the broker ten times a second, and maintain it and call `every_second` once a second, until cancelled."""
    maintained = 0.0
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            broker.sweep(wall_clock())
            if time.monotonic() - maintained >= MAINTAIN_SECONDS:
                maintained = time.monotonic()
                broker.maintain(wall_clock())
                every_second()
        except Exception:
            logger.exception("maintenance failed; it is tried again in %g s", SWEEP_SECONDS)
