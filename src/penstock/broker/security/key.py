"""API keys: what one is, how it is kept, and whose a presented one is.

A key proves an identity that is bound to one tenant; its permissions reach the shared access check as grants. Which
wire message carries a key is the business of each protocol; how often one may guess is that of `lockout`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.broker.errors import InvalidArgument, KeyNotFound, LimitReached
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import Grant, Identity, Permission
from penstock.broker.security.lockout import LockOut, host_of
from penstock.broker.state.events import KeyAdded, KeyRevoked
from penstock.broker.tenancy.fair_share import check_room

MAX_KEYS: Final = 10_000  # that are not revoked
KEPT_REVOKED: Final = 1_000  # the last ones, so that a list can show what became of them
MAX_OF_TENANT: Final = 1_000  # of those, that a tenant's own administrators may make
MAX_TOPICS: Final = 100  # patterns of one key
MAX_ROLES: Final = 100  # of one key
MAX_LABEL: Final = 255  # characters of a name or of a pattern
MAX_LIFE: Final = 100 * 366 * 86_400 * 1_000_000  # µs
MIN_CHOSEN: Final = 16  # characters
MAX_KEY: Final = 1024  # characters
PREFIX: Final = "psk_"
PRINCIPAL: Final = "key:"

# The cost of a key that somebody chose, as a power of two. A check blocks the event loop, since a session waits for
# the answer; 2^10 is some milliseconds and 1 MiB. It is done once for each such key and process (see `_chosen`), and
# wrong ones are few, because of a host that sends many they are not looked at. Every key keeps its own cost: this one
# may rise.
SCRYPT_COST: Final = 10
MAX_PROVED: Final = 20_000  # chosen keys, and chosen keys at a host, that are recognised without scrypt
_SALT_BYTES: Final = 16
_SECRET_BYTES: Final = 32

Verdict: TypeAlias = Identity | Literal["locked"] | None
"""Whose key it is; None if nobody's; "locked" if so many were that they are not looked at for a while."""


class Key(msgspec.Struct, array_like=True, frozen=True):
    """A key as it is kept: nothing in it opens anything. The order of fields is the stored format."""

    id: int  # never used again
    name: str
    hash: bytes
    salt: bytes  # empty: `hash` is SHA-256 of a key that was generated; else scrypt of one that somebody chose
    cost: int
    tenant: str
    permissions: tuple[Permission, ...]
    topics: tuple[str, ...]  # patterns
    namespace: str  # a pattern
    created: int  # µs since 1970
    expires: int | None = None
    revoked: int | None = None
    roles: tuple[str, ...] = ()  # what they allow comes on top of `permissions`; see `role`

    @property
    def principal(self) -> str:
        return f"{PRINCIPAL}{self.id}"

    def state(self, now: int) -> Literal["active", "expired", "revoked"]:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"

    def grants(self) -> tuple[Grant, ...]:
        """The grants of its permissions; those of its roles are not known here."""
        permissions = frozenset(self.permissions)
        if not permissions:
            return ()
        return tuple(Grant(self.principal, permissions, self.tenant, self.namespace, topic) for topic in self.topics)


class NewKey(NamedTuple):
    key: Key
    secret: str  # what the client presents; kept nowhere


# -- what happened


def apply_added(keys: dict[int, Key], event: KeyAdded) -> None:
    keys[event.id] = Key(
        event.id,
        event.name,
        event.hash,
        event.salt,
        event.cost,
        event.tenant,
        tuple(event.permissions),
        tuple(event.topics),
        event.namespace,
        event.created,
        event.expires,
        roles=tuple(event.roles),
    )


def apply_revoked(keys: dict[int, Key], event: KeyRevoked) -> None:
    key = keys.pop(event.id)
    keys[event.id] = msgspec.structs.replace(key, revoked=event.at)  # at the end: the revoked are in their order
    revoked = [key.id for key in keys.values() if key.revoked is not None]
    for number in revoked[:-KEPT_REVOKED]:
        del keys[number]


# -- what may happen


class KeyTerms(NamedTuple):
    """The permissions of a new key."""

    name: str
    tenant: str
    permissions: Sequence[Permission]
    topics: Sequence[str] = ("*",)
    namespace: str = "*"
    expires: int | None = None  # µs since 1970
    roles: Sequence[str] = ()  # names that mean something in the tenant, which is for the caller to see


