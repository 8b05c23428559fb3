"""The way of commands to a broker: a connection whose failures end the command with one line and an exit code."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.failure import fail
from penstock.cli.target import Target

if TYPE_CHECKING:  # takes a while to load: not for --help
    from penstock.connection import Admin, Connection, PenstockError

Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant; else that of the context, or one's own.")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="The namespace in it.")]

ATTEMPTS: Final = 2  # somebody is waiting at a terminal
TOPIC_NOT_FOUND: Final = re.compile(r"[Tt]opic (?:not found: |')(?P<topic>.+?)(?:' not found)?$")
NOT_ALLOWED: Final = (401, 403)


@contextlib.contextmanager
def connected(target: Target, *, patient: bool = False) -> Iterator[Connection]:
    """A connection to the target, which is made with the first request. `patient` is for commands that go on when the
    broker is started again."""
    from penstock.connection import Connection, PenstockError
    from penstock.connection.options import connection_options
    from penstock.retry import RetryPolicy

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
        )
    except ValueError as error:
        fail(error, 2)
    connection = Connection(options)
    try:
        with connection:
            try:
                yield connection
            except PenstockError as error:
                fail(explained(error, target, connection))
    except PenstockError as error:  # of closing: what was to be stored is not
        fail(explained(error, target))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextlib.contextmanager
def administering(target: Target, tenant: str | None = None, namespace: str | None = None) -> Iterator[Admin]:
    """The same for administration, in a tenant and a namespace."""
    with connected(target) as connection:
        yield connection.administer(tenant or target.tenant, namespace)


def explained(error: PenstockError, target: Target, connection: Connection | None = None) -> str:
    """An error in one line, with what to do about it."""
    from penstock.clients import flymq, http
    from penstock.clients._core.errors import ConnectionFailed, OutcomeUnknown

    text = str(error)
    anonymous = not (target.user or target.key or target.token)
    if isinstance(error, ConnectionFailed):
        return (
            f"no broker answers at {target.endpoint}: {text}. "
            "Start one with `penstock serve`, or name another with --server"
        )
    if isinstance(error, OutcomeUnknown):
        return f"{text}. It may have been done, or not: look before you send it again"
    login = isinstance(error, flymq.AuthenticationRequired) or (
        isinstance(error, http.Unauthorized) and error.status == NOT_ALLOWED[0]
    )
    if login and anonymous:
        return f"{text}. Say who you are with --user, --key-file or --token-file"
    missing = TOPIC_NOT_FOUND.match(text)
    if missing and isinstance(error, flymq.NotFound | http.NotFound):
        return f"there is no topic {missing['topic']!r}{similar_topic(missing['topic'], connection)}"
    return text


def similar_topic(name: str, connection: Connection | None) -> str:
    """A hint: the topic that somebody may have meant, or the way to make one."""
    from penstock.connection import PenstockError

    known: list[str] = []
    if connection is not None:
        with contextlib.suppress(PenstockError):
            known = [topic.name for topic in connection.admin.topics.list()]
    near = difflib.get_close_matches(name, known, 1)
    return f": did you mean {near[0]!r}?" if near else f". Create it with `penstock topic create {name}`"
