"""The doors that are built, in one table. A protocol that joins adds its line here and nothing else in `net`."""

from __future__ import annotations

from penstock.log.engine import Durability
from penstock.net.http import http_door
from penstock.protocols.blipmq import session as blipmq
from penstock.protocols.rustlog import session as rustlog
from penstock.protocols.session import Door

BUILT = ("rustlog", "blipmq", "http")


def stream_doors(durability: Durability) -> dict[str, Door]:
    """The doors that a TCP port can serve, by name."""
    doors = (rustlog.DOOR, blipmq.DOOR, http_door(durability))
    return {door.name: door for door in doors}
