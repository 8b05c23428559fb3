"""The environment of the administration API: what it shows of the process around the broker.

The server fills it in; where there is none (the command line on a stopped broker's directory), it is empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.log.engine import Durability


class DoorView(msgspec.Struct):
    """An open door."""

    name: str
    address: str  # host:port
    transport: str  # tcp, udp
    tls: str  # off, offered or required
    pinned: bool  # no other door answers at this address
    fingerprint: str = ""  # SHA-256 of the certificate that QUIC clients see


class ConnectionView(msgspec.Struct):
    """An open connection."""

    id: int
    door: str  # empty until its first bytes tell
    peer: str
    identity: str  # who has logged in; empty: nobody
    since: int  # µs since 1970
    received: int  # bytes
    sent: int
    held: int  # bytes that the broker keeps for it
    encrypted: bool
    request: str  # the kind of the last one


class ConfigValue(msgspec.Struct):
    """One key of the configuration, as it is in effect."""

    key: str
    value: Any
    origin: str  # default, file, environment or flag


def _nothing() -> Sequence[Any]:
    return ()


def _closes_nothing(id: int) -> bool:  # noqa: A002, ARG001 - the shape of `Environment.close_connection`
    return False


@dataclass(slots=True)
class Environment:
    durability: Durability = Durability.SYNCED
    enforced: bool | None = None  # whether security is on, if the broker is only opened for one request
    started: int = 0  # µs since 1970
    doors: Callable[[], Sequence[DoorView]] = _nothing
    connections: Callable[[], Sequence[ConnectionView]] = _nothing
    close_connection: Callable[[int], bool] = _closes_nothing
    config: Callable[[], Sequence[ConfigValue]] = _nothing
    data_dir: str = ""  # of a broker that runs
    pipelines: Callable[[], Sequence[Mapping[str, Any]]] = _nothing
