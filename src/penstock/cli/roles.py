"""`penstock roles`: lists, sets and removes the roles of a broker's users, whether it is running or not."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.output import Output, OutputOption, show_views

app = typer.Typer(
    help=f"List, set and remove roles. {WAYS}\n\n"
    "  penstock roles set billing --allow read,write --description 'reads orders, writes invoices'\n\n"
    "  penstock roles list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("name", "permissions", "kind", "description")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The role's name.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant that the role belongs to.")]


@app.command("list")
@with_admin_target()
def list_roles(broker: AdminTarget, tenant: Tenant = None, output: OutputOption = Output.TABLE) -> None:
    """List the built-in roles, and those of a tenant.

    penstock roles list
    """
    from penstock.admin.roles import RoleView

    roles = admin_request.all_of(broker, _path(tenant), RoleView)
    kinds = {True: "built-in", False: "custom"}
    show_views(
        *(output, COLUMNS, roles),
        lambda role: (role.name, ",".join(role.permissions), kinds[role.built_in], role.description),
    )


@app.command("set")
@with_admin_target(must_exist=False)
def set_role(
    broker: AdminTarget,
    name: Name,
    allow: Annotated[
        str,
        typer.Option("--allow", metavar="LIST", help="Permissions, comma-separated: read, write, phi, admin."),
    ],
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    tenant: Tenant = None,
) -> None:
    """Create a role or replace its permissions. Takes effect immediately.

    penstock roles set billing --allow read,write --description 'reads orders, writes invoices'
    """
    from penstock.admin.roles import RoleTerms

    permissions = tuple(part.strip() for part in allow.split(",") if part.strip())
    admin_request.send(broker, "PUT", _path(tenant, name), RoleTerms(permissions, description))
    typer.echo(f"set role {name}: {', '.join(permissions) or 'nothing'}")


@app.command()
@with_admin_target()
def remove(broker: AdminTarget, name: Name, tenant: Tenant = None) -> None:
    """Remove an unused role, also from all ACLs.

    penstock roles remove billing
    """
    admin_request.send(broker, "DELETE", _path(tenant, name))
    typer.echo(f"removed role {name}")


def _path(tenant: str | None, *parts: str) -> str:
    return admin_request.path("roles", *parts, tenant=tenant)
