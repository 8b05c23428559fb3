"""URLs of brokers: `rustlog://host:port`, `flymq://user@host/topic`, `kimberlite://host?tenant=7`,
`felix://host?ca=FILE`, `kafka://host:port,host:port/topic`.

A URL never contains a secret, which would appear in the process list and in the shell's history.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.clients._core.address import Address, parse_address
from penstock.mirror.errors import MirrorError

PORTS: Final = {
    "penstock": 9092, "rustlog": 9092, "flymq": 9092, "blipmq": 5555, "kimberlite": 5432, "felix": 5000, "kafka": 9092,
}  # fmt: skip
OPTIONS: Final = {
    "penstock": ("ca", "tls"),
    "rustlog": ("ca", "tls", "dialect"),
    "flymq": ("ca", "tls"),
    "blipmq": ("ca", "tls"),
    "kimberlite": ("ca", "tls", "tenant"),
    "felix": ("ca", "fingerprint", "insecure", "tenant", "namespace"),
    "kafka": ("ca", "tls", "mechanism"),
}
"""The query parameters that are allowed, by scheme."""


class Location(NamedTuple):
    """A broker, with credentials and options."""

    scheme: str
    address: Address
    user: str | None
    options: dict[str, str]
    secret: str | None = None  # a password if there is a user, else an API key or a token
    topic: str | None = None  # from the URL's path
    others: tuple[Address, ...] = ()  # further servers of the same cluster

    @property
    def name(self) -> str:
        """The broker's name, in messages and in progress."""
        tenant = self.options.get("tenant")
        return f"{self.scheme}://{self.address}" + (f"?tenant={tenant}" if tenant else "")


def parse(text: str, secret: str | None = None) -> Location:
    """Parse a URL. Raises MirrorError."""
    scheme = text.partition("://")[0]
    if scheme not in PORTS:
        known = ", ".join(f"{scheme}://" for scheme in PORTS)
        what = f"{scheme}:// is not supported" if "://" in text else "expected a URL such as penstock://host:9092"
        raise MirrorError(f"{text}: {what}; the schemes are {known}")
    try:
        others, text_of_one = _others(scheme, text)
        parts = urlsplit(text_of_one)
        port = parts.port
    except ValueError as error:
        raise MirrorError(f"{text}: {error}") from error
    if parts.password is not None:
        raise MirrorError("a URL must not contain a password: put it in a file and give the file's name")
    if not parts.hostname:
        raise MirrorError(f"{text}: the host is missing")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS[scheme]:
            raise MirrorError(f"{text}: unknown option {name!r}; {scheme}:// has {', '.join(OPTIONS[scheme])}")
    if parts.username and secret is None:
        raise MirrorError(f"{text}: user {parts.username} needs a password, in a file")
    topic = unquote(parts.path.strip("/")) or None
    address = Address(parts.hostname, port or PORTS[scheme])
    return Location(scheme, address, parts.username, options, secret, topic, others)


def _others(scheme: str, text: str) -> tuple[tuple[Address, ...], str]:
    """The servers after the first one, and the URL without them. Raises ValueError."""
    head, _, rest = text.partition("://")
    servers = rest.partition("?")[0].partition("/")[0]
    if scheme != "kafka" or "," not in servers:
        return (), text
    first, *others = servers.split(",")
    return tuple(parse_address(each, PORTS[scheme]) for each in others), f"{head}://{first}{rest[len(servers) :]}"
