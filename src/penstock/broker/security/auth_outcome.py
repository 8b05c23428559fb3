"""The outcome of an authentication by any method: metrics, lock-out, audit log."""

from __future__ import annotations

import logging

from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Identity
from penstock.broker.security.audit import Audit
from penstock.broker.security.key import Verdict

logger = logging.getLogger(__name__)


class AuthOutcome:
    def __init__(self, metrics: Metrics, audit: Audit) -> None:
        self._metrics = metrics
        self._audit = audit

    def conclude(self, verdict: Verdict, peer: str, kind: str, reason: str, *, locks: bool) -> Verdict:
        """Record the verdict and return it. `kind` is the kind of credential, `reason` why it was rejected; `locks` if
        it locks out the peer's host.
        """
        self._metrics.authentication_failures += verdict is None
        self._metrics.lockouts += locks
        if locks:
            logger.warning("%s is locked out: too many wrong %ss", peer, kind, extra={"peer": peer})
        if isinstance(verdict, Identity):
            verdict = verdict._replace(peer=peer)
            self._audit.note(verdict, "auth.success", action=kind)
            return verdict
        who = Identity("", peer=peer)
        given = reason if verdict is None else "locked out"
        self._audit.note(who, "auth.failure", action=kind, result="failure", reason=given)
        if locks:
            self._audit.note(who, "auth.lockout", action=kind, result="denied")
        return verdict
