"""The doors that a mirror knows: what stands for a URL's scheme. A protocol's client is loaded when it is used."""

from __future__ import annotations

from penstock.mirror.ends import Destination, Places, Source
from penstock.mirror.progress import StateFile
from penstock.mirror.url import Location


def source(place: Location, state: StateFile) -> Source:
    match place.scheme:
        case "penstock":
            from penstock.mirror.flymq import PenstockSource

            return PenstockSource(place)
        case "flymq":
            from penstock.mirror.flymq import FlyMqSource

            return FlyMqSource(place)
        case "rustlog":
            from penstock.mirror.rustlog import RustLogSource

            return RustLogSource(place)
        case "kimberlite":
            from penstock.mirror.kimberlite import KimberliteSource

            return KimberliteSource(place)
        case "felix":
            from penstock.mirror.felix import FelixSource

            return FelixSource(place)
        case "kafka":
            from penstock.mirror.kafka import KafkaSource

            return KafkaSource(place)
        case _:
            from penstock.mirror.blipmq import BlipMqSource

            return BlipMqSource(place, state)


def destination(place: Location) -> Destination:
    match place.scheme:
        case "penstock":
            from penstock.mirror.flymq import PenstockDestination

            return PenstockDestination(place)
        case "flymq":
            from penstock.mirror.flymq import FlyMqDestination

            return FlyMqDestination(place)
        case "rustlog":
            from penstock.mirror.rustlog import RustLogDestination

            return RustLogDestination(place)
        case "kimberlite":
            from penstock.mirror.kimberlite import KimberliteDestination

            return KimberliteDestination(place)
        case "felix":
            from penstock.mirror.felix import FelixDestination

            return FelixDestination(place)
        case "kafka":
            from penstock.mirror.kafka import KafkaDestination

            return KafkaDestination(place)
        case _:
            from penstock.mirror.blipmq import BlipMqDestination

            return BlipMqDestination(place)


def places(of: Location, to: Location, state: StateFile) -> Places:
    """Both ends; connections are made with the first request."""
    return Places(source(of, state), destination(to))
