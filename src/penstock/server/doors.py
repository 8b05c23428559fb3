"""The table of all doors. A new protocol adds its line here and nothing else in `server`."""

from __future__ import annotations

from penstock.admin.environment import Environment
from penstock.admin.http import http_door
from penstock.config.doors import felix_settings, flymq_settings, kimberlite_settings
from penstock.config.settings import Settings
from penstock.doors.blipmq import session as blipmq
from penstock.doors.felix.session import felix_door
from penstock.doors.flymq.rest.door import flymq_admin_door
from penstock.doors.flymq.session import flymq_door
from penstock.doors.kimberlite.session import kimberlite_door
from penstock.doors.rustlog import session as rustlog
from penstock.doors.session import Door
from penstock.doors.streams import StreamsDoor

FLIGHT = "flight"  # served by a worker process, on its own port
FELIX = "felix"  # QUIC
BUILT = ("rustlog", "blipmq", "flymq", "kimberlite", FELIX, "http", FLIGHT, "flymq_admin")


def stream_doors(settings: Settings, environment: Environment) -> dict[str, Door]:
    """The doors that a TCP port can serve, by name. Raises ConfigError."""
    doors = (
        rustlog.DOOR,
        blipmq.DOOR,
        flymq_door(flymq_settings(settings)),
        kimberlite_door(kimberlite_settings(settings)),
        http_door(environment),
        flymq_admin_door(flymq_settings(settings)),
    )
    return {door.name: door for door in doors}


def quic_door(settings: Settings) -> StreamsDoor:
    """The door of a UDP port."""
    return felix_door(felix_settings(settings))
