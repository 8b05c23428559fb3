"""Door numbers: how the log records the door through which a record arrived.

They are in the headers of batches on disk: a new door gets the next number, and numbers are never reused. Tables store
the names instead, for their readers. The broker passes the numbers on and decides nothing by them. 0 means no door:
records that the broker appended itself (its audit log, delayed records that came due, records a queue gave up), and
records written before the log stored door numbers.
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
    """The name of the door, or None for 0 and for a door of a later version."""
    return _NAMES.get(number)
