"""`penstock top`: the throughput of a broker by door and topic, refreshed periodically."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import AdminTarget, with_admin_target
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.status import duration, size
from penstock.cli.tables import aligned, printable

if TYPE_CHECKING:
    from rich.console import Group

COLUMNS: Final = ("kind", "name", "records/s", "bytes/s", "records", "bytes", "lag")
SHOWN: Final = 20  # topics on a screen: the busiest


class Sample(NamedTuple):
    """A snapshot of a broker's counters."""

    moment: float  # seconds, monotonic
    broker: dict[str, Any]
    topics: dict[str, dict[str, Any]]
    doors: dict[str, int]  # bytes received and sent by open connections
    lags: dict[str, int]  # by topic: of the group with the largest lag


class Rate(NamedTuple):
    kind: str
    name: str
    records_rate: float | None
    bytes_rate: float
    records: int | None
    bytes: int
    lag: int | None


@with_admin_target()
def top(
    broker: AdminTarget,
    once: Annotated[bool, typer.Option("--once", help="Print the rates of one interval and exit.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, max=3600, help="Refresh interval.")
    ] = 1.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what goes through a broker: records and bytes in a second by topic, bytes by door (for administrators of all
    tenants), and lag. q or Ctrl-C ends it; in a pipe it is printed once.

      penstock top --server broker.example:9092 --user ada

      penstock top --once --output json
    """
    with admin_request.one_connection(broker):
        before = _look(broker)
        if once or output is not Output.TABLE or not (sys.stdout.isatty() and sys.stdin.isatty()):
            time.sleep(interval)
            show_rows(output, COLUMNS, _rates(before, _look(broker)), numbers=COLUMNS[2:])
        else:
            _live(broker, before, interval)


def _live(broker: AdminTarget, before: Sample, interval: float) -> None:
    from rich.live import Live

    with _keys() as pressed, Live(_screen(before, []), screen=True, auto_refresh=False) as live:
        live.refresh()
        while pressed(interval) not in ("q", "Q"):
            now = _look(broker)
            live.update(_screen(now, _rates(before, now)), refresh=True)
            before = now


def _look(broker: AdminTarget) -> Sample:
    found = admin_request.call(broker, "GET", admin_request.path("broker"), dict[str, Any])
    topics = admin_request.all_of(broker, admin_request.path("topics"), dict[str, Any])
    lags: dict[str, int] = {}
    for group in admin_request.all_of(broker, admin_request.path("groups"), dict[str, Any]):
        lags[group["topic"]] = max(lags.get(group["topic"], 0), group["lag"])
    doors: dict[str, int] = {}
    reply = admin_request.try_send(broker, "GET", admin_request.path("connections", limit=1000))
    if reply is not None and reply[0] < 300:
        for each in msgspec.json.decode(reply[1])["items"]:
            door = each["door"] or "not known yet"
            doors[door] = doors.get(door, 0) + each["received"] + each["sent"]
    return Sample(time.monotonic(), found, {topic["name"]: topic for topic in topics}, doors, lags)


def _rates(before: Sample, now: Sample) -> list[Rate]:
    """Doors, then topics, the busiest first."""
    passed = max(1e-3, now.moment - before.moment)

    def rate(old: int, new: int) -> float:
        return round(max(0, new - old) / passed, 1)  # closed connections and retention decrease counters

    doors = [
        Rate("door", door, None, rate(before.doors.get(door, 0), moved), None, moved, None)
        for door, moved in sorted(now.doors.items())
    ]
    nothing = {"records": 0, "bytes": 0}
    topics = []
    for name, topic in now.topics.items():
        old = before.topics.get(name, nothing)
        rates = rate(old["records"], topic["records"]), rate(old["bytes"], topic["bytes"])
        topics.append(Rate("topic", name, *rates, topic["records"], topic["bytes"], now.lags.get(name)))
    return doors + sorted(topics, key=lambda each: (-(each.records_rate or 0), each.name))


def _screen(now: Sample, rates: list[Rate]) -> Group:
    from rich.console import Group
    from rich.text import Text

    broker = now.broker
    health = "ok" if broker["health"]["writable"] else "read-only"
    up = duration(broker["uptime_seconds"])
    head = f"penstock {broker['version']}  up {up}  {health}  position {broker['position']}  q ends"
    rows = [
        ["" if cell is None else _cell(column, cell) for column, cell in zip(COLUMNS, each, strict=True)]
        for each in rates[: SHOWN + len(now.doors)]
    ]
    return Group(Text(head), Text(), aligned(COLUMNS, rows, numbers=COLUMNS[2:]))


def _cell(column: str, cell: Any) -> str:
    return size(cell) if column.startswith("bytes") else printable(str(cell))


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits this many seconds for a key, and returns it, or an empty text. Ctrl-C works as usual."""
    terminal = sys.stdin.fileno()
    kept = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield (
            lambda seconds: (
                os.read(terminal, 1).decode(errors="replace") if select.select([terminal], [], [], seconds)[0] else ""
            )
        )
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, kept)
