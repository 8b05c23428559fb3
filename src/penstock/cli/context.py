"""`penstock context`: brokers by name, so that commands need no address and no login flags."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import contexts
from penstock.cli.contexts import Context
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_rows

app = typer.Typer(
    help="Save brokers under names, and choose the one that commands use.\n\n"
    "  penstock context add prod --server broker.example:9092 --user ada --password-file ~/.penstock-ada --use",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]


@app.command()
def add(
    name: Name,
    server: Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="Any TCP port of the broker.")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant that commands act in.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user to log in as.")] = None,
    password_file: Annotated[str | None, typer.Option("--password-file", metavar="FILE", help="Its password.")] = None,
    key_file: Annotated[str | None, typer.Option("--key-file", metavar="FILE", help="An API key.")] = None,
    token_file: Annotated[str | None, typer.Option("--token-file", metavar="FILE", help="A token.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS.")] = False,
    tls_ca: Annotated[str | None, typer.Option("--tls-ca", metavar="FILE", help="Trust this PEM file.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Switch to it.")] = False,
) -> None:
    """Add a broker, or replace the one of that name.

    Secrets stay in their files; the context stores only the paths.

    penstock context add prod --server broker.example:9092 --user ada --password-file ada.password

    penstock context add here --server 127.0.0.1:9092 --use
    """
    known = contexts.load()
    known.contexts[name] = Context(
        server=server,
        tenant=tenant,
        user=user,
        password_file=password_file,
        key_file=key_file,
        token_file=token_file,
        tls=tls,
        tls_ca=tls_ca,
    )
    if use:
        known.current = name
    contexts.save(known)
    typer.echo(f"added {name}" + (", in use" if known.current == name else f"; use it: penstock context use {name}"))


@app.command()
def use(name: Name) -> None:
    """Switch to a saved broker.

    penstock context use prod
    """
    known = contexts.load()
    contexts.find(name, known)
    known.current = name
    contexts.save(known)
    typer.echo(f"using {name}")


@app.command("list")
def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List all contexts; the current one has a star.

    penstock context list
    """
    known = contexts.load()
    rows = [
        (_star(output, name == known.current), name, context.server or "", context.user or "", context.tenant or "")
        for name, context in sorted(known.contexts.items())
    ]
    show_rows(output, ("current", "name", "server", "user", "tenant"), rows)


def _star(output: Output, current: bool) -> bool | str:
    return current if output is not Output.TABLE else "*" if current else ""


@app.command()
def remove(name: Name) -> None:
    """Remove a saved broker.

    penstock context remove prod
    """
    known = contexts.load()
    contexts.find(name, known)
    del known.contexts[name]
    if known.current == name:
        known.current = None
    contexts.save(known)
    typer.echo(f"removed {name}")


@app.command()
def show() -> None:
    """Print the name of the current context.

    penstock context show
    """
    current = contexts.load().current
    if current is None:
        fail("no context is in use: commands talk to 127.0.0.1:9092, or to --server")
    typer.echo(current)
