"""`penstock schema`: registers, shows, checks with and deletes schemas of a broker, running or not."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.cli import admin_request, flags
from penstock.cli.failure import fail
from penstock.cli.tables import print_table, utc
from penstock.config.settings import Settings

app = typer.Typer(help="Register, show, check with and delete schemas.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("name", "version", "kind", "compatibility", "bytes", "created")
MAX_FILE: Final = 1 << 20

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schema's name.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")]
Version = Annotated[int | None, typer.Option("--version", min=1, help="A version instead of the latest.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that the schema belongs to.")]
Namespace = Annotated[str, typer.Option("--namespace", help="The namespace in it.")]


@app.command()
@flags.with_settings(must_exist=False)
def register(
    settings: Settings,
    name: Name,
    file: File,
    kind: Annotated[SchemaKind, typer.Option("--kind", help="The language of the definition.")],
    tenant: Tenant = "default",
    namespace: Namespace = "default",
) -> None:
    """Register a definition as the next version, if it fits the latest one."""
    from penstock.admin.schemas import NewVersion, SchemaView

    body = NewVersion(kind, _read(file))
    schema = admin_request.call(settings, "POST", _path(tenant, namespace, name), SchemaView, body)
    typer.echo(f"{schema.name} version {schema.version}")


@app.command("list")
@flags.with_settings()
def list_schemas(settings: Settings, tenant: Tenant = "default", namespace: Namespace = "default") -> None:
    """List all versions of all schemas. Times are UTC."""
    from penstock.admin.schemas import SchemaView

    schemas = admin_request.call(settings, "GET", _path(tenant, namespace), list[SchemaView])
    rows = [(each.name, each.version, each.kind, each.mode, each.size, utc(each.created)) for each in schemas]
    print_table(COLUMNS, rows, numbers=("version", "bytes"))


@app.command()
@flags.with_settings()
def show(
    settings: Settings,
    name: Name,
    version: Version = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
) -> None:
    """Print a definition as it was registered. What it is goes to standard error."""
    from penstock.admin.schemas import SchemaText

    text = admin_request.call(settings, "GET", _path(tenant, namespace, name, _number(version)), SchemaText)
    schema = text.schema
    typer.echo(f"{schema.name} version {schema.version}: {schema.kind}, compatibility {schema.mode}", err=True)
    typer.echo(text.definition, nl=not text.definition.endswith(b"\n"))


@app.command()
@flags.with_settings()
def validate(
    settings: Settings,
    name: Name,
    file: File,
    version: Version = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
) -> None:
    """Check the bytes of a file against a schema. Exits with 1 and says why, if they do not fit."""
    from penstock.admin.schemas import MessageToCheck, Verdict

    path = _path(tenant, namespace, name, _number(version))
    verdict = admin_request.call(settings, "POST", path, Verdict, MessageToCheck(_read(file)))
    for reason in verdict.reasons:
        typer.echo(reason, err=True)
    if verdict.reasons:
        raise typer.Exit(1)
    typer.echo(f"fits {name} version {verdict.version}")


@app.command()
@flags.with_settings()
def mode(
    settings: Settings,
    name: Name,
    mode: Annotated[Compatibility, typer.Argument(metavar="MODE", help=f"{', '.join(Compatibility)}.")],
    tenant: Tenant = "default",
    namespace: Namespace = "default",
) -> None:
    """Say how a new version has to fit the latest one: backward (the default; it reads what that one wrote), forward
    (it can be read by that one), full (both) or none."""
    from penstock.admin.schemas import NewMode

    admin_request.send(settings, "PUT", _path(tenant, namespace, name), NewMode(mode))
    typer.echo(f"{name} is {mode}")


@app.command()
@flags.with_settings()
def delete(
    settings: Settings,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=1, help="One version instead of all.")] = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
) -> None:
    """Delete a version, or all. Its number is not used again."""
    parts = () if version is None else (str(version),)
    admin_request.send(settings, "DELETE", _path(tenant, namespace, name, *parts))
    typer.echo(f"deleted {name}" + ("" if version is None else f" version {version}"))


def _read(file: str) -> bytes:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_FILE + 1)
        else:
            with open(file, "rb") as opened:
                data = opened.read(MAX_FILE + 1)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    if len(data) > MAX_FILE:
        fail(f"{file}: more than {MAX_FILE} bytes")
    return data


def _number(version: int | None) -> str:
    return "latest" if version is None else str(version)


def _path(*parts: str) -> str:
    return admin_request.path("schemas", *parts)
