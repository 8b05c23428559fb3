"""Names of topics, caches, groups, tenants and namespaces: all rules about names are here.

A protocol may have stricter rules of its own, but never more lenient ones. A valid name is safe in messages, in labels
and, segment by segment, in a path; nothing here builds a path.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidName

MAX_NAME_CHARACTERS: Final = 256
MAX_NAME_BYTES: Final = 1024
MAX_SCOPE_CHARACTERS: Final = 64
INTERNAL: Final = "__"
DEAD_LETTERS: Final = ".dlq"  # suffix of a dead-letter topic, after the name of its topic

_CONTROL: Final = frozenset({"Cc", "Cf", "Cs"})
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,255}")  # most names; avoids checking each character
_SCOPE_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class Scope(NamedTuple):
    """The tenant and namespace of a topic or a group. Use `scope` to make one from untrusted input."""

    tenant: str
    namespace: str


DEFAULT_SCOPE: Final = Scope("default", "default")


def scope(tenant: str, namespace: str) -> Scope:
    """The scope of these names. Raises InvalidName."""
    check_scope(Scope(tenant, namespace))
    return Scope(tenant, namespace)


def check_scope(scope: Scope) -> None:
    for kind, part in (("Tenant", scope.tenant), ("Namespace", scope.namespace)):
        if not _SCOPE_PART.fullmatch(part):
            raise InvalidName(
                f"{kind} name {_shown(part)} is not 1 to {MAX_SCOPE_CHARACTERS} ASCII letters, digits, "
                "'_', '-' and '.', the first not a dot"
            )


def check_topic(name: str) -> None:
    if not _PLAIN.fullmatch(name):
        _check_segments("Topic", name)


def check_cache(name: str) -> None:
    if not _PLAIN.fullmatch(name):
        _check_segments("Cache", name)


def is_internal(name: str) -> bool:
    """Whether this names an internal topic: administrators may read it, and no client may change it."""
    return name.startswith(INTERNAL)


def is_dead_letters(name: str) -> bool:
    """Whether this names a topic that holds the dead letters of another."""
    return name.endswith(DEAD_LETTERS)


def check_group(name: str) -> None:
    if not _PLAIN.fullmatch(name):
        _check_text("Group", name)


def _check_segments(kind: str, name: str) -> None:
    _check_text(kind, name)
    if "\\" in name:
        raise InvalidName(f"{kind} name {_shown(name)} has a backslash")
    for segment in name.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidName(f"{kind} name {_shown(name)} has an empty, '.' or '..' segment between slashes")


def _check_text(kind: str, name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidName(f"{kind} name of {len(name)} characters; 1 to {MAX_NAME_CHARACTERS} are allowed")
    if any(unicodedata.category(character) in _CONTROL for character in name):
        raise InvalidName(f"{kind} name {_shown(name)} has a control character")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"{kind} name {_shown(name)} is longer than {MAX_NAME_BYTES} bytes")


def _shown(name: str) -> str:
    """The name for an error message: printable, and at most 40 characters of it."""
    return ascii(name if len(name) <= 40 else name[:40] + "…")
