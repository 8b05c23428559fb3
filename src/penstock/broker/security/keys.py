"""All API keys of a broker: adding, rotating and revoking them, and authentication with them.

The rules, and how a key is recognized, are in `key`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from penstock.broker.errors import InvalidArgument, KeyNotFound
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.security import key as rules
from penstock.broker.security import role, token
from penstock.broker.security.access import ANONYMOUS, EVERYWHERE, Access, Grant, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.security.auth_outcome import AuthOutcome
from penstock.broker.security.key import Key, KeyRing, KeyTerms, NewKey, Verdict
from penstock.broker.security.lockout import LockOut
from penstock.broker.security.role import RoleGrants
from penstock.broker.security.tokens import Tokens
from penstock.broker.state.state_log import StateLog
from penstock.log.engine import CommitGroup

_MAX_ID: Final = 18  # digits


class Keys:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        outcome: AuthOutcome,
        audit: Audit,
        clock: Clock,
        lockout: LockOut,
        tokens: Tokens,
        roles: RoleGrants,
        tenant_share: float = 1.0,
    ) -> None:
        """`tenant_share` is the share of all keys that a tenant's administrators may create; see `fair_share`."""
        self._tenant_share = tenant_share
        self._state_log = state_log
        self._access = access
        self._outcome = outcome
        self._audit = audit
        self._clock = clock
        self._tokens = tokens
        self._ring = KeyRing(lambda: state_log.state.keys, clock, lockout, roles.grants)

    def authenticate(self, key: str, peer: str, now: int | None = None, *, tenant: str | None = None) -> Verdict:
        """The identity of a key. `peer` is its address, with or without a port: failures are counted by host and by the
        key's number (`lockout`). `now` is the wall clock, in µs, if not the broker's. With `tenant`, keys of other
        tenants are rejected.

        Tokens are accepted in place of keys (`Tokens`).
        """
        if not self._access.enforced:
            return ANONYMOUS._replace(peer=peer)
        if self._tokens.configured and token.looks_like_one(key):
            return self._tokens.authenticate(key, peer, now, tenant=tenant)
        self._state_log.current()
        verdict, locks = self._ring.authenticate(key, peer, self._clock() if now is None else now)
        reason = "wrong key"
        if isinstance(verdict, Identity) and tenant not in (None, verdict.tenant):
            verdict, reason = None, "it is of another tenant"  # a valid key is not a guess
        return self._outcome.conclude(verdict, peer, "key", reason, locks=locks)

    def add(self, identity: Identity, terms: KeyTerms, chosen: str | None = None) -> tuple[NewKey, CommitGroup]:
        """A new key, generated unless chosen. It must not be shown before the group is committed.

        Administrators of a tenant may add keys for their tenant, but not choose them: they could find out which keys
        others have chosen.
        """
        with self._audit.attempt(identity, "key.add", scope=Scope(terms.tenant, "*"), resource=terms.name):
            max_count, share = rules.MAX_KEYS, 1.0
            if not self._access.allows(identity, Permission.ADMIN, EVERYWHERE, ""):
                self._require(identity, terms.tenant)
                max_count, share = rules.MAX_OF_TENANT, self._tenant_share
                if chosen is not None:
                    raise InvalidArgument(
                        "Only an administrator of all tenants may choose a key; leave it to the broker"
                    )
            state = self._state_log.current()
            role.check(state.directory, terms.tenant, terms.roles)
            event, secret = rules.add(
                state.keys, state.next_key_id, terms, chosen, self._clock(), secrets.token_bytes, max_count, share
            )
            group = self._state_log.commit((event,))
        key = state.keys[event.id]
        self._note(identity, "key.add", key, **_described(key))
        return NewKey(key, secret), group

    def list(self, identity: Identity, tenant: str | None = None) -> Sequence[Key]:
        """All keys by number, or those of one tenant: valid ones, and the most recently revoked."""
        if tenant is None:
            self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        else:
            self._require(identity, tenant)
        keys = self._state_log.current().keys.values()
        return sorted((key for key in keys if tenant in (None, key.tenant)), key=lambda key: key.id)

    def find(self, identity: Identity, named: str) -> Key:
        """A key by its secret, its number or its principal. Raises KeyNotFound, also for keys of tenants that this
        identity does not administer.
        """
        number = named.removeprefix(rules.PRINCIPAL)
        if number.isascii() and number.isdigit() and len(number) <= _MAX_ID:
            return self._find(identity, int(number), f"There is no key {number}")
        self._state_log.current()
        found = self._ring.find(named) if self._administers(identity) else None
        return self._find(identity, 0 if found is None else found.id, "There is no such key")

    def revoke(self, identity: Identity, id: int) -> CommitGroup | None:  # noqa: A002 - it is the key's id
        """Revoke a key, effective immediately even for open connections. None if it was revoked already."""
        with self._audit.attempt(identity, "key.revoke", resource=f"{rules.PRINCIPAL}{id}"):
            key = self._find(identity, id, f"There is no key {id}")
            event = rules.revoke(self._state_log.current().keys, id, self._clock())
            if event is None:
                return self._state_log.pending_commit
            group = self._state_log.commit((event,))
        self._ring.forget()
        self._note(identity, "key.revoke", key)
        return group

    def rotate(self, identity: Identity, named: str) -> tuple[NewKey, CommitGroup]:
        """Replace a key by a new one with the same terms, and revoke the old one, atomically. `named` as for `find`;
        the new key must not be shown before the group is committed.
        """
        with self._audit.attempt(identity, "key.rotate"):  # without a resource: `named` may be the secret
            old = self.find(identity, named)
            now = self._clock()
            if old.state(now) != "active":
                raise KeyNotFound(f"Key {old.id} counts no longer: there is nothing to replace")
            state = self._state_log.current()
            others = {number: key for number, key in state.keys.items() if number != old.id}
            terms = rules.terms_of(old)
            added, secret = rules.add(others, state.next_key_id, terms, None, now, secrets.token_bytes)
            revoked = rules.revoke(state.keys, old.id, now)
            assert revoked is not None, "it was active"
            group = self._state_log.commit((added, revoked))
        self._ring.forget()
        key = state.keys[added.id]
        self._note(identity, "key.rotate", key, instead_of=old.principal, **_described(key))
        return NewKey(key, secret), group

    def _find(self, identity: Identity, id: int, missing: str) -> Key:  # noqa: A002 - it is the key's id
        """Raises AccessDenied if the identity administers nothing, and KeyNotFound for others' keys as for missing
        ones.
        """
        key = self._state_log.current().keys.get(id)
        tenant = "" if key is None else key.tenant  # checked even if missing, so that the timing is the same
        allowed = self._access.allows(identity, Permission.ADMIN, Scope(tenant, "*"), "")
        if key is not None and allowed:
            return key
        self._access.require(identity, Permission.ADMIN, _home(identity), "")
        raise KeyNotFound(missing)

    def _administers(self, identity: Identity) -> bool:
        """Whether the identity may learn something from the time that searching for a secret takes."""
        return self._access.allows(identity, Permission.ADMIN, _home(identity), "")

    def _require(self, identity: Identity, tenant: str) -> None:
        self._access.require(identity, Permission.ADMIN, Scope(tenant, "*"), "")

    def _note(self, identity: Identity, what: str, key: Key, **details: str) -> None:
        scope, action = Scope(key.tenant, key.namespace), what.partition(".")[2]
        details = {"name": key.name} | details
        self._audit.note(identity, what, scope=scope, resource=key.principal, action=action, **details)  # type: ignore[arg-type]

    def grants(self, principal: str) -> Sequence[Grant] | None:
        """See `KeyRing.grants`."""
        return self._ring.grants(principal)


def _home(identity: Identity) -> Scope:
    """The scope in which an identity has to be an administrator to look for unknown keys."""
    return EVERYWHERE if identity.tenant is None else Scope(identity.tenant, "*")


def _described(key: Key) -> dict[str, str]:
    what = {"permissions": key.permissions, "topics": key.topics, "roles": key.roles}
    return {name: ",".join(values) for name, values in what.items() if values}
