"""`penstock schema`: registers, shows, validates with and deletes schemas of a broker, by address or by directory."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.connected import Namespace, Tenant
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.tables import utc

app = typer.Typer(
    help=f"Register, show, validate against and delete schemas. {WAYS}\n\n"
    "  penstock schema register order order.json --kind json\n\n"
    "  penstock schema list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("name", "version", "kind", "compatibility", "bytes", "created")
MAX_FILE: Final = 1 << 20

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schema's name.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")]
Version = Annotated[int | None, typer.Option("--version", min=1, help="Version; default: the latest.")]


@app.command()
@with_admin_target(must_exist=False)
def register(
    broker: AdminTarget,
    name: Name,
    file: File,
    kind: Annotated[SchemaKind, typer.Option("--kind", help="The language of the definition.")],
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Register a definition as the next version, if it is compatible with the latest.

    penstock schema register order order.json --kind json
    """
    from penstock.admin.schemas import NewVersion, SchemaView

    body = NewVersion(kind, _read(file))
    schema = admin_request.call(broker, "POST", _path(tenant, namespace, name), SchemaView, body)
    typer.echo(f"{schema.name} version {schema.version}")


@app.command("list")
@with_admin_target()
def list_schemas(
    broker: AdminTarget, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List all versions of all schemas. Times are UTC.

    penstock schema list --output json
    """
    from penstock.admin.schemas import SchemaView

    schemas = admin_request.all_of(broker, _path(tenant, namespace), SchemaView)
    rows = [(each.name, each.version, each.kind, each.mode, each.size, utc(each.created)) for each in schemas]
    show_rows(output, COLUMNS, rows, numbers=("version", "bytes"))


@app.command()
@with_admin_target()
def show(
    broker: AdminTarget,
    name: Name,
    version: Version = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Print a definition as it was registered. Its kind and version go to standard error.

    penstock schema show order --version 1
    """
    from penstock.admin.schemas import SchemaText

    text = admin_request.call(broker, "GET", _path(tenant, namespace, name, _number(version)), SchemaText)
    schema = text.schema
    typer.echo(f"{schema.name} version {schema.version}: {schema.kind}, compatibility {schema.mode}", err=True)
    typer.echo(text.definition, nl=not text.definition.endswith(b"\n"))


@app.command()
@with_admin_target()
def validate(
    broker: AdminTarget,
    name: Name,
    file: File,
    version: Version = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Validate a file against a schema. Exits with 1 and the reason if it does not match.

    penstock schema validate order document.json

    penstock consume orders --last 1 --format %v | penstock schema validate order -
    """
    from penstock.admin.schemas import MessageToCheck, Verdict

    path = _path(tenant, namespace, name, _number(version))
    verdict = admin_request.call(broker, "POST", path, Verdict, MessageToCheck(_read(file)))
    for reason in verdict.reasons:
        typer.echo(reason, err=True)
    if verdict.reasons:
        raise typer.Exit(1)
    typer.echo(f"fits {name} version {verdict.version}")


@app.command()
@with_admin_target()
def mode(
    broker: AdminTarget,
    name: Name,
    mode: Annotated[Compatibility, typer.Argument(metavar="MODE", help=f"{', '.join(Compatibility)}.")],
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Say how a new version has to fit the latest one: backward (the default; it reads what that one wrote), forward
    (it can be read by that one), full (both) or none.

    penstock schema mode order full
    """
    from penstock.admin.schemas import NewMode

    admin_request.send(broker, "PUT", _path(tenant, namespace, name), NewMode(mode))
    typer.echo(f"{name} is {mode}")


@app.command()
@with_admin_target()
def delete(
    broker: AdminTarget,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Version; default: all.")] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Delete a version, or all. Its number is not used again.

    penstock schema delete order --version 1
    """
    parts = () if version is None else (str(version),)
    admin_request.send(broker, "DELETE", _path(tenant, namespace, name, *parts))
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


def _path(tenant: str | None, namespace: str | None, *parts: str) -> str:
    return admin_request.path("schemas", *parts, tenant=tenant, namespace=namespace)
