"""Tables of a broker over the network: information from its API, and verification and repair as its jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from penstock.cli import admin_request
from penstock.cli.failure import fail
from penstock.cli.progress import progress_to
from penstock.cli.tables import print_fields, print_table

if TYPE_CHECKING:
    from penstock.broker.tables.table import RepairReport, TypedReport
    from penstock.cli.target import Target

POLL_SECONDS: Final = 0.2  # between two polls of a job
RUNNING: Final = ("waiting", "running")


class RemoteTables:
    """The tables of one tenant and namespace of a broker."""

    def __init__(self, target: Target, tenant: str | None, namespace: str | None) -> None:
        self._target = target
        self._scope = {"tenant": tenant, "namespace": namespace}

    def all(self) -> list[dict[str, Any]]:
        return admin_request.all_of(self._target, admin_request.path("tables", **self._scope), dict[str, Any])

    def print_list(self) -> None:
        rows: list[tuple[object, ...]] = []
        for each in self.all():
            rows.append((each["topic"], each["bytes"], _offsets(each), each["url"]))
            if each.get("typed"):
                rows.append((each["typed"], None, None, each["typed_url"]))
        cells = (["" if cell is None else cell for cell in row] for row in rows)
        print_table(("topic", "bytes", "offsets", "place"), cells, numbers=("bytes",))

    def print_one(self, topic: str) -> None:
        path = admin_request.path("tables", topic, **self._scope)
        found = admin_request.call(self._target, "GET", path, dict[str, Any])
        size = "not known yet" if found["bytes"] is None else found["bytes"]
        fields = [("topic", topic), ("place", found["url"]), ("bytes", size), ("offsets", _offsets(found))]
        print_fields([*fields, ("typed table", found["typed"])] if found.get("typed") else fields)

    def verified(self, topic: str) -> RepairReport:
        """The result of verifying every byte. Ends the command if there is none."""
        return self._job(topic, "verify", None)

    def repaired(self, topic: str, *, checksums: bool) -> RepairReport:
        return self._job(topic, "repair", {"checksums": checksums})

    def _job(self, topic: str, what: str, body: object) -> RepairReport:
        from penstock.broker.tables.table import RepairReport

        path = admin_request.path("tables", topic, what, **self._scope)
        with progress_to(f"{what} {topic}") as show, admin_request.one_connection(self._target):
            job = admin_request.call(self._target, "POST", path, dict[str, Any], body)
            while job["state"] in RUNNING:
                if show is not None and job["progress"].get("total"):
                    show(job["progress"]["done"], job["progress"]["total"])
                time.sleep(POLL_SECONDS)
                job = admin_request.call(
                    self._target, "GET", admin_request.path("jobs", str(job["id"])), dict[str, Any]
                )
        if job["state"] != "done":
            fail(f"{topic}: {(job.get('error') or {}).get('message') or job['state']}")
        return msgspec.convert(job["result"], RepairReport)


def print_outcome(topic: str, report: RepairReport) -> None:
    """Print a verification, in the same form as a local one."""
    if report.version is None and report.sound:
        typer.echo(f"{topic}: no table yet")
        return
    typer.echo(
        f"{topic}: {report.records} records in version {report.version}, {report.compared} of them compared with the "
        f"journal: {'sound' if report.sound else 'DAMAGED'}"
    )
    for line in (*map(str, report.left), *report.problems):
        typer.echo(f"  damage: {line}")
    if report.typed is not None:
        print_typed(report.typed)


def print_typed(report: TypedReport) -> None:
    """Print the verification of a typed table."""
    typer.echo(
        f"{report.name}: {report.records} records in version {report.version}, {report.compared} of them compared with "
        f"the topic's table: {'sound' if report.sound else 'DIFFERENT'}"
    )
    for line in report.problems:
        typer.echo(f"  {line}")


def _offsets(table: dict[str, Any]) -> str:
    return " ".join(f"{partition}:-{end}" for partition, end in table["ends"].items())
