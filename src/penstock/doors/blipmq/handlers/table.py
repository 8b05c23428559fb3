"""Every frame type with its handler. A handler gets a list of adjacent frames: any number of PUBLISH, or of POLL and
ACK; a single frame of the other types."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Permission
from penstock.doors.blipmq.handlers import connection, poll, publish, subscribe
from penstock.doors.handlers import Handler, logs_in, reads, writes
from penstock.wire.blipmq import frames as f

HANDSHAKE: Final = writes(connection.handshake)  # also for every frame that arrives before the handshake is complete

LOGIN: Final = logs_in(HANDSHAKE)

HANDLERS: Final[dict[int, Handler]] = {
    f.HELLO: HANDSHAKE,
    f.AUTH: LOGIN,
    f.PUBLISH: writes(publish.publish, Permission.WRITE),
    f.SUBSCRIBE: reads(subscribe.subscribe, Permission.READ),
    f.ACK: reads(poll.poll, Permission.READ),
    f.NACK: reads(connection.release),
    f.PING: writes(connection.ping),
    f.PONG: HANDSHAKE,
    f.POLL: reads(poll.poll, Permission.READ),
}
