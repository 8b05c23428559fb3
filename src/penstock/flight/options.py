"""Connection options of a log, as users write them: a broker by `bootstrap.servers`, or a data directory by `path`.

Pure: nothing here connects. Option names are case-insensitive, because Spark passes them in lower case; options that do
not concern the connection are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidName
from penstock.broker.names import Scope, check_scope
from penstock.flight.errors import OptionsUnusable

DEFAULT_PORT: Final = 8815

_TLS: Final = ("tls.enabled", "tls.ca", "tls.cert", "tls.key", "tls.hostname")
_STORAGE: Final = "tables.option."
_OF_BROKER: Final = ("user", "password", "api.key")
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\],]+)(?::(?P<port>\d{1,5}))?")


class DirectoryOptions(NamedTuple):
    """A data directory that no broker uses."""

    path: str
    scope: Scope
    tables_url: str | None = None  # None: in the directory
    tables_options: tuple[tuple[str, str], ...] = ()  # for the object store, as in `deltalake`


class BrokerOptions(NamedTuple):
    """A broker's Flight port. PEM files are given by path, and not read here."""

    servers: tuple[tuple[str, int], ...]  # host and port: the first that answers is used
    scope: Scope
    user: str | None = None
    password: str | None = None
    api_key: str | None = None
    tls: bool = False
    tls_ca: str | None = None  # CA certificates; None: the system's
    tls_cert: str | None = None  # client certificate
    tls_key: str | None = None
    tls_hostname: str | None = None  # name in the server's certificate, if it differs from the address

    def __repr__(self) -> str:
        """Without secrets: this may be logged."""
        return f"BrokerOptions({self.servers}, {self.scope}, user={self.user!r})"


def parse(options: Mapping[str, str]) -> DirectoryOptions | BrokerOptions:
    """The parsed options. Raises OptionsUnusable."""
    given = {name.lower().removeprefix("penstock."): str(text) for name, text in options.items()}
    path, servers = given.get("path", "").strip(), given.get("bootstrap.servers", "").strip()
    if bool(path) == bool(servers):
        both = "not both" if path else "and neither is given"
        raise OptionsUnusable(
            f"Exactly one of the options `bootstrap.servers` (a broker) and `path` (a data directory that no broker "
            f"uses) is needed, {both}"
        )
    scope = Scope(given.get("tenant") or "default", given.get("namespace") or "default")
    try:
        check_scope(scope)
    except InvalidName as error:
        raise OptionsUnusable(f"Option `tenant` or `namespace`: {error}") from None
    _check_names(given)
    return _directory(given, path, scope) if path else _broker(given, servers, scope)


def _check_names(given: Mapping[str, str]) -> None:
    """Reject misspelt options that would otherwise silently change who is trusted, or where tables are."""
    for name in given:
        if name.startswith("tls.") and name not in _TLS:
            raise OptionsUnusable(f"There is no option `{name}`; about TLS there are {', '.join(_TLS)}")
        storage = name.startswith(_STORAGE) and len(name) > len(_STORAGE)
        if name.startswith("tables.") and name != "tables.url" and not storage:
            raise OptionsUnusable(
                f"There is no option `{name}`; about tables there are tables.url and {_STORAGE}<name>"
            )


def _directory(given: Mapping[str, str], path: str, scope: Scope) -> DirectoryOptions:
    for name in given:
        if name in _OF_BROKER or name in _TLS:
            raise OptionsUnusable(
                f"Option `{name}` is for a broker, with `bootstrap.servers`: with `path` the files themselves are read"
            )
    storage = sorted((name.removeprefix(_STORAGE), text) for name, text in given.items() if name.startswith(_STORAGE))
    url = given.get("tables.url", "").strip() or None
    if storage and url is None:
        raise OptionsUnusable(f"Options `{_STORAGE}…` need `tables.url`, the place that they are for")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        if not path.startswith("file://"):
            raise OptionsUnusable(f"Option `path`: {path} is no folder of this machine")
        path = path.removeprefix("file://")
    return DirectoryOptions(os.path.abspath(os.path.expanduser(path)), scope, url, tuple(storage))


def _broker(given: Mapping[str, str], servers: str, scope: Scope) -> BrokerOptions:
    for name in given:
        if name.startswith("tables."):
            raise OptionsUnusable(
                f"Option `{name}` is for `path`: with `bootstrap.servers` the broker says where its tables are"
            )
    user, password, key = (given.get(name) or None for name in _OF_BROKER)
    if key is not None and (user is not None or password is not None):
        raise OptionsUnusable("Either option `api.key`, or `user` and `password`, not both")
    if (user is None) != (password is None):
        raise OptionsUnusable("Options `user` and `password` are needed together")
    enabled = given.get("tls.enabled")
    if enabled is not None and enabled.lower() not in _BOOLEANS:
        raise OptionsUnusable(f"Option `tls.enabled`: true or false, not {enabled!r}")
    ca, cert, cert_key, hostname = (given.get(name) or None for name in _TLS[1:])
    others = any((ca, cert, cert_key, hostname))
    tls = others if enabled is None else _BOOLEANS[enabled.lower()]
    if others and not tls:
        raise OptionsUnusable("Option `tls.enabled` is false, but other options about TLS are given")
    if (cert is None) != (cert_key is None):
        raise OptionsUnusable("Options `tls.cert` and `tls.key` are needed together")
    addresses = tuple(_address(each) for each in servers.rstrip(",").split(","))
    return BrokerOptions(addresses, scope, user, password, key, tls, ca, cert, cert_key, hostname)


def _address(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise OptionsUnusable(f"Option `bootstrap.servers`: {text.strip()!r} is no HOST:PORT of a broker's Flight port")
    return match["host"].strip("[]"), port
