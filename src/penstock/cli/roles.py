"""`penstock roles`: lists, sets and removes the roles of a broker's users, whether it runs or not."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

import msgspec
import typer

from penstock.cli import flags

app = typer.Typer(help="List, set and remove roles.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("name", "permissions", "kind", "description")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The role's name.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that the role belongs to.")]


@app.command("list")
def list_roles(tenant: Tenant = "default", config: flags.ConfigFile = None, data_dir: flags.DataDir = None) -> None:
    """List the built-in roles, and those of a tenant."""
    from penstock.admin.users import RoleView
    from penstock.cli.administration import ask  # here, because it loads the whole broker

    settings = flags.of_directory(config, data_dir)
    roles = msgspec.json.decode(ask(settings, "GET", f"/roles/{quote(tenant, safe='')}"), type=list[RoleView])
    typer.echo("\t".join(COLUMNS))
    for role in roles:
        kind = "built-in" if role.built_in else "custom"
        typer.echo("\t".join((role.name, ",".join(role.permissions), kind, role.description)))


@app.command("set")
def set_role(
    name: Name,
    allow: Annotated[
        str,
        typer.Option("--allow", metavar="LIST", help="What it gives, separated by commas: read, write, phi, admin."),
    ],
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    tenant: Tenant = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Make a role, or give one other permissions. Acts at once on those who have it."""
    from penstock.admin.users import RoleTerms
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir, must_exist=False)
    permissions = tuple(part.strip() for part in allow.split(",") if part.strip())
    ask(settings, "PUT", _path(tenant, name), msgspec.json.encode(RoleTerms(permissions, description)))
    typer.echo(f"set role {name}: {', '.join(permissions) or 'nothing'}")


@app.command()
def remove(
    name: Name,
    tenant: Tenant = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Remove a role that no user has any more, also from all access lists."""
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    ask(settings, "DELETE", _path(tenant, name))
    typer.echo(f"removed role {name}")


def _path(tenant: str, name: str) -> str:
    return f"/roles/{quote(tenant, safe='')}/{quote(name, safe='')}"
