"""`penstock roles`: lists, sets and removes the roles of a broker's users, whether it runs or not."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.cli import admin_request, flags
from penstock.cli.tables import print_table
from penstock.config.settings import Settings

app = typer.Typer(help="List, set and remove roles.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("name", "permissions", "kind", "description")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The role's name.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that the role belongs to.")]


@app.command("list")
@flags.with_settings()
def list_roles(settings: Settings, tenant: Tenant = "default") -> None:
    """List the built-in roles, and those of a tenant."""
    from penstock.admin.users import RoleView

    roles = admin_request.call(settings, "GET", _path(tenant), list[RoleView])
    kinds = {True: "built-in", False: "custom"}
    rows = [(role.name, ",".join(role.permissions), kinds[role.built_in], role.description) for role in roles]
    print_table(COLUMNS, rows)


@app.command("set")
@flags.with_settings(must_exist=False)
def set_role(
    settings: Settings,
    name: Name,
    allow: Annotated[
        str,
        typer.Option("--allow", metavar="LIST", help="What it gives, separated by commas: read, write, phi, admin."),
    ],
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    tenant: Tenant = "default",
) -> None:
    """Make a role, or give one other permissions. Acts at once on those who have it."""
    from penstock.admin.users import RoleTerms

    permissions = tuple(part.strip() for part in allow.split(",") if part.strip())
    admin_request.send(settings, "PUT", _path(tenant, name), RoleTerms(permissions, description))
    typer.echo(f"set role {name}: {', '.join(permissions) or 'nothing'}")


@app.command()
@flags.with_settings()
def remove(settings: Settings, name: Name, tenant: Tenant = "default") -> None:
    """Remove a role that no user has any more, also from all access lists."""
    admin_request.send(settings, "DELETE", _path(tenant, name))
    typer.echo(f"removed role {name}")


def _path(*parts: str) -> str:
    return admin_request.path("roles", *parts)
