"""`penstock acl`: lists, shows, sets and removes topics' access lists, whether the broker runs or not."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

import msgspec
import typer

from penstock.broker.security.user import Acl
from penstock.cli import flags

app = typer.Typer(help="List, show, set and remove topics' access lists.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("topic", "kind", "users", "roles")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, exactly.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant of the topic.")]
Namespace = Annotated[str, typer.Option("--namespace", help="The namespace of the topic.")]


@app.command("list")
def list_acls(
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """List the access lists of a namespace."""
    from penstock.cli.administration import ask  # here, because it loads the whole broker

    settings = flags.of_directory(config, data_dir)
    acls = msgspec.json.decode(ask(settings, "GET", _path(tenant, namespace)), type=list[Acl])
    typer.echo("\t".join(COLUMNS))
    for acl in acls:
        typer.echo("\t".join((acl.topic, _kind(acl), ",".join(acl.users), ",".join(acl.roles))))


@app.command()
def show(
    topic: Topic,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Show the access list of one topic."""
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    acl = msgspec.json.decode(ask(settings, "GET", _path(tenant, namespace, topic)), type=Acl)
    typer.echo(f"topic\t{acl.topic}\nkind\t{_kind(acl)}")
    for user in acl.users:
        typer.echo(f"user\t{user}")
    for role in acl.roles:
        typer.echo(f"role\t{role}")


@app.command("set")
def set_acl(
    topic: Topic,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="A user, or key:ID for an API key. Repeatable."),
    ] = None,
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role. Repeatable.")] = None,
    restrict: Annotated[
        bool, typer.Option("--restrict", help="Nobody else, whatever their roles or grants; administrators always.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Everybody, also without a login; needs security.allow_anonymous.")
    ] = False,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Set who may read and write a topic, instead of what was set before. Acts at once."""
    from penstock.admin.users import AclTerms
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir, must_exist=False)
    terms = AclTerms(public, tuple(user or ()), tuple(role or ()), restrict)
    ask(settings, "PUT", _path(tenant, namespace, topic), msgspec.json.encode(terms))
    typer.echo(f"set the access list of {topic}")


@app.command()
def remove(
    topic: Topic,
    tenant: Tenant = "default",
    namespace: Namespace = "default",
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
) -> None:
    """Remove a topic's access list: roles and grants alone decide again."""
    from penstock.cli.administration import ask

    settings = flags.of_directory(config, data_dir)
    ask(settings, "DELETE", _path(tenant, namespace, topic))
    typer.echo(f"{topic} has no access list")


def _kind(acl: Acl) -> str:
    return "restricts" if acl.restrict else "public" if acl.public else "adds"


def _path(*parts: str) -> str:
    return "/acls/" + "/".join(quote(part, safe="") for part in parts)
