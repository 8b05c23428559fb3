"""`penstock keys`: adds, lists, rotates and revokes API keys of a broker, running or not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.access import Permission
from penstock.cli import admin_request, quantity
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_views
from penstock.cli.questions import ask_secret
from penstock.cli.tables import utc

if TYPE_CHECKING:
    from penstock.admin.keys import KeyCreated, KeyView

app = typer.Typer(
    help=f"Add, list, rotate and revoke API keys. {WAYS}\n\n"
    "  penstock keys add shop --allow write --topic 'orders.*' --expires 30d\n\n"
    "  penstock keys list --output jsonl",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("id", "name", "tenant", "permissions", "topics", "created", "expires", "state", "roles")


@app.command()
@with_admin_target(must_exist=False)
def add(
    broker: AdminTarget,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name to remember it by.")],
    allow: Annotated[
        str,
        typer.Option("--allow", metavar="LIST", help=f"Permissions, comma-separated: {', '.join(Permission)}."),
    ] = "",
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="A role, such as admin, user, analyst or auditor. Repeatable."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The only tenant that it may act in.")] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="PATTERN", help="Topics or caches, such as 'a.*'. Repeatable; default: all."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Lifetime, such as 30d or 12h.")
    ] = None,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the key from standard input instead of generating one.")
    ] = False,
) -> None:
    """Create a key and print it. It is shown only once: the broker stores a hash.

    penstock keys add shop --allow read,write --topic 'orders.*' --expires 30d > shop.key
    """
    from penstock.admin.keys import KeyCreated, KeyRequest

    if not allow and not roles:
        fail("a key needs something that it may do: --allow, or --role, or both", 2)
    body = KeyRequest(
        name,
        _permissions(allow),
        tenant,
        tuple(topic or ("*",)),
        expires=None if expires is None else wall_clock() + int(quantity.seconds("--expires", expires) * 1_000_000),
        key=_chosen() if key_stdin else None,
        roles=tuple(roles or ()),
    )
    _show(admin_request.call(broker, "POST", _path(), KeyCreated, body))


@app.command("list")
@with_admin_target()
def list_keys(broker: AdminTarget, output: OutputOption = Output.TABLE) -> None:
    """List all keys with their permissions and whether they are valid. Times are UTC.

    penstock keys list --output jsonl
    """
    from penstock.admin.keys import KeyView

    keys = admin_request.all_of(broker, _path(), KeyView)
    show_views(output, COLUMNS, keys, _row, numbers=("id",))


@app.command()
@with_admin_target()
def rotate(
    broker: AdminTarget,
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number that `penstock keys list` shows.")],
) -> None:
    """Replace a key with a new one with the same permissions, and print it. The old key stops working immediately.

    penstock keys rotate 1
    """
    from penstock.admin.keys import KeyCreated

    _show(admin_request.call(broker, "POST", _path(str(number), "rotate"), KeyCreated))


@app.command()
@with_admin_target()
def revoke(
    broker: AdminTarget,
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number that `penstock keys list` shows.")],
) -> None:
    """Revoke a key. Takes effect on open connections immediately.

    penstock keys revoke 1
    """
    admin_request.send(broker, "DELETE", _path(str(number)))
    typer.echo(f"revoked key {number}")


def _row(key: KeyView) -> tuple[object, ...]:
    may = (",".join(key.permissions), ",".join(key.topics))
    expires = "never" if key.expires is None else utc(key.expires)
    return (key.id, key.name, key.tenant, *may, utc(key.created), expires, key.state, ",".join(key.roles))


def _show(created: KeyCreated) -> None:
    key = created.key
    if created.secret is not None:
        typer.echo(created.secret)
    until = "for ever" if key.expires is None else f"until {utc(key.expires)}"
    what = [", ".join(key.permissions)] if key.permissions else []
    what += [f"as {', '.join(key.roles)}"] if key.roles else []
    typer.echo(
        f"key {key.id} ({key.name}): {' and '.join(what)} on {', '.join(key.topics)} in tenant {key.tenant}, "
        f"{until}." + ("" if created.secret is None else " Keep it: it is not shown again."),
        err=True,
    )
    if not created.enforced:
        typer.echo("note: security is off, so the broker takes any key; turn it on with security.mode", err=True)


# -- input


def _permissions(text: str) -> list[Permission]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = set(Permission)
    for name in names:
        if name not in known:
            fail(f"--allow {text}: there is no permission {name!r}; there are {', '.join(Permission)}", 2)
    return [Permission(name) for name in names]


def _chosen() -> str:
    if sys.stdin.isatty():
        return ask_secret("Key", "write it to standard input")
    return sys.stdin.readline().rstrip("\r\n")


def _path(*parts: str) -> str:
    return admin_request.path("keys", *parts)
