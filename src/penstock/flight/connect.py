"""From options to a `Log`, one for each process and set of options: workers of Spark live longer than a task, and to
connect, or to read a directory's state, takes longer than many a task does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

from penstock.flight.log import Log
from penstock.flight.options import BrokerOptions, DirectoryOptions, parse

KEPT: Final = 32  # logs; those that were not asked for longest go first

_lock = threading.Lock()
_logs: dict[tuple[int, DirectoryOptions | BrokerOptions], Log] = {}


def connect(options: Mapping[str, str]) -> Log:
    """The log that these options name. Others in this process may be using it too, so it is not for the caller to
    close. Raises OptionsUnusable, and what reaching it raises."""
    wanted = parse(options)
    key = os.getpid(), wanted  # what a parent opened is of no use to its forks
    with _lock:
        log = _logs.pop(key, None)
        if log is None:
            log = _open(wanted)
            while len(_logs) >= KEPT:
                del _logs[next(iter(_logs))]  # who still uses it keeps it
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
    """Either kind loads a good deal, and nobody needs both."""
    if isinstance(options, DirectoryOptions):
        from penstock.flight.directory import DirectoryLog

        return DirectoryLog(options.path, options.scope, options.tables_url, dict(options.tables_options))
    from penstock.flight.client import FlightLog

    return FlightLog(options)
