"""The `penstock` command: its subcommands, and how they fail: one line on stderr, exit code 1, no traceback."""

from __future__ import annotations

import typer

from penstock import __version__
from penstock.cli import (
    acl,
    audit,
    cert,
    config,
    conformance,
    keys,
    log,
    pipeline,
    records,
    roles,
    schema,
    serve,
    sql,
    table,
    tenant,
    token,
    topic,
    up,
    users,
)

app = typer.Typer(
    name="penstock",
    help="One durable log behind five broker wire protocols.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("serve")(serve.serve)
app.command("up")(up.up)
app.command("config")(config.show)
app.add_typer(log.app, name="log")
app.add_typer(topic.app, name="topic")
app.add_typer(table.app, name="table")
app.add_typer(schema.app, name="schema")
app.add_typer(tenant.app, name="tenant")
app.add_typer(keys.app, name="keys")
app.add_typer(users.app, name="users")
app.add_typer(roles.app, name="roles")
app.add_typer(acl.app, name="acl")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(cert.app, name="cert")
app.command("sql")(sql.sql)
app.command("conformance")(conformance.conformance)
app.command("produce")(records.produce)
app.command("fetch")(records.fetch)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"penstock {__version__}")


if __name__ == "__main__":
    app()
