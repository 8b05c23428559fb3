"""Durations and sizes as values of a flag: `30d`, `1.5h`, `10GiB`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.failure import fail
from penstock.config.units import DURATION_UNITS, QUANTITY, SIZE_UNITS


def seconds(flag: str, text: str) -> float:
    return _quantity(flag, text, {unit: factor for unit, factor in DURATION_UNITS.items() if unit})


def size(flag: str, text: str) -> int:
    """A size in bytes."""
    return int(_quantity(flag, text, SIZE_UNITS))


def _quantity(flag: str, text: str, units: Mapping[str, float]) -> float:
    found = QUANTITY.fullmatch(text.strip())
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None:
        fail(f"{flag} {text}: expected a number with one of {', '.join(filter(None, units))}", 2)
    return float(found[1]) * unit
