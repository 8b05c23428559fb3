"""The broker and the identity for a command: one rule for all commands, as documented by `penstock --help`
(`main.WHICH_BROKER`).

1. A flag: `--server` or `--context`, over the network; `--data-dir` or `--config`, the broker of that directory.
2. The environment: PENSTOCK_SERVER or PENSTOCK_CONTEXT, else PENSTOCK_DATA_DIR or PENSTOCK_CONFIG.
3. The context in use (`penstock context use`).
4. The broker on this machine, at its usual port.

A data directory selects the broker that runs there: administration uses its socket, without a login unless one is
given; records use a door of that broker. `admin_target` also handles stopped brokers. `with_target` gives a command
these flags and a `Target` as its first argument.
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
from penstock.cli.directory_option import ConfigFile, DataDir
from penstock.cli.failure import fail
from penstock.cli.questions import ask_secret
from penstock.cli.signature import replace_first
from penstock.transport.endpoint import Endpoint, parse_endpoint

P = ParamSpec("P")

DEFAULT_SERVER: Final = "127.0.0.1:9092"

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help=f"The broker: any of its TCP ports. (PENSTOCK_SERVER; default {DEFAULT_SERVER})",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="A saved broker: see `penstock context`. (PENSTOCK_CONTEXT)"),
]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Log in as this user. (PENSTOCK_USER)")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="The user's password; prompts on a terminal. (PENSTOCK_PASSWORD_FILE)"
    ),
]
KeyFile = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="Log in with this API key. (PENSTOCK_KEY_FILE)")
]
TokenFile = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="Log in with this token. (PENSTOCK_TOKEN_FILE)")
]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS with the system's CA certificates. (PENSTOCK_TLS=1)")]
TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca", metavar="FILE", help="Use TLS with the CA certificates in this PEM file. (PENSTOCK_TLS_CA)"
    ),
]


class TargetFlags(NamedTuple):
    """The flags of a command that connects to a broker."""

    server: Server = None
    context: ContextName = None
    user: User = None
    password_file: PasswordFile = None
    key_file: KeyFile = None
    token_file: TokenFile = None
    tls: Tls = False
    tls_ca: TlsCa = None
    data_dir: DataDir = None
    config: ConfigFile = None


class Target(NamedTuple):
    """A running broker, and the login for it."""

    endpoint: Endpoint
    tenant: str | None = None
    user: str | None = None
    password: str | None = None
    key: str | None = None
    token: str | None = None
    tls: ssl.SSLContext | None = None
    directory: str | None = None
    """The data directory whose socket accepts administration requests without a login; None: over the network."""

    @property
    def anonymous(self) -> bool:
        return not (self.user or self.key or self.token)

    def with_password(self) -> Target:
        """The same, with a password from a prompt if there is none."""
        if self.user is None or self.password is not None or self.key or self.token:
            return self
        return self._replace(password=ask_secret(f"Password of {self.user}", "name a file with --password-file"))


def with_target(command: Callable[Concatenate[Target, P], None]) -> Callable[..., None]:
    """A command that connects to a broker: it gets the target as its first argument, and the options of `TargetFlags`
    after its own."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        flags: dict[str, Any] = {name: options.pop(name) for name in TargetFlags._fields}
        command(resolve(TargetFlags(**flags)), *args, **options)

    replace_first(run, command, TargetFlags)
    return run


def by_directory(flags: TargetFlags) -> bool:
    """Whether a data directory selects the broker. Ends the command if an address is given too."""
    network, directory = flags.server or flags.context, flags.data_dir or flags.config
    if network and directory:
        fail("over the network (--server, --context) or by its data directory (--data-dir, --config): choose one", 2)
    if network or directory:
        return bool(directory)
    named = [name for name in (*_NETWORK, *_DIRECTORY) if os.environ.get(name)]
    return bool(named) and named[0] in _DIRECTORY


def has_login(flags: TargetFlags) -> bool:
    return any(getattr(flags, name) for name in _LOGIN)


