"""The doors that a mirror supports, by URL scheme. A protocol's client is imported when used."""

from __future__ import annotations

from penstock.mirror.ends import Destination, MirrorEnds, Source
from penstock.mirror.progress import StateFile
from penstock.mirror.url import Location


def source(location: Location, state: StateFile) -> Source:
    match location.scheme:
        case "penstock":
            from penstock.mirror.flymq import PenstockSource

            return PenstockSource(location)
        case "flymq":
            from penstock.mirror.flymq import FlyMqSource

            return FlyMqSource(location)
        case "rustlog":
            from penstock.mirror.rustlog import RustLogSource

            return RustLogSource(location)
        case "kimberlite":
            from penstock.mirror.kimberlite import KimberliteSource

            return KimberliteSource(location)
        case "felix":
            from penstock.mirror.felix import FelixSource

            return FelixSource(location)
        case "kafka":
            from penstock.mirror.kafka import KafkaSource

            return KafkaSource(location)
        case _:
            from penstock.mirror.blipmq import BlipMqSource

            return BlipMqSource(location, state)


def destination(location: Location) -> Destination:
    match location.scheme:
        case "penstock":
            from penstock.mirror.flymq import PenstockDestination

            return PenstockDestination(location)
        case "flymq":
            from penstock.mirror.flymq import FlyMqDestination

            return FlyMqDestination(location)
        case "rustlog":
            from penstock.mirror.rustlog import RustLogDestination

            return RustLogDestination(location)
        case "kimberlite":
            from penstock.mirror.kimberlite import KimberliteDestination

            return KimberliteDestination(location)
        case "felix":
            from penstock.mirror.felix import FelixDestination

            return FelixDestination(location)
        case "kafka":
            from penstock.mirror.kafka import KafkaDestination

            return KafkaDestination(location)
        case _:
            from penstock.mirror.blipmq import BlipMqDestination

            return BlipMqDestination(location)


def ends(of: Location, to: Location, state: StateFile) -> MirrorEnds:
    """Both ends; connections are opened with the first request."""
    return MirrorEnds(source(of, state), destination(to))
