"""API keys: their format, how they are stored, and how a presented one is recognized.

A key authenticates an identity bound to one tenant; its permissions reach the shared access check as grants. Each
protocol defines which message carries a key; `lockout` limits guessing.
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

MAX_KEYS: Final = 10_000  # not counting revoked ones
KEPT_REVOKED: Final = 1_000  # the most recently revoked ones, to be listed
MAX_OF_TENANT: Final = 1_000  # per tenant, if its own administrators add them
MAX_TOPICS: Final = 100  # patterns of one key
MAX_ROLES: Final = 100  # of one key
MAX_LABEL: Final = 255  # characters of a name or of a pattern
MAX_LIFE: Final = 100 * 366 * 86_400 * 1_000_000  # µs
MIN_CHOSEN: Final = 16  # characters
MAX_KEY: Final = 1024  # characters
PREFIX: Final = "psk_"
PRINCIPAL: Final = "key:"

# The scrypt cost of a user-chosen key, as a power of two. A check blocks the event loop, since a session waits for the
# answer; 2^10 takes some milliseconds and 1 MiB. It is done once per key and process (see `_chosen`), and wrong keys
# are rare, because those of a host that sends many are not checked. Every key stores its own cost: this one may be
# raised.
SCRYPT_COST: Final = 10
MAX_PROVED: Final = 20_000  # chosen keys, and pairs of chosen key and host, recognized without scrypt
_SALT_BYTES: Final = 16
_SECRET_BYTES: Final = 32

Verdict: TypeAlias = Identity | Literal["locked"] | None
"""The identity of a key; None if there is no such key; "locked" if it was not checked because of too many failures."""


class Key(msgspec.Struct, array_like=True, frozen=True):
    """A stored key; contains no secret. The order of fields is the stored format."""

    id: int  # never reused
    name: str
    hash: bytes
    salt: bytes  # empty: `hash` is SHA-256 of a generated key; else scrypt of a chosen one
    cost: int
    tenant: str
    permissions: tuple[Permission, ...]
    topics: tuple[str, ...]  # patterns
    namespace: str  # a pattern
    created: int  # µs since 1970
    expires: int | None = None
    revoked: int | None = None
    roles: tuple[str, ...] = ()  # in addition to `permissions`; see `role`

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
    secret: str  # presented by the client; stored nowhere


# -- applying events


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
    keys[event.id] = msgspec.structs.replace(key, revoked=event.at)  # at the end: in order of revocation
    revoked = [key.id for key in keys.values() if key.revoked is not None]
    for number in revoked[:-KEPT_REVOKED]:
        del keys[number]


# -- deciding


class KeyTerms(NamedTuple):
    """The terms of a new key."""

    name: str
    tenant: str
    permissions: Sequence[Permission]
    topics: Sequence[str] = ("*",)
    namespace: str = "*"
    expires: int | None = None  # µs since 1970
    roles: Sequence[str] = ()  # the caller checks that they exist in the tenant


def add(
    keys: Mapping[int, Key], number: int, terms: KeyTerms, chosen: str | None, now: int, random: Callable[[int], bytes],
    max_count: int = MAX_KEYS, share: float = 1.0,
) -> tuple[KeyAdded, str]:  # fmt: skip
    """The event, and the secret: generated, or the `chosen` one. A tenant has at most `max_count` keys, and at most its
    share of all.
    """
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
        # One salt for all: a chosen key does not contain its number, so it must be found with one hash.
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
    """The expiry in µs, as in `KeyTerms`."""
    return None if nanoseconds is None else nanoseconds // 1000


def revoke(keys: Mapping[int, Key], number: int, now: int) -> KeyRevoked | None:
    """The event that revokes the key; None if it is revoked already. Raises KeyNotFound."""
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


# -- authentication


class KeyRing:
    """Finds the identity of a presented key, and its grants. It always uses the broker's current state, so that a key
    is valid as soon as it is added, and invalid as soon as it is revoked, even for open connections.
    """

    def __init__(
        self,
        current: Callable[[], Mapping[int, Key]],
        clock: Clock,
        lockout: LockOut,
        roles: Callable[[str, str, tuple[str, ...]], tuple[Grant, ...]],
    ) -> None:
        """`roles` returns the grants of roles, for a principal in a tenant."""
        self.lockout = lockout
        self._roles = roles
        self._current = current
        self._clock = clock
        self._grants: dict[int, tuple[Key, tuple[Grant, ...]]] = {}
        # Chosen keys that were verified before, by a hash that is useless outside this process: scrypt is too slow to
        # repeat when a thousand clients reconnect.
        self._pepper = os.urandom(_SECRET_BYTES)
        self._chosen: dict[bytes, bytes] = {}  # → the stored hash

    def grants(self, principal: str) -> Sequence[Grant] | None:
        """Implements `Access.grants_of`: None for a name that is not a key's, empty for a key that is no longer
        valid.
        """
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
        """The verdict, and whether it causes a lock-out.

        A generated key cannot be guessed, so the right one is accepted whatever else came from its host. A chosen one
        might be guessed: from a host with very many failures, only keys that it has presented before are accepted.
        """
        host, lockout = host_of(peer), self.lockout
        name = _name(presented)
        generated = presented.startswith(PREFIX)
        if not generated and lockout.over_limit(host, now):
            key = self._proved_at(host, presented)
        elif not generated and lockout.locked(host, name, now):
            key = None
        else:
            key = self.find(presented)
        if key is not None and key.state(now) == "active":
            if key.salt:
                self._prove(_at(host, presented), key)
            return Identity(key.principal, key.tenant, roles=key.roles), False
        if lockout.over_limit(host, now) or lockout.locked(host, name, now):
            return "locked", False
        return None, lockout.failed(host, name, now)

    def find(self, presented: str) -> Key | None:
        """The key with this secret, even if it is no longer valid."""
        return self._find(presented) if len(presented) <= MAX_KEY else None

    def forget(self) -> None:
        """The keys have changed: drop cached data of keys that no longer exist."""
        keys = self._current()
        hashes = {key.hash for key in keys.values() if key.revoked is None}
        self._chosen = {mark: digest for mark, digest in self._chosen.items() if digest in hashes}
        self._grants = {number: cached for number, cached in self._grants.items() if keys.get(number) is cached[0]}

    def _find(self, presented: str) -> Key | None:
        keys = self._current()
        if presented.startswith(PREFIX):
            number = presented.removeprefix(PREFIX).partition("_")[0]
            key = keys.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else None
            # Also for an unknown number, so that the timing reveals nothing.
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
        """The key that was verified with this text before, if it is still valid."""
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
    """The name for which a failure is counted: the number in a generated key; a chosen key has none, so the key
    itself.
    """
    if presented.startswith(PREFIX):
        return PRINCIPAL + presented.removeprefix(PREFIX).partition("_")[0]
    return presented


def _at(host: str, presented: str) -> str:
    return f"{host}\0{presented}"


def _recipes(keys: Iterable[Key]) -> list[tuple[bytes, int]]:
    """The distinct salts and costs of chosen keys; only one, except after `SCRYPT_COST` has changed."""
    return list(dict.fromkeys((key.salt, key.cost) for key in keys if key.salt))


def _digest(text: str, salt: bytes, cost: int) -> bytes:
    """The stored hash. A generated key has 256 random bits, which cannot be guessed however fast the hash: SHA-256 is
    enough. A chosen one may be guessable, so each guess is made expensive.
    """
    if not salt:
        return hashlib.sha256(_encoded(text)).digest()
    return hashlib.scrypt(_encoded(text), salt=salt, n=1 << cost, r=8, p=1, dklen=32)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