def add(
    keys: Mapping[int, Key], number: int, terms: KeyTerms, chosen: str | None, now: int, random: Callable[[int], bytes],
    max_count: int = MAX_KEYS, share: float = 1.0,
) -> tuple[KeyAdded, str]:  # fmt: skip
    """The event, and the key itself: generated, or the one that was `chosen`. A tenant has `max_count` keys, and not
    more than its share of all."""
    _check(terms, now)
    live = [key for key in keys.values() if key.revoked is None]
    mine = sum(key.tenant == terms.tenant for key in live)
    check_room("keys", MAX_KEYS, len(live), terms.tenant, mine, share, remedy="; revoke those that have expired")
    if mine >= max_count:
        raise LimitReached(
            f"Tenant '{terms.tenant}' has {max_count} keys, which is its limit; revoke those that have expired"
        )
    if chosen is None:
        text = base64.urlsafe_b64encode(random(_SECRET_BYTES)).rstrip(b"=").decode()
        secret, salt, cost = f"{PREFIX}{number}_{text}", b"", 0
    else:
        _check_chosen(chosen)
        # One salt for all: a key that somebody chose does not say which one it is, and must be found by one hash.
        salt, cost = next(iter(_recipes(live)), (random(_SALT_BYTES), SCRYPT_COST))
        secret = chosen
    digest = _digest(secret, salt, cost)
    if salt and any(hmac.compare_digest(digest, key.hash) for key in live if key.salt == salt):
        raise InvalidArgument("There is a key like this already")
    event = KeyAdded(
        number,
        terms.name,
        digest,
        terms.tenant,
        list(dict.fromkeys(terms.permissions)),
        list(dict.fromkeys(terms.topics)),
        terms.namespace,
        now,
        terms.expires,
        salt,
        cost,
        list(dict.fromkeys(terms.roles)),
    )
    return event, secret


def terms_of(key: Key) -> KeyTerms:
    """The terms of a key that replaces this one."""
    return KeyTerms(key.name, key.tenant, key.permissions, key.topics, key.namespace, key.expires, key.roles)


def expiry(nanoseconds: int | None) -> int | None:
    """In µs, as the terms have it."""
    return None if nanoseconds is None else nanoseconds // 1000


def revoke(keys: Mapping[int, Key], number: int, now: int) -> KeyRevoked | None:
    """None if it is revoked already."""
    key = keys.get(number)
    if key is None:
        raise KeyNotFound(f"There is no key {number}")
    return None if key.revoked is not None else KeyRevoked(number, now)


def _check(terms: KeyTerms, now: int) -> None:
    check_scope(Scope(terms.tenant, DEFAULT_SCOPE.namespace))
    for what, texts in (("name", (terms.name,)), ("topic", terms.topics), ("namespace", (terms.namespace,))):
        for text in texts:
            if not 1 <= len(text) <= MAX_LABEL or not text.isprintable():
                raise InvalidArgument(f"A key's {what} has 1 to {MAX_LABEL} printable characters")
    if not terms.permissions and not terms.roles:
        raise InvalidArgument("A key needs at least one permission or role")
    if len(terms.roles) > MAX_ROLES:
        raise InvalidArgument(f"A key has at most {MAX_ROLES} roles")
    if terms.roles and (tuple(terms.topics) != ("*",) or terms.namespace != "*"):
        raise InvalidArgument("Roles hold everywhere in a tenant: for a key of some topics only, give permissions")
    if Permission.METRICS in terms.permissions:
        raise InvalidArgument("The metrics are those of all tenants, and a key is bound to one")
    if not 1 <= len(terms.topics) <= MAX_TOPICS:
        raise InvalidArgument(f"A key has 1 to {MAX_TOPICS} topic patterns")
    if terms.expires is not None and not now < terms.expires <= now + MAX_LIFE:
        raise InvalidArgument("A key expires in the future, within 100 years")


def _check_chosen(chosen: str) -> None:
    if not MIN_CHOSEN <= len(chosen) <= MAX_KEY:
        raise InvalidArgument(f"A key has {MIN_CHOSEN} to {MAX_KEY} characters")
    if not chosen.isprintable() or chosen != chosen.strip():
        raise InvalidArgument("A key has printable characters only, and no white space around them")
    if chosen.startswith(PREFIX):
        raise InvalidArgument(f"Keys that begin with {PREFIX} are made by the broker")


# -- whose key it is


