"""The broker that a command talks to, and who it is there: flags, then environment, then context, then this machine.

`with_target` gives a command these flags and a `Target` as its first argument.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, Final, NamedTuple, ParamSpec

import msgspec
import typer

from penstock.cli import contexts
from penstock.cli.contexts import Context
from penstock.cli.failure import fail
from penstock.cli.signature import replace_first
from penstock.transport.endpoint import Endpoint, parse_endpoint

P = ParamSpec("P")

DEFAULT_SERVER: Final = "127.0.0.1:9092"

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help=f"The broker: any of its TCP ports. (PENSTOCK_SERVER, or the context; else {DEFAULT_SERVER})",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="A broker by its name: see `penstock context`. (PENSTOCK_CONTEXT)"),
]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Log in as this user. (PENSTOCK_USER)")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="The user's password; asked for at a terminal. (PENSTOCK_PASSWORD_FILE)"
    ),
]
KeyFile = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="Log in with this API key. (PENSTOCK_KEY_FILE)")
]
TokenFile = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="Log in with this token. (PENSTOCK_TOKEN_FILE)")
]
Tls = Annotated[bool, typer.Option("--tls", help="Talk TLS, and trust this system's certificates. (PENSTOCK_TLS=1)")]
TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca", metavar="FILE", help="Talk TLS, and trust the certificates in this PEM file. (PENSTOCK_TLS_CA)"
    ),
]


class TargetFlags(NamedTuple):
    """The flags of a command that talks to a broker."""

    server: Server = None
    context: ContextName = None
    user: User = None
    password_file: PasswordFile = None
    key_file: KeyFile = None
    token_file: TokenFile = None
    tls: Tls = False
    tls_ca: TlsCa = None


class Target(NamedTuple):
    """A broker and an identity there."""

    endpoint: Endpoint
    tenant: str | None = None
    user: str | None = None
    password: str | None = None
    key: str | None = None
    token: str | None = None
    tls: ssl.SSLContext | None = None


def with_target(command: Callable[Concatenate[Target, P], None]) -> Callable[..., None]:
    """A command that talks to a broker: it gets the target as its first argument, and has the options of `TargetFlags`
    behind its own."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        flags: dict[str, Any] = {name: options.pop(name) for name in TargetFlags._fields}
        command(resolve(TargetFlags(**flags)), *args, **options)

    replace_first(run, command, TargetFlags)
    return run


def resolve(flags: TargetFlags) -> Target:
    """The target that flags, environment and contexts name together. Ends the command if that makes no sense."""
    chosen = _chosen(flags)
    text = chosen.server or DEFAULT_SERVER
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        fail(f"--server {text}: {error}", 2)
    if endpoint is None:
        fail(f"--server {text}: expected HOST:PORT", 2)
    secrets = [name for name in ("password_file", "key_file", "token_file") if getattr(chosen, name)]
    if len(secrets) > 1:
        fail(f"one way to log in is enough: {' and '.join('--' + name.replace('_', '-') for name in secrets)}", 2)
    if chosen.password_file and not chosen.user:
        fail("--password-file needs --user", 2)
    return Target(
        endpoint,
        tenant=chosen.tenant,
        user=chosen.user,
        password=_password(chosen),
        key=_secret("--key-file", chosen.key_file),
        token=_secret("--token-file", chosen.token_file),
        tls=_tls(chosen),
    )


def _chosen(flags: TargetFlags) -> Context:
    """Each field by itself: the flag, or the environment's, or the context's. A server or a login that is named
    is not mixed with those of the context in use: another broker must not be shown this one's secrets."""
    environment = {name: os.environ.get(f"PENSTOCK_{name.upper()}") or None for name in _FROM_ENVIRONMENT}
    given: dict[str, Any] = {name: getattr(flags, name) or environment[name] for name in _FROM_ENVIRONMENT}
    given["tls"] = flags.tls or os.environ.get("PENSTOCK_TLS", "") not in ("", "0")
    named = flags.context or os.environ.get("PENSTOCK_CONTEXT")
    if named is None and given["server"] is not None:
        return Context(**given)
    known = contexts.load()
    name = named or known.current
    if name is None:
        return Context(**given)
    context = contexts.find(name, known)
    if any(given[field] for field in _LOGIN):
        context = msgspec.structs.replace(context, **dict.fromkeys(_LOGIN))
    return msgspec.structs.replace(context, **{field: value for field, value in given.items() if value})


_LOGIN: Final = ("user", "password_file", "key_file", "token_file")
_FROM_ENVIRONMENT: Final = ("server", *_LOGIN, "tls_ca")


def _secret(flag: str, path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            secret = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{flag} {path}: {getattr(error, 'strerror', None) or error}")
    if not secret:
        fail(f"{flag} {path}: its first line is empty")
    return secret


def _password(chosen: Context) -> str | None:
    if chosen.user is None or chosen.password_file is not None:
        return _secret("--password-file", chosen.password_file)
    if chosen.key_file or chosen.token_file:
        return None
    return str(typer.prompt(f"Password of {chosen.user}", hide_input=True, err=True))


def _tls(chosen: Context) -> ssl.SSLContext | None:
    if chosen.tls_ca is None:
        return ssl.create_default_context() if chosen.tls else None
    try:
        return ssl.create_default_context(cafile=os.path.expanduser(chosen.tls_ca))
    except (OSError, ssl.SSLError) as error:
        fail(f"--tls-ca {chosen.tls_ca}: {error.strerror or error}")
