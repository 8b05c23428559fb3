"""`penstock status`: a broker on one screen, with its problems."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.tables import print_fields, print_table
from penstock.cli.target import Target
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:
    from penstock.admin.broker import BrokerView

LOW_DISK: Final = 0.1  # free share
WORST: Final = 5  # number of groups shown, those with the most lag


class Problem(NamedTuple):
    """A problem of a broker, and its remedy."""

    what: str
    do: str


@with_admin_target()
def status(broker: AdminTarget, output: OutputOption = Output.TABLE) -> None:
    """Show a broker on one screen: version, health, doors, disk, topics, tables, lag; what is wrong and what to do.

    Exit code 0 if nothing is wrong, 1 otherwise.

      penstock status --server broker.example:9092 --user ada

      penstock status --output json
    """
    from penstock.admin.broker import BrokerView

    if isinstance(broker, Target):
        document = admin_request.send(broker, "GET", admin_request.path("broker"))
    else:
        from penstock.cli.administration import request_running

        found = request_running(broker, "GET", admin_request.path("broker"))
        if found is None:
            fail(f"no broker runs in {broker.data_dir}: start it with `penstock serve`, or name another with --server")
        document = found
    view = decode_json(document, BrokerView)
    topics = admin_request.all_of(broker, admin_request.path("topics"), dict[str, Any])
    groups = admin_request.all_of(broker, admin_request.path("groups"), dict[str, Any])
    tables = admin_request.all_of(broker, admin_request.path("tables"), dict[str, Any])
    disk = None if isinstance(broker, Target) else shutil.disk_usage(broker.data_dir)
    problems = _problems(view, None if disk is None else disk.free / disk.total)
    if output is not Output.TABLE:
        figures = {
            "broker": view,
            "topics": len(topics),
            "records": sum(topic["records"] for topic in topics),
            "bytes": sum(topic["bytes"] for topic in topics),
            "tables": len(tables),
            "lag": sum(group["lag"] for group in groups),
            "disk_free": None if disk is None else disk.free,
            "problems": [problem._asdict() for problem in problems],
        }
        show_json(output, figures)
    else:
        _show(view, topics, groups, tables, disk, problems)
    if problems:
        raise typer.Exit(1)


def _show(
    view: BrokerView, topics: list[Any], groups: list[Any], tables: list[Any], disk: Any, problems: list[Problem]
) -> None:
    places: dict[str, list[str]] = {}
    for door in view.doors:
        places.setdefault(f"{door.address}/{door.transport}", []).append(door.name)
    records, stored = sum(topic["records"] for topic in topics), sum(topic["bytes"] for topic in topics)
    free = "not known over the network" if disk is None else f"{size(disk.free)} free of {size(disk.total)}"
    in_tables = sum(table["bytes"] or 0 for table in tables)
    print_fields(
        [
            ("version", view.version),
            ("health", "ok" if not problems else f"{len(problems)} problem(s), see below"),
            ("up for", duration(view.uptime_seconds)),
            ("security", "on" if view.security else "off"),
            ("durability", view.durability),
            ("position", view.position),
            *(("doors", f"{address}: {', '.join(names)}") for address, names in sorted(places.items())),
            ("disk", free),
            ("topics", f"{len(topics)}, {records} records, {size(stored)}"),
            ("tables", f"{len(tables)}, {size(in_tables)}"),
            ("lag", f"{sum(group['lag'] for group in groups)} records of {len(groups)} group(s)"),
        ]
    )
    if behind := sorted((group for group in groups if group["lag"]), key=lambda group: -group["lag"])[:WORST]:
        typer.echo()
        rows = [(group["group"], group["topic"], group["lag"]) for group in behind]
        print_table(("group", "topic", "lag"), rows, numbers=("lag",))
    if problems:
        typer.echo()
        print_table(("problem", "what to do"), problems)


def _problems(view: BrokerView, free: float | None) -> list[Problem]:
    health = view.health
    found = []
    if not health.writable:
        found.append(
            Problem(f"no writes are taken: {health.reason}", "mend the disk or make room, then start it again")
        )
    if health.phase != "serving":
        found.append(Problem(f"the broker is {health.phase}", "wait; its log says what it is at"))
    if health.missing:
        found.append(Problem(f"not there at the moment: {', '.join(health.missing)}", "wait; its log says why"))
    if health.tables:
        found.append(Problem(f"tables: {health.tables}", "penstock table verify, then penstock table repair"))
    if free is not None and free < LOW_DISK:
        found.append(Problem(f"only {free:.0%} of the disk is free", "make room, or keep less: topics' retention"))
    return found


def size(count: float) -> str:
    """A number of bytes, human-readable."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """A duration, human-readable: its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"
