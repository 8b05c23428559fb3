"""From options to a `Log`, cached per process and set of options: Spark's workers live longer than a task, and
connecting, or reading a directory's state, takes longer than many tasks do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

from penstock.flight.log import Log
from penstock.flight.options import BrokerOptions, DirectoryOptions, parse

KEPT: Final = 32  # logs; LRU eviction

_lock = threading.Lock()
_logs: dict[tuple[int, DirectoryOptions | BrokerOptions], Log] = {}


def connect(options: Mapping[str, str]) -> Log:
    """The log for these options. It may be shared within this process, so the caller must not close it. Raises
    OptionsUnusable, and the errors of connecting.
    """
    wanted = parse(options)
    key = os.getpid(), wanted  # a forked child cannot use its parent's connection
    with _lock:
        log = _logs.pop(key, None)
        if log is None:
            log = _open(wanted)
            while len(_logs) >= KEPT:
                del _logs[next(iter(_logs))]  # current users keep their reference
        _logs[key] = log
        return log


def disconnect() -> None:
    """Close everything that `connect` opened in this process."""
    with _lock:
        for (process, _), log in _logs.items():
            if process == os.getpid():
                log.close()
        _logs.clear()


def _open(options: DirectoryOptions | BrokerOptions) -> Log:
    """Imports only the implementation that is needed: both load much."""
    if isinstance(options, DirectoryOptions):
        from penstock.flight.directory import DirectoryLog

        return DirectoryLog(options.path, options.scope, options.tables_url, dict(options.tables_options))
    from penstock.flight.client import FlightLog

    return FlightLog(options)
