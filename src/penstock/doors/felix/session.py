"""The sessions of one Felix connection: one for each stream, in `stream`; they share a `FelixConnection`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.felix.connection import FelixConnection, ViolationLog
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.stream import PublishStream, RequestStream
from penstock.doors.streams import MultiplexedChannel, StreamChannel, StreamsDoor, StreamSession
from penstock.wire.felix.frames import HEADER_SIZE


class FelixSession(FelixConnection):
    """A connection, as seen by the transport; a `MultiplexedSession`."""

    def __init__(
        self, broker: Broker, channel: MultiplexedChannel, identity: Identity, settings: FelixSettings,
        violations: ViolationLog, numbers: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(broker, channel, identity, violations, numbers)
        self._settings = settings
        self._stopping = False

    def accept(self, channel: StreamChannel, *, replies: bool) -> StreamSession:
        session = (RequestStream if replies else PublishStream)(self, channel, self._settings)
        if self._stopping:
            session.stop()
        return session

    def stop(self) -> None:
        self._stopping = True


def felix_door(settings: FelixSettings) -> StreamsDoor:
    violations, numbers = ViolationLog(), count(1)

    def opened(broker: Broker, channel: MultiplexedChannel, identity: Identity) -> FelixSession:
        return FelixSession(broker, channel, identity, settings, violations, numbers.__next__)

    return StreamsDoor("felix", opened, settings.max_frame + HEADER_SIZE)
