"""Login allowances: how much a client may request and send before a required login, and how many logins it may try.

With security on and without grants for anonymous clients, a connection may send a few requests before it logs in:
enough for every client's login, and some mistakes. Then it is closed. At doors without a login, or if anonymous clients
have grants, connections are not closed for this; they only have a smaller share of each turn (`broker/runtime/turns`).
Repeated failed logins close a connection in any case: checking a secret takes milliseconds, all other requests before a
login take microseconds.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied
from penstock.broker.security.access import Identity

LOGINS: Final = 8  # failed attempts per connection: more than the lockout allows for one name


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
        """Count a request; False if it exceeds the allowance."""
        self._requests += 1
        return self._failed < LOGINS and (self._requests <= self.requests or not self.requests)

    def not_logged_in(self) -> None:
        """Count a login that has failed, or is not complete yet."""
        self._failed += 1

    def feed(self, size: int) -> bool:
        """Count received bytes; False if they exceed the allowance."""
        self._fed += size
        return self._fed <= self.bytes or not self.bytes

    def reset(self) -> None:
        """Start over after a login."""
        self._requests = self._fed = self._failed = 0

    def refusal(self) -> AccessDenied:
        """The error for the request that exceeded the allowance."""
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
