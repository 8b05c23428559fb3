"""The permissions that a token can carry itself, as grants for the access check.

A permission is `ACTION:KIND:PATH`, such as `stream.publish:stream:acme/default/orders`. What stands behind the action
is a pattern for the whole text, in which `*` is any run of characters, also of slashes, and everything else is itself.
The access check compares tenant, namespace and name each with a pattern of its own, so that a pattern becomes as many
grants as there are ways to cut it into those: one, for almost all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from penstock.broker.security.access import OF_CACHES, Grant, Permission
from penstock.broker.security.user import PERMISSIONS

MAX_PERMISSIONS: Final = 1_000  # of one token
MAX_PERMISSION: Final = 1_024  # characters; a longer one means nothing
MAX_STARS: Final = 8  # of one; each may double the ways to cut it
MAX_GRANTS: Final = 1_000  # that those of one token become; what would be more means nothing

_MANAGED: Final = frozenset({Permission.CREATE, Permission.DELETE, Permission.ALTER, Permission.DESCRIBE})


class Action(NamedTuple):
    """The permissions of an action, and the kind of its resources."""

    kind: str
    permissions: frozenset[Permission]


ACTIONS: Final[Mapping[str, Action]] = {
    # As roles that append: the first who uses a stream makes it, if topics may come into being so.
    "stream.publish": Action("stream", PERMISSIONS["write"] - OF_CACHES),
    "stream.subscribe": Action("stream", frozenset({Permission.READ, Permission.DESCRIBE})),
    "cache.read": Action("cache", frozenset({Permission.CACHE_READ})),
    "cache.write": Action("cache", frozenset({Permission.CACHE_WRITE})),
    # Who manages does not thereby see what is in it.
    "stream.manage": Action("stream", _MANAGED),
    "ns.manage": Action("namespace", _MANAGED),
    "tenant.manage": Action("tenant", _MANAGED),
}
"""Others mean nothing here: a cache need not be made, and who may grant what is decided by the issuer."""

_ALSO: Final[Mapping[str, str]] = {"ns": "namespace"}  # kinds that are spelt in two ways


def grants(principal: str, tenant: str, permissions: Sequence[str]) -> tuple[Grant, ...]:
    """The grants of these in the tenant. One that is malformed, unknown or about another tenant allows nothing."""
    given: dict[tuple[str, str], set[Permission]] = defaultdict(set)
    for text in permissions[:MAX_PERMISSIONS]:
        name, _, resource = text.partition(":")
        action = ACTIONS.get(name)
        if action is None or len(text) > MAX_PERMISSION or resource.count("*") > MAX_STARS:
            continue
        for place in _places(action.kind, resource, tenant):
            if place in given or len(given) < MAX_GRANTS:
                given[place] |= action.permissions
    return tuple(
        Grant(principal, frozenset(permitted), tenant, _escaped(namespace), _escaped(name))
        for (namespace, name), permitted in given.items()
    )


def meaning(text: str, tenant: str) -> frozenset[Permission]:
    """The permissions of one of them somewhere in the tenant; for telling whoever makes a token."""
    return frozenset[Permission]().union(*(grant.permissions for grant in grants("", tenant, [text])))


def matches(text: str, pattern: str) -> bool:
    """True if the whole text fits; `*` is any run of characters."""
    return fnmatchcase(text, _escaped(pattern))


def _places(kind: str, resource: str, tenant: str) -> Iterator[tuple[str, str]]:
    """Patterns of namespace and name in which the resource's pattern is the same as where the tenant is this one."""
    for spelt, path in _cuts(resource, ":"):
        if not any(matches(known, spelt) for known in (kind, *(also for also in _ALSO if _ALSO[also] == kind))):
            continue
        if kind == "tenant":
            if matches(tenant, path):
                yield "*", "*"
            continue
        for owner, rest in _cuts(path, "/"):
            if matches(tenant, owner):
                yield from [(rest, "*")] if kind == "namespace" else _cuts(rest, "/")


def _cuts(pattern: str, separator: str) -> Iterator[tuple[str, str]]:
    """The patterns before and behind the first separator of a text: the text fits the pattern if and only if its two
    sides fit those of one of the cuts. What stands for that separator is the pattern's own first, or a star before."""
    for at, character in enumerate(pattern):
        if character == separator:
            yield pattern[:at], pattern[at + 1 :]
            return
        if character == "*":
            yield pattern[: at + 1], pattern[at:]


def _escaped(pattern: str) -> str:
    """As the access check reads patterns, where `?` and `[` are special too."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
