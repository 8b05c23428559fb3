"""The numbers by which the log keeps through which door a record came.

They are in the headers of batches on disk: a new door gets the next number, and none ever gets another's. The broker
passes them on and decides nothing by them. 0 stands for none: what the broker appended itself (its audit log, delayed
records whose time has come, what a queue gave up), and everything that was written before the log kept this.
"""

from __future__ import annotations

from typing import Final

NUMBERS: Final = {
    "rustlog": 1,
    "blipmq": 2,
    "flymq": 3,
    "kimberlite": 4,
    "felix": 5,
    "http": 6,
    "flight": 7,
    "sql": 8,
}
FLIGHT: Final = NUMBERS["flight"]
SQL: Final = NUMBERS["sql"]
_NAMES: Final = {number: name for name, number in NUMBERS.items()}


def door_name(number: int) -> str | None:
    """None for 0, and for a door of a later version."""
    return _NAMES.get(number)
