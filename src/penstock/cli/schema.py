"""`penstock schema`: registers, shows, checks with and deletes schemas of a broker, running or not."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
import typer

from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.cli import flags
from penstock.cli.failure import fail

app = typer.Typer(help="Register, show, check with and delete schemas.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("name", "version", "kind", "compatibility", "bytes", "created")
MAX_FILE: Final = 1 << 20

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schema's name.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")]
Version = Annotated[int | None, typer.Option("--version", min=1, help="A version instead of the latest.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that the schema belongs to.")]
Namespace = Annotated[str, typer.Option("--namespace", help="The namespace in it.")]


@app.command()
def register(
    name: Name,
    file: File,
    kind: Annotated[SchemaKind, typer.Option("--kind", help="The language of the definition.")],
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Register a definition as the next version, if it fits the latest one."""
    from penstock.admin.schemas import NewVersion, SchemaView
    from penstock.cli.administration import ask  # here, because it loads the whole broker

    settings = flags.of_directory(config, data_dir, must_exist=False)
    wish = NewVersion(kind, _read(file))
    body = ask(settings, "POST", _path(tenant, namespace, name), msgspec.json.encode(wish))
    schema = msgspec.json.decode(body, type=SchemaView)
    typer.echo(f"{schema.name} version {schema.version}")


@app.command("list")
def list_schemas(
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """List all versions of all schemas. Times are UTC."""
    from penstock.admin.schemas import SchemaView
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    schemas = msgspec.json.decode(ask(settings, "GET", _path(tenant, namespace)), type=list[SchemaView])
    typer.echo("\t".join(COLUMNS))
    for schema in schemas:
        created = datetime.fromtimestamp(schema.created // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        row = (schema.name, str(schema.version), schema.kind, schema.mode, str(schema.size), created)
        typer.echo("\t".join(row))


@app.command()
def show(
    name: Name,
    version: Version = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Print a definition as it was registered. What it is goes to standard error."""
    from penstock.admin.schemas import SchemaText
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    body = ask(settings, "GET", _path(tenant, namespace, name, _number(version)))
    text = msgspec.json.decode(body, type=SchemaText)
    schema = text.schema
    typer.echo(f"{schema.name} version {schema.version}: {schema.kind}, compatibility {schema.mode}", err=True)
    typer.echo(text.definition, nl=not text.definition.endswith(b"\n"))


@app.command()
def validate(
    name: Name,
    file: File,
    version: Version = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Check the bytes of a file against a schema. Exits with 1 and says why, if they do not fit."""
    from penstock.admin.schemas import MessageToCheck, Verdict
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    wish = msgspec.json.encode(MessageToCheck(_read(file)))
    body = ask(settings, "POST", _path(tenant, namespace, name, _number(version)), wish)
    verdict = msgspec.json.decode(body, type=Verdict)
    for reason in verdict.reasons:
        typer.echo(reason, err=True)
    if verdict.reasons:
        raise typer.Exit(1)
    typer.echo(f"fits {name} version {verdict.version}")


@app.command()
def mode(
    name: Name,
    mode: Annotated[Compatibility, typer.Argument(metavar="MODE", help=f"{', '.join(Compatibility)}.")],
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Say how a new version has to fit the latest one: backward (the default; it reads what that one wrote), forward
    (it can be read by that one), full (both) or none."""
    from penstock.admin.schemas import NewMode
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    ask(settings, "PUT", _path(tenant, namespace, name), msgspec.json.encode(NewMode(mode)))
    typer.echo(f"{name} is {mode}")


@app.command()
def delete(
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=1, help="One version instead of all.")] = None,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Delete a version, or all. Its number is not used again."""
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    parts = () if version is None else (str(version),)
    ask(settings, "DELETE", _path(tenant, namespace, name, *parts))
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
    return "/schemas/" + "/".join(quote(part, safe="") for part in parts)
