"""URLs of brokers: `rustlog://host:port`, `flymq://user@host`, `kimberlite://host?tenant=7`, `felix://host?ca=FILE`.

A secret is never part of one: it would be in the list of processes and in the shell's history.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from penstock.clients._core.address import Address
from penstock.mirror.errors import MirrorError

PORTS: Final = {"penstock": 9092, "rustlog": 9092, "flymq": 9092, "blipmq": 5555, "kimberlite": 5432, "felix": 5000}
OPTIONS: Final = {
    "penstock": ("ca", "tls"),
    "rustlog": ("ca", "tls", "dialect"),
    "flymq": ("ca", "tls"),
    "blipmq": ("ca", "tls"),
    "kimberlite": ("ca", "tls", "tenant"),
    "felix": ("ca", "fingerprint", "insecure", "tenant", "namespace"),
}
"""What may stand behind the question mark."""


class Location(NamedTuple):
    """A broker, and how to get in."""

    scheme: str
    address: Address
    user: str | None
    options: dict[str, str]
    secret: str | None = None  # a password if there is a user, else an API key or a token

    @property
    def name(self) -> str:
        """The broker, as people and progress know it."""
        tenant = self.options.get("tenant")
        return f"{self.scheme}://{self.address}" + (f"?tenant={tenant}" if tenant else "")


def parse(text: str, secret: str | None = None) -> Location:
    """Raises MirrorError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise MirrorError(f"{text}: {error}") from error
    if parts.scheme not in PORTS:
        known = ", ".join(f"{scheme}://" for scheme in PORTS)
        what = f"{parts.scheme}:// is not supported" if parts.scheme else "expected a URL such as penstock://host:9092"
        raise MirrorError(f"{text}: {what}; there are {known}")
    if parts.password is not None:
        raise MirrorError("a password does not belong into a URL: put it into a file, and name that")
    if not parts.hostname:
        raise MirrorError(f"{text}: there is no host in it")
    if parts.path not in ("", "/"):
        raise MirrorError(f"{text}: topics are chosen with --topic, not by a path")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS[parts.scheme]:
            known = ", ".join(OPTIONS[parts.scheme])
            raise MirrorError(f"{text}: there is no option {name!r}; {parts.scheme}:// has {known}")
    if parts.username and secret is None:
        raise MirrorError(f"{text}: user {parts.username} needs a password, in a file")
    return Location(parts.scheme, Address(parts.hostname, port or PORTS[parts.scheme]), parts.username, options, secret)
