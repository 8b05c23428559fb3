"""`penstock acl`: lists, shows, sets and removes topics' access lists, whether the broker runs or not."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.broker.security.user import Acl
from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.output import Output, OutputOption, show_json, show_views
from penstock.cli.tables import print_fields

app = typer.Typer(
    help=f"List, show, set and remove the ACLs of topics. {WAYS}\n\n"
    "  penstock acl set orders --allow-user ada --allow-role billing --restrict\n\n"
    "  penstock acl list --output json",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS: Final = ("topic", "kind", "users", "roles")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, exactly.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant of the topic.")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="The namespace of the topic.")]


@app.command("list")
@with_admin_target()
def list_acls(
    broker: AdminTarget,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the ACLs of a namespace.

    penstock acl list
    """
    acls = admin_request.all_of(broker, _path(tenant, namespace), Acl)
    show_views(output, COLUMNS, acls, lambda acl: (acl.topic, _kind(acl), ",".join(acl.users), ",".join(acl.roles)))


@app.command()
@with_admin_target()
def show(
    broker: AdminTarget,
    topic: Topic,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the ACL of a topic.

    penstock acl show orders
    """
    acl = admin_request.call(broker, "GET", _path(tenant, namespace, topic), Acl)
    if output is not Output.TABLE:
        show_json(output, acl)
        return
    members = [*(("user", user) for user in acl.users), *(("role", role) for role in acl.roles)]
    print_fields([("topic", acl.topic), ("kind", _kind(acl)), *members])


@app.command("set")
@with_admin_target(must_exist=False)
def set_acl(
    broker: AdminTarget,
    topic: Topic,
    allow_user: Annotated[
        list[str] | None,
        typer.Option("--allow-user", metavar="NAME", help="A user, or key:ID for an API key. Repeatable."),
    ] = None,
    allow_role: Annotated[
        list[str] | None, typer.Option("--allow-role", metavar="ROLE", help="A role. Repeatable.")
    ] = None,
    restrict: Annotated[
        bool,
        typer.Option("--restrict", help="Deny everyone else, whatever their roles or grants, except administrators."),
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Allow everyone, even without a login; needs security.allow_anonymous.")
    ] = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Replace a topic's ACL. Takes effect immediately.

    penstock acl set orders --allow-user ada --allow-role consumer

    penstock acl set orders --allow-user ada --restrict
    """
    from penstock.admin.acls import AclTerms

    terms = AclTerms(public, tuple(allow_user or ()), tuple(allow_role or ()), restrict)
    admin_request.send(broker, "PUT", _path(tenant, namespace, topic), terms)
    typer.echo(f"set the access list of {topic}")


@app.command()
@with_admin_target()
def remove(broker: AdminTarget, topic: Topic, tenant: Tenant = None, namespace: Namespace = None) -> None:
    """Remove a topic's ACL; roles and grants decide again.

    penstock acl remove orders
    """
    admin_request.send(broker, "DELETE", _path(tenant, namespace, topic))
    typer.echo(f"{topic} has no access list")


def _kind(acl: Acl) -> str:
    return "restricts" if acl.restrict else "public" if acl.public else "adds"


def _path(tenant: str | None, namespace: str | None, *parts: str) -> str:
    return admin_request.path("acls", *parts, tenant=tenant, namespace=namespace)