class KeyRing:
    """Tells whose key is presented, and what a key's identity may do. It follows the broker's state, so that a key
    counts from the moment it is added, and no longer from the moment it is revoked, also for open connections."""

    def __init__(
        self,
        current: Callable[[], Mapping[int, Key]],
        clock: Clock,
        lockout: LockOut,
        roles: Callable[[str, str, tuple[str, ...]], tuple[Grant, ...]],
    ) -> None:
        """`roles` says what roles allow a principal in a tenant."""
        self.lockout = lockout
        self._roles = roles
        self._current = current
        self._clock = clock
        self._grants: dict[int, tuple[Key, tuple[Grant, ...]]] = {}
        # Chosen keys that were right once, by a hash that means nothing outside this process: scrypt is too slow to
        # repeat whenever a thousand clients come back.
        self._pepper = os.urandom(_SECRET_BYTES)
        self._chosen: dict[bytes, bytes] = {}  # → the stored hash

    def grants(self, principal: str) -> Sequence[Grant] | None:
        """For `Access.grants_of`: None for a name that is no key's, nothing for a key that no longer counts."""
        if not principal.startswith(PRINCIPAL):
            return None
        number = principal.removeprefix(PRINCIPAL)
        key = self._current().get(int(number)) if number.isdecimal() else None
        if key is None or key.state(self._clock()) != "active":
            return ()
        cached = self._grants.get(key.id)
        if cached is None or cached[0] is not key:
            cached = self._grants[key.id] = (key, key.grants())
        return cached[1] + self._roles(key.principal, key.tenant, key.roles) if key.roles else cached[1]

    def authenticate(self, presented: str, peer: str, now: int) -> tuple[Verdict, bool]:
        """The verdict, and whether it locks somebody out.

        A key that the broker made cannot be guessed, so the right one is taken whatever else came from its host. One
        that somebody chose may be: of a host that has failed very often, only those are taken that it has presented
        before."""
        host, lockout = host_of(peer), self.lockout
        name = _name(presented)
        generated = presented.startswith(PREFIX)
        if not generated and lockout.crowded(host, now):
            key = self._proved_at(host, presented)
        elif not generated and lockout.locked(host, name, now):
            key = None
        else:
            key = self.find(presented)
        if key is not None and key.state(now) == "active":
            if key.salt:
                self._prove(_at(host, presented), key)
            return Identity(key.principal, key.tenant, roles=key.roles), False
        if lockout.crowded(host, now) or lockout.locked(host, name, now):
            return "locked", False
        return None, lockout.failed(host, name, now)

    def find(self, presented: str) -> Key | None:
        """Whose secret it is, also of a key that no longer counts."""
        return self._find(presented) if len(presented) <= MAX_KEY else None

    def forget(self) -> None:
        """The keys have changed: drop what was remembered about those that are gone."""
        keys = self._current()
        hashes = {key.hash for key in keys.values() if key.revoked is None}
        self._chosen = {mark: digest for mark, digest in self._chosen.items() if digest in hashes}
        self._grants = {number: cached for number, cached in self._grants.items() if keys.get(number) is cached[0]}

    def _find(self, presented: str) -> Key | None:
        keys = self._current()
        if presented.startswith(PREFIX):
            number = presented.removeprefix(PREFIX).partition("_")[0]
            key = keys.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else None
            # Also for a number that does not exist, so that the time taken tells nothing.
            right = hmac.compare_digest(_digest(presented, b"", 0), b"\0" * 32 if key is None else key.hash)
            return key if right else None
        found = self._proved(presented)
        if found is None:
            live = [key for key in keys.values() if key.salt and key.revoked is None]
            for digest in [_digest(presented, *recipe) for recipe in _recipes(live)]:
                for key in live:
                    if hmac.compare_digest(digest, key.hash):
                        found = key
            if found is not None:
                self._prove(presented, found)
        return found

    def _proved_at(self, host: str, presented: str) -> Key | None:
        return self._proved(_at(host, presented)) if len(presented) <= MAX_KEY else None

    def _proved(self, text: str) -> Key | None:
        """The key that was right with this text once, if it still counts."""
        known = self._chosen.get(self._mark(text))
        live = (key for key in self._current().values() if key.salt and key.revoked is None)
        return None if known is None else next((key for key in live if key.hash == known), None)

    def _prove(self, text: str, key: Key) -> None:
        mark = self._mark(text)
        if mark not in self._chosen and len(self._chosen) >= MAX_PROVED:
            self._chosen.clear()
        self._chosen[mark] = key.hash

    def _mark(self, text: str) -> bytes:
        return hmac.digest(self._pepper, _encoded(text), "sha256")


def _name(presented: str) -> str:
    """The name that a guess is counted for: the key that it names; itself, since one that was chosen names none."""
    if presented.startswith(PREFIX):
        return PRINCIPAL + presented.removeprefix(PREFIX).partition("_")[0]
    return presented


def _at(host: str, presented: str) -> str:
    return f"{host}\0{presented}"


def _recipes(keys: Iterable[Key]) -> list[tuple[bytes, int]]:
    """The different salts and costs of keys that somebody chose; one, except after `SCRYPT_COST` has changed."""
    return list(dict.fromkeys((key.salt, key.cost) for key in keys if key.salt))


def _digest(text: str, salt: bytes, cost: int) -> bytes:
    """A generated key holds 256 random bits, which nobody can guess however quick the hash is: SHA-256 is enough. One
    that somebody chose may be guessable, so each guess is made expensive."""
    if not salt:
        return hashlib.sha256(_encoded(text)).digest()
    return hashlib.scrypt(_encoded(text), salt=salt, n=1 << cost, r=8, p=1, dklen=32)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
