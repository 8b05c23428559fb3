"""`penstock tenant`: lists, shows, registers and deletes the tenants of a broker, whether it is running or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.output import Output, OutputOption, show_views
from penstock.cli.questions import Yes, confirm

if TYPE_CHECKING:
    from penstock.admin.tenants import TenantView

app = typer.Typer(
    help=f"List, show, register and delete tenants. {WAYS}\n\n"
    "  penstock tenant create acme --label 'Acme Ltd.'\n\n"
    "  penstock tenant list --output json",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("name", "topics", "created", "label")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name; for Kimberlite's tenant 7 it is 7.")]


@app.command("list")
@with_admin_target()
def list_tenants(broker: AdminTarget, output: OutputOption = Output.TABLE) -> None:
    """List all tenants: registered ones, and those that have topics.

    penstock tenant list
    """
    from penstock.admin.tenants import TenantView

    _show(output, admin_request.all_of(broker, _path(), TenantView))


@app.command()
@with_admin_target()
def show(broker: AdminTarget, name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one tenant.

    penstock tenant show default
    """
    from penstock.admin.tenants import TenantView

    _show(output, [admin_request.call(broker, "GET", _path(name), TenantView)])


@app.command()
@with_admin_target(must_exist=False)
def create(
    broker: AdminTarget,
    name: Name,
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="Display name.")] = None,
) -> None:
    """Register a tenant. (A tenant also exists as soon as it has a topic.)

    penstock tenant create acme --label 'Acme Ltd.'
    """
    from penstock.admin.tenants import TenantTerms

    admin_request.send(broker, "PUT", _path(name), TenantTerms(label))
    typer.echo(f"tenant {name} is registered")


@app.command()
@with_admin_target()
def delete(
    broker: AdminTarget,
    name: Name,
    yes: Yes = False,
) -> None:
    """Delete a tenant and everything in it: topics, audit log, groups, schemas, users, roles, lists and keys.

    penstock tenant delete acme --yes
    """
    from penstock.admin.tenants import TenantView

    found = admin_request.call(broker, "GET", _path(name), TenantView)
    confirm(f"Delete tenant {name} with {found.topics} topic(s), users and keys, for good?", yes)
    deleted = admin_request.call(broker, "DELETE", _path(name), TenantView)
    typer.echo(f"deleted tenant {name} with {deleted.topics} topic(s)")


def _show(output: Output, tenants: list[TenantView]) -> None:
    show_views(output, COLUMNS, tenants, _row, numbers=("topics",))


def _row(tenant: TenantView) -> tuple[object, ...]:
    created = datetime.fromtimestamp(tenant.created // 1_000_000, UTC).isoformat()
    return (tenant.name, tenant.topics, created, tenant.label)


def _path(*names: str) -> str:
    return admin_request.path("tenants", *names)
