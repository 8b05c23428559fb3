"""The client side as a state machine: requests of many kinds are in flight, and a server answers with anything. Nothing
but the client's own errors may come of it, and each request is answered, refused or lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from tests.fuzz.targets import kimberlite as kimberlite_streams
from tests.fuzz.targets.target import Script, Target, of_kind, script, scripts, vector_data

from penstock.clients._core.binding import Binding
from penstock.clients._core.errors import PenstockError
from penstock.clients._core.requests import RequestSpec
from penstock.clients.blipmq import requests as blipmq
from penstock.clients.blipmq.binding import BlipMQBinding
from penstock.clients.flymq import requests as flymq
from penstock.clients.flymq.binding import FlyMqBinding
from penstock.clients.kimberlite import requests as kimberlite
from penstock.clients.kimberlite.binding import KimberliteBinding
from penstock.clients.kimberlite.version import find_version
from penstock.clients.rustlog import requests as rustlog
from penstock.clients.rustlog.binding import RustLogBinding

MENDED: Final = 1
TIMEOUT: Final = 5.0

_RUSTLOG: Final[Sequence[RequestSpec[Any]]] = (
    rustlog.ping(),
    rustlog.produce("t", 0, [b"a"]),
    rustlog.fetch("t", 0, 0),
    rustlog.list_topics(),
    rustlog.fetch_offset("g", "t", 0),
    rustlog.describe_topic("t"),
    rustlog.metrics(),
)
_FLYMQ: Final[Sequence[RequestSpec[Any]]] = (
    flymq.produce("t", b"a"),
    flymq.produce_batch("t", [b"a", b"b"]),
    flymq.fetch("t", 0, 0),
    flymq.consume("t", 0),
    flymq.begin(),
    flymq.authenticate("u", "p"),
    flymq.list_groups(),
    flymq.get_schema("s"),
    flymq.cluster_metadata(),
    flymq.query_audit(),
)
_KIMBERLITE: Final[Sequence[RequestSpec[Any]]] = (
    kimberlite.server_info(),
    kimberlite.read_page(1, 0, 100),
    kimberlite.query("SELECT 1"),
    kimberlite.list_tables(),
    kimberlite.list_api_keys(),
)


def _answered(binding: Binding, specs: Sequence[RequestSpec[Any]], run: Script, stream: bytes) -> None:
    """The first request is one that the mode chooses; all others follow."""
    start = run.mode >> 4
    requests = [specs[(start + number) % len(specs)] for number in range(len(specs))]
    connection = binding.in_flight()
    batches = []
    for spec in requests:
        batch = binding.batch([spec])
        connection.begin(batch, 0.0)
        batches.append(batch)
    now = 0.0
    try:
        for piece, action in Script(stream, run.steps).pieces():
            now += 0.1
            connection.feed(piece, now)
            if action > 24:
                now += TIMEOUT
                connection.expire(now)
            connection.deadline()
    except (PenstockError, TimeoutError) as error:
        assert str(error)
    connection.lose(ConnectionError("over"))
    assert connection.bytes_in_flight == 0 and len(connection) == 0
    for batch in batches:
        assert batch.is_set, batch.specs[0].name


def answered_rustlog(data: bytes) -> None:
    run = script(data)
    _answered(RustLogBinding("binary" if run.mode & 2 else "json", TIMEOUT), _RUSTLOG, run, run.stream)


def answered_flymq(data: bytes) -> None:
    run = script(data)
    _answered(FlyMqBinding(None, TIMEOUT), _FLYMQ, run, run.stream)


def answered_kimberlite(data: bytes) -> None:
    run = script(data)
    stream = kimberlite_streams.mended(run.stream) if run.mode & MENDED else run.stream
    binding = KimberliteBinding(find_version("5b"), 9, None, TIMEOUT)
    _answered(binding, _KIMBERLITE, run, stream)


def answered_blipmq(data: bytes) -> None:
    run = script(data)
    binding = BlipMQBinding("key", 2 if run.mode & 2 else 1, TIMEOUT)
    _answered(binding, (blipmq.ping(),), run, run.stream)


def _replies(protocol: str, kind: str) -> Callable[[], list[bytes]]:
    def corpus() -> list[bytes]:
        single = vector_data(protocol, kind)
        return scripts([*single, *(one + two for one, two in pairwise(single))], (0, 2, 0x12, 0x31))

    return corpus


def _kimberlite_replies() -> list[bytes]:
    found = [each.data for each in of_kind("kimberlite", "reply") if each.dialect == "5b"]
    return scripts([*found, *(one + two for one in found for two in found)], (MENDED, 0x11, 0x21))


TARGETS: Final = (
    Target("clients.rustlog", answered_rustlog, _replies("rustlog", "reply")),
    Target("clients.blipmq", answered_blipmq, _replies("blipmq", "server")),
    Target("clients.flymq", answered_flymq, _replies("flymq", "reply")),
    Target("clients.kimberlite", answered_kimberlite, _kimberlite_replies),
)
