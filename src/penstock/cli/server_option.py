"""`--server`: the broker that a command talks to, over RustLog; its failures become messages."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.cli.failure import fail
from penstock.clients.rustlog import Client, ConnectionFailed, OutcomeUnknown, RetryPolicy, RustLogError
from penstock.transport.endpoint import parse_endpoint

Server = Annotated[
    str,
    typer.Option("--server", envvar="PENSTOCK_SERVER", metavar="HOST:PORT", help="The broker's RustLog address."),
]
Tls = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="FILE", help="Talk TLS, and trust the certificates in this PEM file."),
]
DEFAULT_SERVER = "127.0.0.1:9092"
RETRY = RetryPolicy(attempts=2)  # somebody is waiting at a terminal


@contextlib.contextmanager
def connected(server: str, tls_ca: str | None = None) -> Iterator[Client]:
    """A client whose errors end the command with one line."""
    try:
        where = parse_endpoint(server)
    except ValueError as error:
        fail(f"--server: {error}", 2)
    if where is None:
        fail("--server: expected HOST:PORT", 2)
    try:
        tls = ssl.create_default_context(cafile=tls_ca) if tls_ca else None
    except OSError as error:
        fail(f"--tls-ca {tls_ca}: {error.strerror or error}")
    try:
        with Client(where.host, where.port, tls=tls, retry=RETRY) as client:
            yield client
    except ConnectionFailed as error:
        fail(f"no broker answers at {where}: {error}. Start one with `penstock serve`, or name another with --server")
    except OutcomeUnknown as error:
        fail(f"{error}. Look with `penstock fetch` before you send it again")
    except RustLogError as error:
        fail(error)
    except BrokenPipeError:
        # The reader of our output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
