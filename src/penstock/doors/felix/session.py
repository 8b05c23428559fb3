"""One Felix connection: what its streams share. Each stream is carried out by itself, in `stream`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.broker.security.lockout import host_of
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.stream import PublishStream, RequestStream
from penstock.doors.streams import Line, StreamChannel, StreamsDoor, StreamSession
from penstock.wire.felix.frames import HEADER_SIZE

logger = logging.getLogger(__name__)

TENANTS: Final = 100  # that one connection counts for; one that acts in more counts for those that it came to last
MINUTE: Final = 60_000_000  # µs
COMPLAINTS: Final = 1000  # hosts whose violations are remembered


class Complaints:
    """Who was complained of in the log of late: a host that sends rubbish must not fill it."""

    def __init__(self) -> None:
        self._when: dict[str, int] = {}  # by host, in µs

    def due(self, host: str, now: int) -> bool:
        """True at most once a minute for the same host. Bounded, as rubbish may come from many."""
        if 0 <= now - self._when.get(host, now - MINUTE) < MINUTE:
            return False
        if len(self._when) >= COMPLAINTS:
            self._when = {old: at for old, at in self._when.items() if 0 <= now - at < MINUTE}
        if len(self._when) < COMPLAINTS:
            self._when[host] = now
        return True


class FelixHost:
    """A connection; a `Host`."""

    def __init__(
        self, broker: Broker, line: Line, identity: Identity, settings: FelixSettings,
        complaints: Complaints, numbers: Callable[[], int],
    ) -> None:  # fmt: skip
        self.broker = broker
        self.line = line
        self.identity = identity
        self.settings = settings
        self.subscriptions: set[object] = set()  # those that are open; each puts itself here
        self.next_subscription_id = numbers  # never the same twice, at any connection
        self._complaints = complaints
        self._tenants: dict[str, None] = {}  # whose connection this is
        self._stopping = False

    # -- what `net` calls

    def accept(self, channel: StreamChannel, *, replies: bool) -> StreamSession:
        session = RequestStream(self, channel) if replies else PublishStream(self, channel)
        if self._stopping:
            session.stop()
        return session

    def stop(self) -> None:
        self._stopping = True

    def lost(self) -> None:
        for tenant in self._tenants:
            self.broker.rate_limits.leave(tenant)
        self._tenants.clear()

    # -- what the streams call

    def enter(self, tenant: str) -> None:
        """A stream acts in this tenant: the connection counts as one of it. Raises QuotaReached."""
        if tenant in self._tenants:
            return
        self.broker.rate_limits.enter(tenant)
        self._tenants[tenant] = None
        if len(self._tenants) > TENANTS:
            first = next(iter(self._tenants))
            del self._tenants[first]
            self.broker.rate_limits.leave(first)

    def violated(self, code: int, text: str) -> None:
        """Something came after which nothing here can be understood any more: the connection ends, with this code."""
        self.complain(host_of(self.line.peer), f"{self.line.peer} is closed: {text}")
        self.line.abort(code, text)

    def complain(self, about: str, text: str) -> None:
        """Log it, once a minute for all that is about the same, at any connection."""
        if self._complaints.due(about, self.broker.now()):
            logger.warning("felix: %s", text)


def felix_door(settings: FelixSettings) -> StreamsDoor:
    complaints, numbers = Complaints(), count(1)

    def opened(broker: Broker, line: Line, identity: Identity) -> FelixHost:
        return FelixHost(broker, line, identity, settings, complaints, numbers.__next__)

    return StreamsDoor("felix", opened, settings.max_frame + HEADER_SIZE)
