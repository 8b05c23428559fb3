"""The broker process: event loop, signals, open-file limit. `penstock serve` calls `run`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable

from penstock.config.settings import Config
from penstock.server.banner import banner
from penstock.server.errors import StandbyStopped
from penstock.server.server import Server
from penstock.server.service_manager import notify
from penstock.server.storage import Standby
from penstock.workers.import_guard import without_pandas

logger = logging.getLogger(__name__)

SPARE_FILES = 256  # descriptors besides connections: segments, listeners, pipes
SWITCH_SECONDS = 0.0002  # the interpreter's own 5 ms are many times what the thread that commits needs of it


def run(config: Config, announce: Callable[[str], None]) -> None:
    """`serve` on the fastest available event loop. Raises StartFailed."""
    factory = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        logger.info("uvloop is not installed: running on asyncio's own event loop, which is slower")
    # Long-lived data (batches, connections, state) consists of many objects and few cycles. With the default thresholds
    # the collector would traverse all of them again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    # After each write the committing thread needs the interpreter for some microseconds, to report it and take the next
    # group; the loop needs it back from a thread that reads. Each would keep the other waiting for the whole interval.
    sys.setswitchinterval(SWITCH_SECONDS)
    without_pandas()  # else Arrow loads it with the first array that it makes
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(config, announce))


async def serve(config: Config, announce: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises StartFailed."""
    stopped = asyncio.Event()
    _stop_on_signals(stopped, announce)
    raise_file_limit(config.settings.limits.connections)
    while not stopped.is_set():
        await _serve_once(config, announce, stopped)


async def _serve_once(config: Config, announce: Callable[[str], None], stopped: asyncio.Event) -> None:
    """Run until the broker is stopped, or until another one has taken over the journal: the caller then opens it again,
    as a standby."""
    wake, lost = asyncio.Event(), []

    def on_standby(text: str) -> None:
        announce(text)
        notify("READY=1")

    def on_lost(reason: str) -> None:
        lost.append(reason)
        wake.set()

    server = Server(config, Standby(stopped.is_set, on_standby, on_lost))
    try:
        await server.start()
    except StandbyStopped:
        announce("stopped cleanly")
        return
    announce(banner(server))
    notify("READY=1")
    waits = [asyncio.ensure_future(event.wait()) for event in (stopped, wake)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
    if stopped.is_set():
        notify("STOPPING=1")
    for reason in lost:
        announce(f"stepping down: {reason}")
    began = time.monotonic()
    await server.stop()
    announce(f"stopped cleanly after {time.monotonic() - began:.1f} s")


def _stop_on_signals(stopped: asyncio.Event, announce: Callable[[str], None]) -> None:
    """The first SIGTERM or SIGINT stops the broker gracefully, the second one ends the process at once."""

    def on_signal(number: int) -> None:
        if stopped.is_set():
            os._exit(128 + number)
        announce(f"{signal.Signals(number).name}: finishing what was accepted")
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


def raise_file_limit(connections: int) -> None:
    """Raise the soft limit of open files: every connection takes a descriptor, and shells often allow only 1,024
    although the system allows far more."""
    wanted = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        logger.warning(
            "limits.connections is %d, but the system allows this process %d open files (ulimit -n)", connections, hard
        )
