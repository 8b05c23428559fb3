"""Authentication with JSON Web Tokens, and the grants of such identities: from roles or permissions, until the token
expires.

Tokens are not stored. A connection that was opened with one has no permissions after it has expired.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.runtime.clock import Clock
from penstock.broker.security import token as rules
from penstock.broker.security.access import ANONYMOUS, Access, Grant, Identity
from penstock.broker.security.auth_outcome import AuthOutcome
from penstock.broker.security.key import Verdict
from penstock.broker.security.lockout import LockOut, host_of
from penstock.broker.security.role import RoleGrants
from penstock.broker.security.token import Signed, TokenPolicy, Unacceptable


class Tokens:
    def __init__(
        self,
        access: Access,
        outcome: AuthOutcome,
        clock: Clock,
        lockout: LockOut,
        policy: TokenPolicy,
        roles: RoleGrants,
    ) -> None:
        self.policy = policy
        self._access = access
        self._outcome = outcome
        self._clock = clock
        self._lockout = lockout
        self._roles = roles

    @property
    def configured(self) -> bool:
        """Whether there are keys to verify tokens with."""
        return bool(self.policy.keys)

    def authenticate(self, token: str, peer: str, now: int | None = None, *, tenant: str | None = None) -> Verdict:
        """The identity of a token; see `Keys.authenticate`. Takes 0.05 to 0.3 ms per key tried. A signature cannot be
        guessed, so the right one is accepted whatever else came from its host.
        """
        if not self._access.enforced:
            return ANONYMOUS._replace(peer=peer)
        moment = self._clock() if now is None else now
        host = host_of(peer)
        verdict: Verdict = None
        reason, locks = "wrong token", False
        if (signed := self._signed(token)) is None:
            if self._lockout.over_limit(host, moment):
                verdict = "locked"
            else:
                locks = self._lockout.failed(host, None, moment)
        else:
            from penstock.broker.security import token_claims  # imported here, because few brokers use tokens

            try:
                verdict = token_claims.identity(token_claims.decode(*signed), self.policy, peer, moment, tenant)
            except Unacceptable as error:  # validly signed, so not a guess: not counted for lock-out
                reason = str(error)
        return self._outcome.conclude(verdict, peer, "token", reason, locks=locks)

    def _signed(self, token: str) -> Signed | None:
        if not self.policy.keys or len(token) > rules.MAX_TOKEN or not rules.looks_like_one(token):
            return None
        from penstock.broker.security import token_keys  # imported here, because few brokers use tokens

        return token_keys.signed(token, self.policy.keys)

    def grants(self, identity: Identity) -> Sequence[Grant] | None:
        """Implements `Access.grants_of`: None for an identity without a token, empty if its token has expired."""
        if not identity.name.startswith(rules.PRINCIPAL):
            return None
        if identity.expires is None or identity.expires <= self._clock() or identity.tenant is None:
            return ()
        return identity.grants or self._roles.grants(identity.name, identity.tenant, identity.roles)
