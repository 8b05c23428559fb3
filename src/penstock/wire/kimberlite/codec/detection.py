"""Detection of the dialect that a client speaks, from what it has sent. Pure functions; `connection` keeps the results.

Candidates are in order of preference. One drops out as soon as a request cannot be read by it to the last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.wire.kimberlite.codec.dialects import Dialect, dialect
from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding, Malformed
from penstock.wire.kimberlite.codec.generations import GENERATIONS
from penstock.wire.kimberlite.compliance_messages import ErasureMarkProgress, ErasureMarkStreamErased
from penstock.wire.kimberlite.messages import Ambiguous, Handshake, Message, Request, TenantDelete

VERSIONS: Final = range(1, 6)

_V1: Final = {POSTCARD.name: ("v0.4", "seed"), BINCODE.name: ("v0.1", "seed"), PRINTED.name: ("seed",)}
_LATER: Final = {2: ("v2",), 3: ("v3",), 4: ("v4",), 5: ("5b", "5a")}

_DANGEROUS: Final = (TenantDelete, ErasureMarkProgress, ErasureMarkStreamErased)
_SMALL_ID: Final = 1 << 32


class Reading(NamedTuple):
    dialect: Dialect
    request: Request


def read(dialects: Sequence[Dialect], data: bytes, at: int, end: int) -> list[Reading]:
    """A request, by each of the dialects that can read it."""
    readings = []
    for each in dialects:
        try:
            readings.append(Reading(each, each.read_request(data, at, end)))
        except Malformed:
            continue
    return readings


def later(version: int, assume: str) -> list[Dialect]:
    """The candidates for a version from 2 on."""
    return [dialect(name) for name in _assumed(_LATER[version], version, assume)]


def first(data: bytes, at: int, end: int, assume: str) -> list[Reading]:
    """Readings of the first request in version 1, all in one encoding; none if it cannot be read.

    A handshake can be read in one encoding only, if its client version is 1 and its id below 2³², which puts zeros at
    fixed places of the wide encodings. That is tried first. Anything else that can be read tells only how to answer."""
    found = [read(_of(encoding, assume), data, at, end) for encoding in (POSTCARD, BINCODE, PRINTED)]
    readable = [readings for readings in found if readings]
    clear = [readings for readings in readable if _greets(readings[0].request)]
    return (clear or readable or [[]])[0]


def _of(encoding: Encoding, assume: str) -> list[Dialect]:
    names = _assumed(_V1[encoding.name], 1, assume)
    return [dialect(name, encoding) for name in names if encoding in GENERATIONS[name].encodings]


def _assumed(names: tuple[str, ...], version: int, assume: str) -> tuple[str, ...]:
    """The configured generation counts where the version leaves a choice."""
    if assume == "auto" or GENERATIONS[assume].version != version:
        return names
    return tuple(name for name in names if name == assume)


def _greets(request: Request) -> bool:
    payload = request.payload
    return isinstance(payload, Handshake) and payload.client_version == 1 and request.id < _SMALL_ID


def agreed(dialects: Sequence[Dialect]) -> frozenset[type[Message]]:
    """The requests that have the same number and shape in all of these: one of them may read for all."""
    numbered = [set(enumerate(each.requests.variants)) for each in dialects]
    return frozenset(variant.make for _, variant in set.intersection(*numbered))


def decide(readings: list[Reading]) -> tuple[list[Dialect], Request]:
    """The dialects that remain, and what the request is."""
    if len({type(each.request.payload) for each in readings}) > 1:
        readings = [each for each in readings if _plausible(each.request.payload)] or readings
    dialects = [each.dialect for each in readings]
    request = readings[0].request
    payloads = [type(each.request.payload) for each in readings]
    if len(set(payloads)) > 1 and any(payload in _DANGEROUS for payload in payloads):
        names = tuple(payload.__name__ for payload in payloads)
        request = Request(request.id, request.tenant_id, Ambiguous(names), request.audit)
    return dialects, request


def _plausible(payload: Message) -> bool:
    """True if names are such as people give: a number that was read as a text is none of them."""
    values = (getattr(payload, field) for field in payload.__struct_fields__)
    return all(value.isprintable() and value for value in values if isinstance(value, str))
