"""The permissions that a token can carry itself, as grants for the access check.

A permission is `ACTION:KIND:PATH`, such as `stream.publish:stream:acme/default/orders`. The part after the action is a
pattern for the whole text, in which `*` matches any run of characters, including slashes, and everything else is
literal. The access check matches tenant, namespace and name separately, so a pattern becomes one grant for each way to
split it into these: a single one, in almost all cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from penstock.broker.security.access import OF_CACHES, Grant, Permission
from penstock.broker.security.user import PERMISSIONS

MAX_PERMISSIONS: Final = 1_000  # of one token
MAX_PERMISSION: Final = 1_024  # characters; longer ones are ignored
MAX_STARS: Final = 8  # of one; each may double the ways to split it
MAX_GRANTS: Final = 1_000  # resulting from one token; further ones are ignored

_MANAGED: Final = frozenset({Permission.CREATE, Permission.DELETE, Permission.ALTER, Permission.DESCRIBE})


class Action(NamedTuple):
    """The permissions of an action, and its kind of resource."""

    kind: str
    permissions: frozenset[Permission]


ACTIONS: Final[Mapping[str, Action]] = {
    # Includes CREATE, like roles that append: streams may be created on first use.
    "stream.publish": Action("stream", PERMISSIONS["write"] - OF_CACHES),
    "stream.subscribe": Action("stream", frozenset({Permission.READ, Permission.DESCRIBE})),
    "cache.read": Action("cache", frozenset({Permission.CACHE_READ})),
    "cache.write": Action("cache", frozenset({Permission.CACHE_WRITE})),
    # Managing does not include reading.
    "stream.manage": Action("stream", _MANAGED),
    "ns.manage": Action("namespace", _MANAGED),
    "tenant.manage": Action("tenant", _MANAGED),
}
"""Other actions are ignored: caches need not be created, and the issuer decides who may grant what."""

_ALSO: Final[Mapping[str, str]] = {"ns": "namespace"}  # alternative spellings of kinds


def grants(principal: str, tenant: str, permissions: Sequence[str]) -> tuple[Grant, ...]:
    """The grants of these permissions in the tenant. Malformed and unknown ones, and those for other tenants, grant
    nothing.
    """
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
    """The effective permissions of one of them in the tenant, to inform whoever creates a token."""
    return frozenset[Permission]().union(*(grant.permissions for grant in grants("", tenant, [text])))


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text matches; `*` is any run of characters."""
    return fnmatchcase(text, _escaped(pattern))


def _places(kind: str, resource: str, tenant: str) -> Iterator[tuple[str, str]]:
    """Patterns of namespace and name that together are equivalent to the resource's pattern within this tenant."""
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
    """The ways to split a pattern at the first separator of the text: a text matches the pattern if and only if its two
    sides match those of one of the splits. The separator matches either the pattern's own first one, or a star before
    it.
    """
    for at, character in enumerate(pattern):
        if character == separator:
            yield pattern[:at], pattern[at + 1 :]
            return
        if character == "*":
            yield pattern[: at + 1], pattern[at:]


def _escaped(pattern: str) -> str:
    """The pattern in the syntax of the access check, where `?` and `[` are special too."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
