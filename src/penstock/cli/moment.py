"""Times and offsets as values of a flag: `@-1h`, `@2026-03-01T12:00`, `@1767225600`, `42`, `latest`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from penstock.cli import quantity
from penstock.cli.failure import fail

HELP: Final = "an offset, earliest, latest, or @TIME: @-1h (ago), @2026-03-01T12:00 (UTC), @1767225600 (since 1970)"


def offset_or_time(flag: str, text: str) -> Literal["earliest", "latest"] | int | datetime:
    """A position in a topic. Ends the command if the text is invalid."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.startswith("@"):
        return moment(flag, text[1:])
    if not text.isdecimal():
        fail(f"{flag} {text}: expected {HELP}", 2)
    return int(text)


def moment(flag: str, text: str) -> datetime:
    """A time: a duration ago, in ISO 8601, or in seconds since 1970. Ends the command if the text is invalid."""
    try:
        if text.startswith("-"):
            return datetime.now(UTC) - timedelta(seconds=quantity.seconds(flag, text[1:]))
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        fail(f"{flag} @{text}: expected a time such as @-1h, @2026-03-01T12:00 or @1767225600", 2)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
