"""One Felix connection: the state that its streams share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.broker.security.lockout import host_of
from penstock.doors.login_allowance import login_allowance
from penstock.doors.streams import MultiplexedChannel

logger = logging.getLogger(__name__)

MAX_TENANTS: Final = 100  # that one connection counts for; one that acts in more counts for the last of them
MINUTE: Final = 60_000_000  # µs
MAX_HOSTS: Final = 1000  # whose violations are remembered


class ViolationLog:
    """Hosts that were logged of late: one that sends garbage must not fill the log."""

    def __init__(self) -> None:
        self._when: dict[str, int] = {}  # by host, in µs

    def due(self, host: str, now: int) -> bool:
        """True at most once a minute for the same host. Bounded, as garbage may come from many."""
        if 0 <= now - self._when.get(host, now - MINUTE) < MINUTE:
            return False
        if len(self._when) >= MAX_HOSTS:
            self._when = {old: at for old, at in self._when.items() if 0 <= now - at < MINUTE}
        if len(self._when) < MAX_HOSTS:
            self._when[host] = now
        return True


class FelixConnection:
    def __init__(
        self,
        broker: Broker,
        channel: MultiplexedChannel,
        identity: Identity,
        violations: ViolationLog,
        numbers: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.channel = channel
        self.identity = identity
        self.subscriptions: set[object] = set()  # those that are open; each adds itself
        self.next_subscription_id = numbers  # never the same twice, at any connection
        self.allowance = login_allowance(broker, identity)  # of all its streams: each has to begin with `auth`
        self._violations = violations
        self._tenants: dict[str, None] = {}  # that the connection counts for

    def lost(self) -> None:
        for tenant in self._tenants:
            self.broker.rate_limits.leave(tenant)
        self._tenants.clear()

    def enter(self, tenant: str) -> None:
        """A stream acts in this tenant: the connection counts as one of it. Raises QuotaReached."""
        if tenant in self._tenants:
            return
        self.broker.rate_limits.enter(tenant)
        self._tenants[tenant] = None
        if len(self._tenants) > MAX_TENANTS:
            first = next(iter(self._tenants))
            del self._tenants[first]
            self.broker.rate_limits.leave(first)

    def violated(self, code: int, text: str) -> None:
        """A frame after which nothing can be decoded any more: the connection ends, with this code."""
        self.complain(host_of(self.channel.peer), f"{self.channel.peer} is closed: {text}")
        self.channel.abort(code, text)

    def complain(self, about: str, text: str) -> None:
        """Log a warning, once a minute for all that is about the same, at any connection."""
        if self._violations.due(about, self.broker.now()):
            logger.warning("felix: %s", text, extra={"door": "felix", "peer": self.channel.peer})
