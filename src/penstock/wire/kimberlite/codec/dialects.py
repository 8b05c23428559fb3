"""A generation in one encoding: decodes and encodes whole payloads."""

from __future__ import annotations

from functools import cache
from typing import Final

from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding, codec
from penstock.wire.kimberlite.codec.generations import AUDIT, GENERATIONS, NEAREST, Generation
from penstock.wire.kimberlite.codec.kinds import U64, Option
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.messages import AuditMetadata, ErrorCode, ErrorResponse, Message, Push, Request, Response

REQUEST: Final = 0  # the kind of a payload, from version 2 on
RESPONSE: Final = 1
PUSH: Final = 2


class Dialect:
    """Payloads are decoded in place in a larger buffer, from `at` to `end`. They must end exactly at `end`: this
    distinguishes the generations, and prevents a reader from using bytes after the payload."""

    __slots__ = (
        "_audit",
        "_index",
        "_number",
        "_pushes",
        "_requests",
        "_responses",
        "_wrapped",
        "encoding",
        "generation",
        "known",
        "requests",
    )

    def __init__(self, generation: Generation, encoding: Encoding) -> None:
        self.generation = generation
        self.encoding = encoding
        self._index = encoding.index
        self._wrapped = generation.wrapped
        self._number = encoding.scalars[U64]
        self._audit = codec(Option(AUDIT), encoding) if generation.audited else None
        responses = generation.responses()
        self.requests = generation.requests()
        self._requests = codec(self.requests, encoding)
        self._responses = codec(responses, encoding)
        self._pushes = codec(generation.pushes(), encoding)
        self.known = frozenset(variant.make for variant in responses.variants)  # responses

    def __repr__(self) -> str:
        return f"<{self.generation.name}, {self.encoding.name}>"

    @property
    def version(self) -> int:
        return self.generation.version

    # -- for servers

    def read_request(self, data: bytes, at: int, end: int) -> Request:
        """Decode a request. Raises MalformedPayload."""
        if self._wrapped:
            at = self._unwrap(data, at, REQUEST)
        number = self._number.read
        request_id, at = number(data, at)
        tenant, at = number(data, at)
        audit = None
        if self._audit is not None:
            audit, at = self._audit.read(data, at)
        payload, at = self._requests.read(data, at)
        if at != end:
            _finish(at, end)
        return Request(request_id, tenant, payload, audit)

    def read_id(self, data: bytes, at: int, end: int) -> int:
        """The id of a request that may be malformed otherwise; 0 if it cannot be decoded."""
        try:
            if self.generation.wrapped:
                at = self._unwrap(data, at, REQUEST)
            request_id, at = self._number.read(data, at)
        except MalformedPayload:
            return 0
        return int(request_id) if at <= end else 0

    def write_response(self, request_id: int, payload: Message) -> bytearray:
        out = bytearray()
        if self._wrapped:
            out.append(RESPONSE)
        self._number.write(request_id, out)
        self._responses.write(payload, out)
        return out

    def write_push(self, payload: Message) -> bytearray:
        assert self.generation.wrapped, "version 1 has no pushes"
        out = bytearray((PUSH,))
        self._pushes.write(payload, out)
        return out

    # -- for clients

    def write_request(self, request_id: int, tenant: int, payload: Message, audit: AuditMetadata | None) -> bytearray:
        """Encode a request. Fields that the generation lacks are left out, including `audit`."""
        out = bytearray()
        if self.generation.wrapped:
            out.append(REQUEST)
        self._number.write(request_id, out)
        self._number.write(tenant, out)
        if self._audit is not None:
            self._audit.write(audit, out)
        self._requests.write(payload, out)
        return out

    def read_answer(self, data: bytes, at: int, end: int) -> Response | Push:
        """Decode an answer. Raises MalformedPayload."""
        if self.generation.wrapped and data[at : at + 1] == bytes((PUSH,)):
            payload, at = self._pushes.read(data, at + 1)
            _finish(at, end)
            return Push(payload)
        if self.generation.wrapped:
            at = self._unwrap(data, at, RESPONSE)
        request_id, at = self._number.read(data, at)
        payload, at = self._responses.read(data, at)
        _finish(at, end)
        return Response(request_id, payload)

    def _unwrap(self, data: bytes, at: int, expected: int) -> int:
        kind, at = self._index.read(data, at)
        if kind != expected:
            raise MalformedPayload(f"a message of kind {kind}, where {expected} is expected")
        return at


def _finish(at: int, end: int) -> None:
    if at != end:
        raise MalformedPayload("the message is shorter than its frame" if at < end else "the message ends too early")


@cache
def dialect(generation: str, encoding: Encoding = POSTCARD) -> Dialect:
    return Dialect(GENERATIONS[generation], encoding)


NAMED: Final = {
    "v0.1": ("v0.1", BINCODE),
    "seed": ("seed", PRINTED),
    "seed/bincode": ("seed", BINCODE),
    "seed/postcard": ("seed", POSTCARD),
    "v0.4": ("v0.4", POSTCARD),
    "v2": ("v2", POSTCARD),
    "v3": ("v3", POSTCARD),
    "v4": ("v4", POSTCARD),
    "5a": ("5a", POSTCARD),
    "5b": ("5b", POSTCARD),
}
"""All dialects, by readable names."""


def translate(payload: Message, dialects: list[Dialect]) -> Message:
    """The payload, or the closest one that all of these dialects have: an unknown number would make the client close
    the connection."""
    if isinstance(payload, ErrorResponse):
        last = min(each.generation.last_code for each in dialects)
        if payload.code > last:
            code = NEAREST.get(payload.code, ErrorCode.INVALID_REQUEST)
            return ErrorResponse(code, payload.message)
    elif type(payload) not in dialects[0].known:
        version = dialects[0].version
        return ErrorResponse(ErrorCode.INVALID_REQUEST, f"version {version} of the protocol has no answer to this")
    return payload