def resolve(flags: TargetFlags, *, ask: bool = True) -> Target:
    """The target selected by flags, environment and contexts; prompts for a password if `ask`. Ends the command if they
    contradict each other."""
    directory = _directory(flags) if by_directory(flags) else None
    if directory is None:
        chosen = _chosen(flags)
        endpoint = _endpoint(chosen.server or DEFAULT_SERVER)
    else:
        chosen = Context(**_given(flags))
        endpoint = _door(directory)
    secrets = [name for name in ("password_file", "key_file", "token_file") if getattr(chosen, name)]
    if len(secrets) > 1:
        fail(f"one way to log in is enough: {' and '.join('--' + name.replace('_', '-') for name in secrets)}", 2)
    if chosen.password_file and not chosen.user:
        fail("--password-file needs --user", 2)
    target = Target(
        endpoint,
        tenant=chosen.tenant,
        user=chosen.user,
        password=read_secret("--password-file", chosen.password_file),
        key=read_secret("--key-file", chosen.key_file),
        token=read_secret("--token-file", chosen.token_file),
        tls=_tls(chosen),
        directory=None if has_login(flags) else directory,
    )
    return target.with_password() if ask and target.directory is None else target


def _endpoint(text: str) -> Endpoint:
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        fail(f"--server {text}: {error}", 2)
    if endpoint is None:
        fail(f"--server {text}: expected HOST:PORT", 2)
    return endpoint


def _directory(flags: TargetFlags) -> str:
    """The data directory; the configuration is read only if it may define another one."""
    path = flags.data_dir or (None if flags.config else os.environ.get("PENSTOCK_DATA_DIR"))
    if path is None:
        from penstock.cli.flags import of_directory  # here, because it imports the broker's settings

        return of_directory(flags.config, None, must_exist=False).data_dir
    return os.path.abspath(os.path.expanduser(path))


def _door(directory: str) -> Endpoint:
    """A port of the broker that runs there, at which all doors are available. Ends the command if none runs."""
    from penstock.cli.admin_socket import at_directory
    from penstock.clients.http import ApiError
    from penstock.connection.admin import Admin

    try:
        with at_directory(directory) as client:
            doors = [door for door in Admin(client).doors() if door.transport == "tcp"]
    except ApiError:
        fail(
            f"no broker runs in {directory}: start it with `penstock serve --data-dir {directory}`, or name another "
            "with --server"
        )
    if not doors:
        fail(f"the broker in {directory} has no TCP door open")
    best = min(doors, key=lambda door: (door.pinned, door.tls == "required", door.name != "flymq"))
    endpoint = _endpoint(best.address)
    return Endpoint(_LOOPBACK.get(endpoint.host, endpoint.host), endpoint.port)


_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def _chosen(flags: TargetFlags) -> Context:
    """Each field separately: from the flag, the environment, or the context. An explicit server or login is not
    combined with the current context's: another broker must not get its secrets."""
    given = _given(flags)
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


def _given(flags: TargetFlags) -> dict[str, Any]:
    environment = {name: os.environ.get(f"PENSTOCK_{name.upper()}") or None for name in _FROM_ENVIRONMENT}
    given: dict[str, Any] = {name: getattr(flags, name) or environment[name] for name in _FROM_ENVIRONMENT}
    given["tls"] = flags.tls or os.environ.get("PENSTOCK_TLS", "") not in ("", "0")
    return given


_NETWORK: Final = ("PENSTOCK_SERVER", "PENSTOCK_CONTEXT")
_DIRECTORY: Final = ("PENSTOCK_DATA_DIR", "PENSTOCK_CONFIG")
_LOGIN: Final = ("user", "password_file", "key_file", "token_file")
_FROM_ENVIRONMENT: Final = ("server", *_LOGIN, "tls_ca")


def read_secret(flag: str, path: str | None) -> str | None:
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


def _tls(chosen: Context) -> ssl.SSLContext | None:
    if chosen.tls_ca is None:
        return ssl.create_default_context() if chosen.tls else None
    try:
        return ssl.create_default_context(cafile=os.path.expanduser(chosen.tls_ca))
    except (OSError, ssl.SSLError) as error:
        fail(f"--tls-ca {chosen.tls_ca}: {error.strerror or error}")
