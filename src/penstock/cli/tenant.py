"""`penstock tenant`: lists, shows, registers and deletes the tenants of a broker, whether it runs or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import admin_request, flags
from penstock.cli.tables import print_table
from penstock.config.settings import Settings

if TYPE_CHECKING:
    from penstock.admin.tenants import TenantView

app = typer.Typer(help="List, show, register and delete tenants.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("name", "topics", "created", "label")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name; for Kimberlite's tenant 7 it is 7.")]


@app.command("list")
@flags.with_settings()
def list_tenants(settings: Settings) -> None:
    """List all tenants: those that were registered, and those that have topics."""
    from penstock.admin.tenants import TenantView

    _show(admin_request.call(settings, "GET", _path(), list[TenantView]))


@app.command()
@flags.with_settings()
def show(settings: Settings, name: Name) -> None:
    """Show one tenant."""
    from penstock.admin.tenants import TenantView

    _show([admin_request.call(settings, "GET", _path(name), TenantView)])


@app.command()
@flags.with_settings(must_exist=False)
def create(
    settings: Settings,
    name: Name,
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="What people call it.")] = None,
) -> None:
    """Register a tenant. Without this one is there as soon as it has a topic."""
    from penstock.admin.tenants import TenantTerms

    admin_request.send(settings, "PUT", _path(name), TenantTerms(label))
    typer.echo(f"tenant {name} is registered")


@app.command()
@flags.with_settings()
def delete(
    settings: Settings,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a tenant with all that belongs to it: topics, audit log, groups, schemas, users, roles, lists and keys."""
    from penstock.admin.tenants import TenantView

    found = admin_request.call(settings, "GET", _path(name), TenantView)
    if not yes:
        typer.confirm(f"Delete tenant {name} with {found.topics} topic(s), users and keys, for good?", abort=True)
    deleted = admin_request.call(settings, "DELETE", _path(name), TenantView)
    typer.echo(f"deleted tenant {name} with {deleted.topics} topic(s)")


def _show(tenants: list[TenantView]) -> None:
    rows = [
        (tenant.name, tenant.topics, datetime.fromtimestamp(tenant.created // 1_000_000, UTC).isoformat(), tenant.label)
        for tenant in tenants
    ]
    print_table(COLUMNS, rows, numbers=("topics",))


def _path(*names: str) -> str:
    return admin_request.path("tenants", *names)
