"""Addresses of journals on Kafka: `kafka://HOST:PORT,HOST:PORT/NAME?option=value&…`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from penstock.log.errors import LogError

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")  # Kafka's topic names, with room for a suffix
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s,:/\[\]]+):[0-9]{1,5}")
OWN: Final = ("replication", "min_insync", "allow_unsafe", "delivery_seconds")
PASSED_ON: Final = (
    *("security.protocol", "sasl.mechanism", "sasl.username", "client.id", "client.rack", "compression.type"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.endpoint.identification.algorithm"),
)
"""Options of librdkafka that are allowed in an address."""
SECRETS: Final = {"sasl.password.file": "sasl.password", "ssl.key.password.file": "ssl.key.password"}
"""Options whose value is the name of a file with the secret; secrets themselves do not belong in an address."""


class InvalidAddress(LogError):
    """The text is not the address of a journal."""


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    servers: str
    name: str
    replication: int = 3
    min_insync: int = 2
    allow_unsafe: bool = False
    delivery_seconds: float = 10.0
    options: dict[str, str] = field(default_factory=dict)  # librdkafka's, as given

    @property
    def topic(self) -> str:
        return f"{self.name}.journal"

    def client_options(self) -> dict[str, str]:
        """librdkafka's options, with secrets read from their files. Raises InvalidAddress."""
        options = {"bootstrap.servers": self.servers}
        for name, value in self.options.items():
            if name not in SECRETS:
                options[name] = value
                continue
            try:
                with open(value, encoding="utf-8") as file:
                    options[SECRETS[name]] = file.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidAddress(f"{name}: {value} cannot be read: {error}") from None
        return options


def parse(text: str) -> KafkaAddress:
    """Raises InvalidAddress."""
    scheme, _, rest = text.partition("://")
    if scheme != "kafka":
        raise InvalidAddress(f"{text!r}: expected kafka://HOST:PORT,HOST:PORT/NAME")
    servers = re.split(r"[/?#]", rest, maxsplit=1)[0]
    parts = urlsplit(rest[len(servers) :])  # some versions of it accept no address in brackets behind another
    for server in servers.split(","):
        if not _SERVER.fullmatch(server):
            raise InvalidAddress(f"{text!r}: {server!r} is no HOST:PORT")
    name = parts.path.removeprefix("/")
    if not _NAME.fullmatch(name):
        raise InvalidAddress(f"{text!r}: expected a NAME of letters, digits, dots, dashes and underscores behind it")
    if parts.fragment:
        raise InvalidAddress(f"{text!r}: there is nothing that `#` could mean here")
    own: dict[str, str] = {}
    options: dict[str, str] = {}
    for option, value in parse_qsl(parts.query, keep_blank_values=True):
        if option in OWN:
            own[option] = value
        elif option in PASSED_ON or option in SECRETS:
            options[option] = value
        else:
            raise InvalidAddress(_unknown(option))
    try:
        return KafkaAddress(
            servers,
            name,
            _number(own, "replication", 3, 1, 32767),
            _number(own, "min_insync", 2, 1, 32767),
            _truth(own, "allow_unsafe"),
            _number(own, "delivery_seconds", 10, 1, 3600),
            options,
        )
    except ValueError as error:
        raise InvalidAddress(str(error)) from None


def _unknown(option: str) -> str:
    if f"{option}.file" in SECRETS:
        return f"{option} has no place in an address: write it to a file, and name that with {option}.file"
    near = difflib.get_close_matches(option, (*OWN, *PASSED_ON, *SECRETS), n=1)
    return f"there is no option {option!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _number(own: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = own.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise ValueError(f"{name}: expected a whole number from {least} to {most}, got {text!r}")
    return int(text)


def _truth(own: dict[str, str], name: str) -> bool:
    text = own.get(name, "false")
    if text not in ("true", "false"):
        raise ValueError(f"{name}: expected true or false, got {text!r}")
    return text == "true"
