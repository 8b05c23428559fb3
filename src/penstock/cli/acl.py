"""`penstock acl`: lists, shows, sets and removes topics' access lists, whether the broker runs or not."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.broker.security.user import Acl
from penstock.cli import admin_request, flags
from penstock.cli.tables import print_fields, print_table
from penstock.config.settings import Settings

app = typer.Typer(help="List, show, set and remove topics' access lists.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS: Final = ("topic", "kind", "users", "roles")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, exactly.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant of the topic.")]
Namespace = Annotated[str, typer.Option("--namespace", help="The namespace of the topic.")]


@app.command("list")
@flags.with_settings()
def list_acls(settings: Settings, tenant: Tenant = "default", namespace: Namespace = "default") -> None:
    """List the access lists of a namespace."""
    acls = admin_request.call(settings, "GET", _path(tenant, namespace), list[Acl])
    print_table(COLUMNS, [(acl.topic, _kind(acl), ",".join(acl.users), ",".join(acl.roles)) for acl in acls])


@app.command()
@flags.with_settings()
def show(settings: Settings, topic: Topic, tenant: Tenant = "default", namespace: Namespace = "default") -> None:
    """Show the access list of one topic."""
    acl = admin_request.call(settings, "GET", _path(tenant, namespace, topic), Acl)
    members = [*(("user", user) for user in acl.users), *(("role", role) for role in acl.roles)]
    print_fields([("topic", acl.topic), ("kind", _kind(acl)), *members])


@app.command("set")
@flags.with_settings(must_exist=False)
def set_acl(
    settings: Settings,
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
) -> None:
    """Set who may read and write a topic, instead of what was set before. Acts at once."""
    from penstock.admin.users import AclTerms

    terms = AclTerms(public, tuple(user or ()), tuple(role or ()), restrict)
    admin_request.send(settings, "PUT", _path(tenant, namespace, topic), terms)
    typer.echo(f"set the access list of {topic}")


@app.command()
@flags.with_settings()
def remove(settings: Settings, topic: Topic, tenant: Tenant = "default", namespace: Namespace = "default") -> None:
    """Remove a topic's access list: roles and grants alone decide again."""
    admin_request.send(settings, "DELETE", _path(tenant, namespace, topic))
    typer.echo(f"{topic} has no access list")


def _kind(acl: Acl) -> str:
    return "restricts" if acl.restrict else "public" if acl.public else "adds"


def _path(*parts: str) -> str:
    return admin_request.path("acls", *parts)
