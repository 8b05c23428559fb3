"""Requests of commands to the administration API of a broker, running or not; see `administration` for the way there.

A module of its own because `administration` loads the whole broker: commands that only show their help do not."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from penstock.config.settings import Settings

T = TypeVar("T")


def send(settings: Settings, method: str, path: str, body: object = None) -> bytes:
    """The body of the reply. Ends the command if the request is refused."""
    from penstock.cli.administration import request

    return request(settings, method, path, b"" if body is None else msgspec.json.encode(body))


def call(settings: Settings, method: str, path: str, reply: type[T], body: object = None) -> T:
    """The reply, decoded."""
    return msgspec.json.decode(send(settings, method, path, body), type=reply)


def path(*parts: str) -> str:
    """A path of the API of names as they are."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)
