"""Contexts: named brokers with login information, in a file of the user.

It contains no secrets: a context refers to the files that have them.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from penstock.cli.failure import fail
from penstock.typed_decoding import decode_json

FILE: Final = "contexts.json"


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A broker, and the login for it."""

    server: str | None = None
    tenant: str | None = None
    user: str | None = None
    password_file: str | None = None
    key_file: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    tls: bool = False


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """All contexts, and the current one."""

    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> str:
    """The file of contexts, below XDG_CONFIG_HOME."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "penstock", FILE)


def load() -> Contexts:
    """The contexts of this user; empty if there is no file. Ends the command if it cannot be read."""
    path = contexts_path()
    try:
        with open(path, "rb") as file:
            return decode_json(file.read(), Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}. Mend it, or remove it and add contexts again")


def save(contexts: Contexts) -> None:
    """Replace the file atomically."""
    path = contexts_path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
        os.replace(path + ".new", path)
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def find(name: str, contexts: Contexts) -> Context:
    """The context with that name. Ends the command if there is none."""
    if name not in contexts.contexts:
        known = ", ".join(sorted(contexts.contexts)) or "none yet"
        fail(f"there is no context {name!r}; there are: {known}. Add one with `penstock context add`", 2)
    return contexts.contexts[name]
