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

MAX_TENANTS: Final = 100  # for which one connection is counted; beyond that, for the most recent ones
MINUTE: Final = 60_000_000  # µs
MAX_HOSTS: Final = 1000  # whose protocol violations are remembered


class ViolationLog:
    """Hosts with recent log entries: a host that sends garbage must not flood the log."""

    def __init__(self) -> None:
        self._when: dict[str, int] = {}  # by host, in µs

    def due(self, host: str, now: int) -> bool:
        """True at most once a minute for a host. Bounded, as garbage may come from many hosts."""
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
        self.subscriptions: set[object] = set()  # the open ones; each adds itself
        self.next_subscription_id = numbers  # unique across all connections
        self.allowance = login_allowance(broker, identity)  # shared by all its streams: each must begin with `auth`
        self._violations = violations
        self._tenants: dict[str, None] = {}  # for which the connection is counted

    def lost(self) -> None:
        for tenant in self._tenants:
            self.broker.rate_limits.leave(tenant)
        self._tenants.clear()

    def enter(self, tenant: str) -> None:
        """Count the connection for this tenant, in which one of its streams is active. Raises QuotaReached."""
        if tenant in self._tenants:
            return
        self.broker.rate_limits.enter(tenant)
        self._tenants[tenant] = None
        if len(self._tenants) > MAX_TENANTS:
            first = next(iter(self._tenants))
            del self._tenants[first]
            self.broker.rate_limits.leave(first)

    def violated(self, code: int, text: str) -> None:
        """Close the connection with this code, after a frame that makes all further input undecodable."""
        self.complain(host_of(self.channel.peer), f"{self.channel.peer} is closed: {text}")
        self.channel.abort(code, text)

    def complain(self, about: str, text: str) -> None:
        """Log a warning, at most once a minute with the same `about`, across all connections."""
        if self._violations.due(about, self.broker.now()):
            logger.warning("felix: %s", text, extra={"door": "felix", "peer": self.channel.peer})
