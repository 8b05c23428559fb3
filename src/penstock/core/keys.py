"""All API keys of a broker: adding and revoking them, and letting in who presents one.

The rules, and how a key is recognised, are in `penstock.core.key`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

from penstock.core import key as rules
from penstock.core.access import ANONYMOUS, EVERYWHERE, Access, Grant, Identity, Permission
from penstock.core.audit import Audit
from penstock.core.clock import Clock
from penstock.core.key import Key, KeyRing, KeyTerms, NewKey, Verdict
from penstock.core.ledger import Ledger
from penstock.core.lockout import LockOut
from penstock.core.metrics import Metrics
from penstock.core.names import Scope
from penstock.log.engine import CommitGroup

logger = logging.getLogger(__name__)


class Keys:
    def __init__(
        self, ledger: Ledger, access: Access, metrics: Metrics, audit: Audit, clock: Clock, lockout: LockOut
    ) -> None:
        self._ledger = ledger
        self._access = access
        self._metrics = metrics
        self._audit = audit
        self._clock = clock
        self._ring = KeyRing(lambda: ledger.state.keys, clock, lockout)

    def authenticate(self, key: str, peer: str, now: int | None = None) -> Verdict:
        """Whose key this is. `peer` is where it comes from, with or without a port: a host that presents too many
        wrong ones is locked out. `now` is the wall clock, in µs, if it is not that of the broker."""
        if not self._access.enforced:
            return ANONYMOUS._replace(peer=peer)
        self._ledger.current()
        verdict, locks = self._ring.authenticate(key, peer, self._clock() if now is None else now)
        self._metrics.authentication_failures += verdict is None
        self._metrics.lockouts += locks
        if locks:
            logger.warning("%s is locked out: too many wrong keys", peer)
        if isinstance(verdict, Identity):
            verdict = verdict._replace(peer=peer)
            self._audit.note(verdict, "auth.success", action="key")
        else:
            who = Identity("", peer=peer)
            reason = "wrong key" if verdict is None else "locked out"
            self._audit.note(who, "auth.failure", action="key", result="failure", reason=reason)
            if locks:
                self._audit.note(who, "auth.lockout", action="key", result="denied")
        return verdict

    def add(self, identity: Identity, terms: KeyTerms, chosen: str | None = None) -> tuple[NewKey, CommitGroup]:
        """A new key, generated unless it was chosen. It must not be shown before the group is committed."""
        self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        state = self._ledger.current()
        event, secret = rules.add(state.keys, state.next_key_id, terms, chosen, self._clock(), secrets.token_bytes)
        group = self._ledger.keep((event,))
        key = state.keys[event.id]
        self._audit.note(
            identity,
            "key.add",
            scope=Scope(key.tenant, key.namespace),
            resource=key.principal,
            action="add",
            name=key.name,
            permissions=",".join(key.permissions),
            topics=",".join(key.topics),
        )
        return NewKey(key, secret), group

    def list(self, identity: Identity) -> Sequence[Key]:
        """All keys by number: those that count, and the last that were revoked."""
        self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        return sorted(self._ledger.current().keys.values(), key=lambda key: key.id)

    def revoke(self, identity: Identity, id: int) -> CommitGroup | None:  # noqa: A002 - it is the key's id
        """The key counts no longer, also for connections that are open. None if that was so already."""
        self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        event = rules.revoke(self._ledger.current().keys, id, self._clock())
        if event is None:
            return self._ledger.unsettled
        group = self._ledger.keep((event,))
        self._ring.forget()
        key = self._ledger.state.keys[id]
        self._audit.note(
            identity,
            "key.revoke",
            scope=Scope(key.tenant, key.namespace),
            resource=key.principal,
            action="revoke",
            name=key.name,
        )
        return group

    def grants(self, principal: str) -> Sequence[Grant] | None:
        """See `KeyRing.grants`."""
        return self._ring.grants(principal)
