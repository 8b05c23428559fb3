"""Decoding of requests, which are JSON, and of which not all flaws can be found by their types alone.

Separate from the messages because every request of the cache comes through here.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.wire.felix.codec.binary import MAX_PAYLOADS
from penstock.wire.felix.codec.strict_json import Bulk, bulk, flaw
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.messages import (
    MAX_I64,
    MAX_U64,
    REQUEST_TYPES,
    REQUESTS,
    UNDECODABLE,
    UNKNOWN_TYPE,
    Auth,
    CachePut,
    From,
    Publish,
    PublishBatch,
    Request,
    RequestId,
    Subscribe,
    described,
    readable_part,
)
from penstock.wire.felix.routing import MAX_KEY

_PUBLICATIONS: Final = (Publish, PublishBatch)
_BULK: Final[dict[type, Bulk]] = {
    Publish: bulk("payload", b'"', b'"', b""),
    PublishBatch: bulk("payloads", b"[", b"]", []),
    CachePut: bulk("value", b'"', b'"', b""),
}
_MOST_QUOTES: Final = 2 * MAX_PAYLOADS + 200  # per message; more would take much time and memory to decode


class UnknownRequest(Malformed):
    """A request of an unknown type."""

    def __init__(self, text: str, request_id: RequestId, request_type: str) -> None:
        super().__init__(text, request_id)
        self.request_type = request_type


def decode_request(payload: bytes, *, original: bool) -> Request:
    """Raises Malformed, with the request's id if that can be decoded."""
    try:
        if len(payload) > _MOST_QUOTES and payload.count(b'"') > _MOST_QUOTES:
            raise Malformed(f"too many strings in a message; a batch has at most {MAX_PAYLOADS} payloads: send several")
        if not payload.isascii():
            payload.decode()  # msgspec does not validate strings that it skips
        request: Request = REQUESTS.decode(payload)
        text = _invalid_number(request, original) or flaw(payload, request, _BULK.get(type(request)))
    except Malformed as problem:
        text = problem.text
    except UNDECODABLE as error:
        text = described(error, REQUEST_TYPES)
    if text is not None:
        found = readable_part(payload)
        request_id = found.request_id if _fits(found.request_id, original) else None
        if text.startswith(UNKNOWN_TYPE):
            raise UnknownRequest(text, request_id, text[len(UNKNOWN_TYPE) + 2 : -1])
        publication = found.type in ("publish", "publish_batch")
        raise Malformed(text, request_id, publication=publication, awaited=found.ack != "none")
    return request


def _invalid_number(request: Any, original: bool) -> str | None:
    """The flaw in a request's numbers, or None: ids differ between the dialects, and msgspec supports no bounds above
    an i64."""
    kind = type(request)
    if kind is Auth:
        return None
    if not _fits(request.request_id, original):
        return f"field 'request_id': expected {'a u64' if original else 'a string or a number of 64 bits'}"
    if kind in _PUBLICATIONS:
        if request.key is not None and len(request.key) > MAX_KEY:
            return f"field 'key': a key of {len(request.key)} bytes; the most is {MAX_KEY}"
    elif kind is Subscribe:
        if request.subscription_id is not None and request.subscription_id > MAX_U64:
            return "field 'subscription_id': expected a u64"
        if isinstance(request.start, From) and request.start.offset > MAX_U64:
            return "field 'start.offset': expected a u64"
    elif (getattr(request, "ttl_ms", None) or 0) > MAX_U64:
        return "field 'ttl_ms': expected a u64"
    return None


def _fits(request_id: RequestId, original: bool) -> bool:
    if isinstance(request_id, int):
        return (0 if original else -MAX_I64 - 1) <= request_id <= MAX_U64
    return request_id is None or not original
