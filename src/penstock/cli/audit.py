"""`penstock audit`: shows and verifies the audit log of a broker, running or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer

from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.audit_event import MAX_PAGE, TYPES, AuditEvent, AuditQuery
from penstock.cli import admin_request, quantity
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_views
from penstock.cli.tables import print_fields

COLUMNS: Final = ("time", "type", "user", "client_ip", "resource", "action", "result", "details")
RESULTS: Final = ("success", "denied", "failure")
STEP: Final = 20_000  # events verified between two progress messages

app = typer.Typer(
    help=f"Show the audit log, newest first (times are UTC), or verify it. {WAYS}\n\n"
    "  penstock audit --since 1h --type auth\n\n"
    "  penstock audit verify",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
@with_admin_target()
def audit(
    broker: AdminTarget,
    invocation: typer.Context,  # noqa: ARG001 - tells whether a subcommand follows
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="No older than this, such as 90s, 1h or 7d.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="A type (auth.failure) or a family (auth). Repeatable."),
    ] = None,
    actor: Annotated[str, typer.Option("--actor", metavar="NAME", help="Who did it, as the column shows it.")] = "",
    resource: Annotated[str, typer.Option("--resource", help="What it was done to.")] = "",
    result: Annotated[str, typer.Option("--result", help=f"One of {', '.join(RESULTS)}.")] = "",
    search: Annotated[str, typer.Option("--search", metavar="TEXT", help="A piece of any text in the event.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MAX_PAGE, help="How many, of the newest.")
    ] = 100,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose log.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="All that fit, as CSV, whatever --limit says.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the audit log, newest first. Times are UTC."""
    from penstock.admin.audit import AuditView

    query = AuditQuery(
        start=0 if since is None else wall_clock() // 1000 - int(min(quantity.seconds("--since", since), 1e11) * 1000),
        types=tuple(_known(kind or ())),
        user=actor,
        resource=resource,
        result=_result(result),
        search=search,
        limit=None if csv else limit,
    )
    filters = {name: value for name, value in msgspec.structs.asdict(query).items() if value}
    if csv:
        path = admin_request.path("audit", "export", tenant=tenant, format="csv", **filters)
        typer.echo(admin_request.send(broker, "GET", path).decode(), nl=False)
        return
    page = admin_request.call(broker, "GET", admin_request.path("audit", tenant=tenant, **filters), AuditView)
    show_views(output, COLUMNS, page.events, _row)
    if page.has_more:
        typer.echo(
            f"note: {len(page.events)} of {page.total} events; see more with --limit, or all with --csv", err=True
        )


@app.command()
@with_admin_target()
def verify(
    broker: AdminTarget,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose log.")] = None,
) -> None:
    """Check that no event was changed or removed since it was written. Exit code 1 if one was.

    penstock audit verify
    """
    from penstock.admin.audit import VerifyRequest
    from penstock.broker.security.audit_chain import ChainMark, ChainReport

    path = admin_request.path("audit", "verify", tenant=tenant)
    mark: ChainMark | None = None
    while True:
        report = admin_request.call(broker, "POST", path, ChainReport, VerifyRequest(mark, STEP))
        mark = report.mark
        if mark is None:
            break
        typer.echo(f"{mark.offset - report.start} of {report.end - report.start} events", err=True)
    if not report.ok:
        whose = "" if tenant is None else f" of tenant {tenant}"
        fail(f"the audit log{whose} is not what was written: {report.text} (event {report.mismatch})")
    typer.echo(report.text)
    print_fields([("head", report.head or "-")])


def _row(event: AuditEvent) -> tuple[str, ...]:
    moment = datetime.fromtimestamp(event.timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    details = " ".join(f"{name}={value}" for name, value in event.details.items())
    cells = (event.type, event.user, event.client_ip, event.resource, event.action, event.result, details)
    return (moment, *(cell or "-" for cell in cells))


# -- input


def _known(kinds: list[str] | tuple[str, ...]) -> list[str]:
    for kind in kinds:
        if kind not in TYPES and not any(known.startswith(f"{kind}.") for known in TYPES):
            fail(f"--type {kind}: there is no such type; there are {', '.join(TYPES)}", 2)
    return list(kinds)


def _result(text: str) -> str:
    if text and text not in RESULTS:
        fail(f"--result {text}: expected one of {', '.join(RESULTS)}", 2)
    return text
