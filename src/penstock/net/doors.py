"""The doors that are built, in one table. A protocol that joins adds its line here and nothing else in `net`."""

from __future__ import annotations

from penstock.config import Settings
from penstock.net.http import http_door
from penstock.protocols.blipmq import session as blipmq
from penstock.protocols.flymq.messages import AuthStyle
from penstock.protocols.flymq.operations.call import FlyMqSettings
from penstock.protocols.flymq.session import flymq_door
from penstock.protocols.rustlog import session as rustlog
from penstock.protocols.session import Door

FLIGHT = "flight"  # is served by a process of its own, on a port that it shares with nobody
BUILT = ("rustlog", "blipmq", "flymq", "http", FLIGHT)


def stream_doors(settings: Settings) -> dict[str, Door]:
    """The doors that a TCP port can serve, by name."""
    doors = (rustlog.DOOR, blipmq.DOOR, flymq_door(_flymq(settings)), http_door(settings.log.durability))
    return {door.name: door for door in doors}


def _flymq(settings: Settings) -> FlyMqSettings:
    own = settings.flymq
    address = own.advertised or settings.listen.flymq
    return FlyMqSettings(AuthStyle(own.auth_reply), int(own.fetch_wait_seconds * 1_000_000), address, own.node)
