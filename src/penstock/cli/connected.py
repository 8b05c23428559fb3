"""Connections of commands to a broker: failures end the command with one line and an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.admin_client import ATTEMPTS, admin_client
from penstock.cli.explanation import explained
from penstock.cli.failure import fail
from penstock.cli.target import Target

if TYPE_CHECKING:  # takes a while to load: not for --help
    from penstock.connection import Admin, Connection

Tenant = Annotated[str | None, typer.Option("--tenant", help="Tenant; defaults to the context's, or your own.")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Namespace in the tenant.")]


@contextlib.contextmanager
def connected(
    target: Target, tenant: str | None = None, namespace: str | None = None, *, patient: bool = False
) -> Iterator[Connection]:
    """A connection to the target, established with the first request. `patient`: for commands that continue after a
    restart of the broker."""
    from penstock.connection import Connection, PenstockError
    from penstock.connection.options import connection_options
    from penstock.retry import RetryPolicy

    target = target.with_password()
    try:
        options = connection_options(
            str(target.endpoint),
            target.user,
            target.password,
            target.key,
            target.token,
            target.tls,
            30.0,
            None if patient else RetryPolicy(attempts=ATTEMPTS),
            tenant or target.tenant,
            namespace,
        )
    except ValueError as error:
        fail(error, 2)
    try:
        with Connection(options) as connection:
            try:
                yield connection
            except PenstockError as error:
                fail(explained(error, target, connection.admin))
    except PenstockError as error:  # on closing: pending records are not stored
        fail(explained(error, target))


@contextlib.contextmanager
def administering(target: Target, tenant: str | None = None, namespace: str | None = None) -> Iterator[Admin]:
    """The administration API of the target, in a tenant and a namespace."""
    from penstock.clients._core.errors import PenstockError
    from penstock.connection.admin import Admin

    try:
        with admin_client(target, tenant, namespace) as client:
            admin = Admin(client)
            try:
                yield admin
            except PenstockError as error:
                fail(explained(error, target, admin))
    except PenstockError as error:
        fail(explained(error, target))
