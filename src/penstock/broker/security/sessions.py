"""Login sessions, for clients that should not store a password, such as browsers. After a login the client gets a
secret, which identifies it for a while.

Kept in memory only: after a restart everybody logs in again. Every operation checks permissions, so that a session of a
disabled user becomes useless; a change of the password ends the user's sessions.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.limits import Limits
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import Identity
from penstock.broker.security.user import User
from penstock.broker.tenancy.fair_share import check_room

MAX_SESSIONS: Final = 10_000
MAX_OF_ONE: Final = 16  # per identity; beyond it the oldest is dropped
IDLE_US: Final = 8 * 3600_000_000  # since its last use
LONGEST_US: Final = 24 * 3600_000_000


class Session(NamedTuple):
    identity: Identity
    expires: int  # µs since 1970, regardless of use
    used: int
    proof: str | None  # the stored password hash at the time of the login


class Sessions:
    def __init__(self, limits: Limits, clock: Clock, user_of: Callable[[Identity], User | None]) -> None:
        self._limits = limits
        self._clock = clock
        self._user_of = user_of
        self._open: dict[bytes, Session] = {}  # by hash of the secret; oldest first

    def open(self, identity: Identity) -> tuple[str, int]:
        """The secret of a new session for an identity that has just logged in, and its latest end. Raises
        LimitReached.
        """
        now = self._clock()
        self._drop_old(now)
        mine = [key for key, session in self._open.items() if session.identity[:2] == identity[:2]]
        for key in mine[: max(0, len(mine) - MAX_OF_ONE + 1)]:
            del self._open[key]
        tenant = identity.tenant or ""
        held = sum(session.identity.tenant == identity.tenant for session in self._open.values())
        check_room("login sessions", MAX_SESSIONS, len(self._open), tenant, held, self._limits.tenant_share)
        secret = secrets.token_urlsafe(32)
        expires = min(now + LONGEST_US, identity.expires or now + LONGEST_US)
        self._open[_key(secret)] = Session(identity, expires, now, self._proof(identity))
        return secret, expires

    def find(self, secret: str) -> Session | None:
        """The session with this secret, unless it has ended. Counts as a use."""
        key, now = _key(secret), self._clock()
        session = self._open.get(key)
        if session is None:
            return None
        if self._is_over(session, now) or session.proof != self._proof(session.identity):
            del self._open[key]
            return None
        session = self._open[key] = session._replace(used=now)
        return session

    def close(self, secret: str) -> None:
        self._open.pop(_key(secret), None)

    def _proof(self, identity: Identity) -> str | None:
        found = self._user_of(identity)
        return None if found is None else found.hash

    def _is_over(self, session: Session, now: int) -> bool:
        return now >= session.expires or now - session.used >= IDLE_US

    def _drop_old(self, now: int) -> None:
        for key in [key for key, session in self._open.items() if self._is_over(session, now)]:
            del self._open[key]


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
