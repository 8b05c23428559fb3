"""Login allowances: what a client may ask and send before it logs in, where it has to, and how often it may try to.

With security on, and if nothing is granted to those who have not logged in, a connection that has not may ask a few
times: enough for every client's login, and for some mistakes. After that it is closed. Where there is no login, or
where strangers have grants, nobody is closed for it: they only have a smaller share of each turn
(`broker/runtime/turns`). Who tries to log in again and again in vain is closed everywhere: to check a secret takes
milliseconds, where everything else that a stranger may ask takes microseconds.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied
from penstock.broker.security.access import Identity

LOGINS: Final = 8  # that a connection may try in vain: more than the lock-out lets one name fail


class LoginAllowance:
    """The allowance of one connection; 0: no limit."""

    __slots__ = ("_failed", "_fed", "_requests", "bytes", "requests")

    def __init__(self, requests: int = 0, size: int = 0) -> None:
        self.requests = requests
        self.bytes = size
        self._requests = 0
        self._fed = 0
        self._failed = 0

    def ask(self) -> bool:
        """One more request; False if that is too many."""
        self._requests += 1
        return self._failed < LOGINS and (self._requests <= self.requests or not self.requests)

    def not_logged_in(self) -> None:
        """One more login that has not succeeded, or not yet."""
        self._failed += 1

    def feed(self, size: int) -> bool:
        """So many more bytes; False if that is too many."""
        self._fed += size
        return self._fed <= self.bytes or not self.bytes

    def reset(self) -> None:
        """The client has logged in."""
        self._requests = self._fed = self._failed = 0

    def refusal(self) -> AccessDenied:
        """The error for the request that was one too many."""
        if self._failed >= LOGINS:
            return AccessDenied(f"login required: {self._failed} logins were in vain; the connection is closed")
        return AccessDenied(f"login required: {self.requests} requests came without one; the connection is closed")


def login_allowance(broker: Broker, identity: Identity) -> LoginAllowance | None:
    """The allowance of a new connection at a door with a login; None with security off."""
    if not broker.access.enforced:
        return None
    if broker.access.grants_anything(identity):
        return LoginAllowance()
    return LoginAllowance(broker.limits.login_requests, broker.limits.login_bytes)
