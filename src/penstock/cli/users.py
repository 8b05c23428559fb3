"""`penstock users`: adds, lists, changes and removes the users of a broker, running or not."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_views
from penstock.cli.questions import ask_secret
from penstock.cli.tables import utc

if TYPE_CHECKING:
    from penstock.admin.users import UserView

app = typer.Typer(
    help=f"Add, list, change and remove users. {WAYS}\n\n"
    "  penstock users add ada --role producer --generate\n\n"
    "  penstock users list --server broker.example:9092 --user admin --output json",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("name", "roles", "permissions", "state", "created", "updated")
GENERATED_BYTES: Final = 18

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant that the user belongs to.")]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="A role, such as admin, producer or consumer. Repeatable."),
]
Stdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
Generate = Annotated[bool, typer.Option("--generate", help="Generate a password and print it.")]


@app.command()
@with_admin_target(must_exist=False)
def add(
    broker: AdminTarget,
    name: Name,
    role: Roles = None,
    password_stdin: Stdin = False,
    generate: Generate = False,
    tenant: Tenant = None,
) -> None:
    """Add a user. Prompts for a password on a terminal; otherwise generates one and prints it once.

    penstock users add eve --role producer --generate

    penstock users add bob --role consumer --password-stdin < bob.password
    """
    from penstock.admin.users import NewUser, UserCreated

    password, made = _password(password_stdin, generate)
    body = NewUser(name, password, tuple(role or ()))
    created = admin_request.call(broker, "POST", _path(tenant), UserCreated, body)
    user = created.user
    if made:
        typer.echo(password)
    may = f"may {', '.join(user.permissions)} in tenant {user.tenant}" if user.permissions else "may nothing by itself"
    typer.echo(
        f"user {user.name} ({', '.join(user.roles) or 'no roles'}): {may}."
        + (" Keep the password: it is not shown again." if made else ""),
        err=True,
    )
    if not created.enforced:
        typer.echo("note: security is off, so the broker takes any password; turn it on with security.mode", err=True)


@app.command("list")
@with_admin_target()
def list_users(broker: AdminTarget, tenant: Tenant = None, output: OutputOption = Output.TABLE) -> None:
    """List the users of a tenant. Times are UTC.

    penstock users list --output json
    """
    from penstock.admin.users import UserView

    users = admin_request.all_of(broker, _path(tenant), UserView)
    show_views(output, COLUMNS, users, _row)


@app.command("set")
@with_admin_target()
def change(
    broker: AdminTarget,
    name: Name,
    role: Roles = None,
    no_roles: Annotated[bool, typer.Option("--no-roles", help="Remove all roles.")] = False,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the user may log in and do anything.")
    ] = None,
    tenant: Tenant = None,
) -> None:
    """Replace a user's roles, or disable or enable the user. Takes effect on open connections immediately.

    penstock users set bob --role consumer --role producer

    penstock users set bob --disable
    """
    from penstock.admin.users import UserChange

    if role and no_roles:
        fail("--role and --no-roles: choose one", 2)
    if not role and not no_roles and enable is None:
        fail("nothing to change: give --role, --no-roles, --enable or --disable", 2)
    roles = () if no_roles else tuple(role) if role else None
    admin_request.send(broker, "PATCH", _path(tenant, name), UserChange(roles, enable))
    typer.echo(f"changed user {name}")


@app.command()
@with_admin_target()
def password(
    broker: AdminTarget,
    name: Name,
    password_stdin: Stdin = False,
    generate: Generate = False,
    tenant: Tenant = None,
) -> None:
    """Change a user's password. Open connections stay open.

    penstock users password bob --generate
    """
    from penstock.admin.users import NewPassword

    new, made = _password(password_stdin, generate)
    admin_request.send(broker, "PUT", _path(tenant, name, "password"), NewPassword(new))
    if made:
        typer.echo(new)
    typer.echo(f"changed the password of user {name}." + (" Keep it: it is not shown again." if made else ""), err=True)


@app.command()
@with_admin_target()
def remove(broker: AdminTarget, name: Name, tenant: Tenant = None) -> None:
    """Remove a user, also from all ACLs. Takes effect on open connections immediately.

    penstock users remove bob
    """
    admin_request.send(broker, "DELETE", _path(tenant, name))
    typer.echo(f"removed user {name}")


def _path(tenant: str | None, *parts: str) -> str:
    return admin_request.path("users", *parts, tenant=tenant)


def _row(user: UserView) -> tuple[str, ...]:
    state = "enabled" if user.enabled else "disabled"
    return (user.name, ",".join(user.roles), ",".join(user.permissions), state, utc(user.created), utc(user.updated))


def _password(from_stdin: bool, generate: bool) -> tuple[str, bool]:
    """The password, and whether it was generated here."""
    if from_stdin and generate:
        fail("--password-stdin and --generate: choose one", 2)
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n"), False
    if generate or not sys.stdin.isatty():
        return secrets.token_urlsafe(GENERATED_BYTES), True
    typed = ask_secret("Password", "use --password-stdin or --generate")
    if ask_secret("The same again", "") != typed:
        fail("these were two different passwords; nothing was changed")
    return typed, False
