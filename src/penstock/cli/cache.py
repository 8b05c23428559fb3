"""`penstock cache`: values of the broker's caches."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli import quantity
from penstock.cli.connected import Namespace, Tenant, administering, connected
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="Get, put, increment and delete cached values.\n\n"
    "  penstock cache put ann 'logged in' --ttl 1h --cache sessions\n\n"
    "  penstock cache get ann --cache sessions",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]
Name = Annotated[str, typer.Option("--cache", metavar="NAME", help="The cache.")]
Life = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Time to live, such as 1h.")]


@app.command("list")
@with_target
def list_caches(
    target: Target, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List non-empty caches and whether they survive a restart.

    penstock cache list
    """
    with administering(target, tenant, namespace) as admin:
        rows = [(each.name, each.keys, each.journalled) for each in admin.caches.list()]
        show_rows(output, ("cache", "keys", "journalled"), rows, numbers=("keys",))


@app.command()
@with_target
def get(target: Target, key: Key, cache: Name = "default", tenant: Tenant = None, namespace: Namespace = None) -> None:
    """Print a value. Exits with 1 if the key does not exist.

    penstock cache get ann
    """
    with administering(target, tenant, namespace) as admin:
        sys.stdout.buffer.write(admin.caches.get(cache, key) + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()


@app.command()
@with_target
def put(
    target: Target,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value; - reads standard input.")],
    ttl: Life = None,
    cache: Name = "default",
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Store a value under a key.

    penstock cache put ann 'logged in' --ttl 1h
    """
    data = sys.stdin.buffer.read() if value == "-" else value.encode()
    life = None if ttl is None else quantity.seconds("--ttl", ttl)
    with administering(target, tenant, namespace) as admin:
        admin.caches.put(cache, key, data, life)
        typer.echo(f"put {key}", err=True)


@app.command()
@with_target
def incr(
    target: Target,
    key: Key,
    by: Annotated[int, typer.Option("--by", metavar="N", help="How much to add; may be negative.")] = 1,
    ttl: Life = None,
    cache: Name = "default",
) -> None:
    """Increment the number under a key (0 if it does not exist) and print it.

    Uses the Felix door, which must be open, unless you log in with a password.

    penstock cache incr visits --by 10
    """
    life = None if ttl is None else quantity.seconds("--ttl", ttl)
    with connected(target) as connection:
        typer.echo(connection.cache(cache).increment(key, by, life))


@app.command()
@with_target
def delete(
    target: Target, key: Key, cache: Name = "default", tenant: Tenant = None, namespace: Namespace = None
) -> None:
    """Delete a key. Exits with 1 if it does not exist.

    penstock cache delete ann
    """
    with administering(target, tenant, namespace) as admin:
        admin.caches.delete(cache, key)
        typer.echo(f"deleted {key}")
