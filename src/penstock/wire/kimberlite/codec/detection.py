"""Detection of a client's dialect from the requests it sends. Pure functions; `connection` keeps the results.

Candidates are in order of preference. A candidate is dropped when it cannot decode a request to the last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.wire.kimberlite.codec.dialects import Dialect, dialect
from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding
from penstock.wire.kimberlite.codec.generations import GENERATIONS
from penstock.wire.kimberlite.compliance_messages import ErasureMarkProgress, ErasureMarkStreamErased
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.messages import Ambiguous, Handshake, Message, Request, TenantDelete

VERSIONS: Final = range(1, 6)

_V1: Final = {POSTCARD.name: ("v0.4", "seed"), BINCODE.name: ("v0.1", "seed"), PRINTED.name: ("seed",)}
_LATER: Final = {2: ("v2",), 3: ("v3",), 4: ("v4",), 5: ("5b", "5a")}

_DANGEROUS: Final = (TenantDelete, ErasureMarkProgress, ErasureMarkStreamErased)
_SMALL_ID: Final = 1 << 32


class Candidate(NamedTuple):
    dialect: Dialect
    request: Request


def read(dialects: Sequence[Dialect], data: bytes, at: int, end: int) -> list[Candidate]:
    """The request as decoded by each dialect that can."""
    readings = []
    for each in dialects:
        try:
            readings.append(Candidate(each, each.read_request(data, at, end)))
        except MalformedPayload:
            continue
    return readings


def later(version: int, assume: str) -> list[Dialect]:
    """The candidates for a version from 2 on."""
    return [dialect(name) for name in _assumed(_LATER[version], version, assume)]


def first(data: bytes, at: int, end: int, assume: str) -> list[Candidate]:
    """Readings of the first request in version 1, all in one encoding; empty if it cannot be decoded.

    A handshake with client version 1 and an id below 2³² can be decoded in a single encoding only, as it has zeros at
    fixed positions of the wide encodings. That is tried first. For any other request the choice only determines the
    form of the answer."""
    found = [read(_of(encoding, assume), data, at, end) for encoding in (POSTCARD, BINCODE, PRINTED)]
    readable = [readings for readings in found if readings]
    clear = [readings for readings in readable if _greets(readings[0].request)]
    return (clear or readable or [[]])[0]


def _of(encoding: Encoding, assume: str) -> list[Dialect]:
    names = _assumed(_V1[encoding.name], 1, assume)
    return [dialect(name, encoding) for name in names if encoding in GENERATIONS[name].encodings]


def _assumed(names: tuple[str, ...], version: int, assume: str) -> tuple[str, ...]:
    """The names, narrowed down to the configured generation if it is of this version."""
    if assume == "auto" or GENERATIONS[assume].version != version:
        return names
    return tuple(name for name in names if name == assume)


def _greets(request: Request) -> bool:
    payload = request.payload
    return isinstance(payload, Handshake) and payload.client_version == 1 and request.id < _SMALL_ID


def agreed(dialects: Sequence[Dialect]) -> frozenset[type[Message]]:
    """The requests with the same number and shape in all of these dialects: any one of them can decode these."""
    numbered = [set(enumerate(each.requests.variants)) for each in dialects]
    return frozenset(variant.make for _, variant in set.intersection(*numbered))


def decide(readings: list[Candidate]) -> tuple[list[Dialect], Request]:
    """The remaining dialects, and the decoded request."""
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
    """True if all texts look like names: a number that was misread as a text does not."""
    values = (getattr(payload, field) for field in payload.__struct_fields__)
    return all(value.isprintable() and value for value in values if isinstance(value, str))
