"""The two ways in which Felix is spoken, and how each writes what the server says.

A stream whose first frame is `auth` speaks as the original's clients do, any other as the document says. Requests are
read by `messages`; here are the replies and the events, as whole frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.wire.felix.codec.binary import encode_ack, encode_events
from penstock.wire.felix.frames import EVENTS, HEADER_SIZE, KNOWN, OFFSETS, SHARED
from penstock.wire.felix.messages import (
    AuthOk,
    CacheCas,
    CacheCasOk,
    CacheOk,
    CacheRequest,
    CacheValue,
    Error,
    Event,
    EventBatch,
    EventStreamHello,
    Ok,
    PublishError,
    PublishOk,
    SubscribeCursorError,
    Subscribed,
    encode,
)
from penstock.wire.felix.messages import RequestId as RequestId


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """ "document" or "original"."""

    def authenticated(self, client_flags: int | None) -> bytes: ...

    def published(self, request_id: RequestId, *, binary: bool) -> bytes:
        """`binary`: the request was (0x0009), so the acknowledgement is."""

    def publish_failed(self, request_id: RequestId, message: str, *, binary: bool) -> bytes: ...

    def subscribed(self, subscription_id: int, request_id: RequestId = None) -> bytes: ...

    def cursor_error(self, reason: str, requested: int, available: int, request_id: RequestId = None) -> bytes:
        """`reason`: "too_old" (`available` is the oldest offset kept) or "in_future" (it is the next to be given)."""

    def hello(self, subscription_id: int) -> bytes:
        """The first frame of an event stream."""

    def cache_stored(self, request_id: RequestId) -> bytes: ...

    def cache_deleted(self, request_id: RequestId, deleted: bool) -> bytes:
        """`deleted`: the key was there."""

    def cache_value(self, request: CacheRequest, value: bytes | None) -> bytes:
        """Echoes key and id of the request, and its scope if it named one."""

    def cache_compared(self, request: CacheCas, stored: bool, value: bytes | None) -> bytes:
        """`value`: what is there now."""

    def failed(self, message: str, request_id: RequestId = None) -> bytes: ...

    def events(
        self, names: tuple[str, str, str], payloads: Sequence[bytes], base_offset: int | None,
        subscription_id: int, flags: int | None,
    ) -> bytes:  # fmt: skip
        """One frame of consecutive events, for a client that reads frames with these flags; None: it did not say.
        `base_offset` is None where a stream has no single sequence of offsets."""

    def largest_event(self, names: tuple[str, str, str], flags: int | None, max_frame: int, *, offsets: bool) -> int:
        """Bytes of the largest event that `events` can put into a frame with so many bytes of payload."""

    def left_out(self, message: str) -> bytes:
        """The notice in place of an event that no frame can carry; empty where the dialect has no word for it."""

    def events_key(
        self, names: tuple[str, str, str], subscription_id: int, flags: int | None, *, offsets: bool
    ) -> object:
        """Equal for subscribers whose `events` are the same bytes: those share what was encoded once. `offsets`:
        whether `base_offset` will be given."""


class _Common:
    """The messages that both dialects write alike."""

    def failed(self, message: str, request_id: RequestId = None) -> bytes:
        return encode(Error(request_id=request_id, message=message))

    def cache_value(self, request: CacheRequest, value: bytes | None) -> bytes:
        return encode(
            CacheValue(
                tenant_id=request.tenant_id, namespace=request.namespace, cache=request.cache,
                key=request.key, value=value, request_id=request.request_id,
            )
        )  # fmt: skip

    def cache_compared(self, request: CacheCas, stored: bool, value: bytes | None) -> bytes:
        return encode(CacheCasOk(request_id=request.request_id, key=request.key, stored=stored, value=value))


class Document(_Common):
    """As the document says: JSON only, `ok` for whatever went well, ids of subscriptions are strings."""

    name: Final = "document"

    def authenticated(self, client_flags: int | None) -> bytes:  # noqa: ARG002 - the document has no `auth`
        return encode(Ok())

    def published(self, request_id: RequestId, *, binary: bool) -> bytes:  # noqa: ARG002
        return encode(Ok(request_id))

    def publish_failed(self, request_id: RequestId, message: str, *, binary: bool) -> bytes:  # noqa: ARG002
        return self.failed(message, request_id)

    def subscribed(self, subscription_id: int, request_id: RequestId = None) -> bytes:
        return encode(Ok(request_id, subscription_id=str(subscription_id)))

    def cursor_error(self, reason: str, requested: int, available: int, request_id: RequestId = None) -> bytes:
        """The document knows no `start`; who uses it all the same gets an error text."""
        there = "the oldest event that is kept" if reason == "too_old" else "the next event"
        return self.failed(f"cannot start at offset {requested}: {there} is at {available}", request_id)

    def hello(self, subscription_id: int) -> bytes:
        return encode(EventStreamHello(str(subscription_id)))

    def cache_stored(self, request_id: RequestId) -> bytes:
        return encode(Ok(request_id))

    def cache_deleted(self, request_id: RequestId, deleted: bool) -> bytes:
        return encode(Ok(request_id, deleted=deleted))

    def events(
        self, names: tuple[str, str, str], payloads: Sequence[bytes], base_offset: int | None,  # noqa: ARG002
        subscription_id: int, flags: int | None,  # noqa: ARG002
    ) -> bytes:  # fmt: skip
        if len(payloads) == 1:
            return encode(Event(*names, payloads[0]))
        return encode(EventBatch(*names, list(payloads)))

    def largest_event(
        self, names: tuple[str, str, str], flags: int | None, max_frame: int, *, offsets: bool  # noqa: ARG002
    ) -> int:  # fmt: skip
        empty = len(encode(Event(*names, b""))) - HEADER_SIZE
        return (max_frame - empty) // 4 * 3  # Base64

    def left_out(self, message: str) -> bytes:
        return self.failed(message)

    def events_key(
        self, names: tuple[str, str, str], subscription_id: int, flags: int | None,  # noqa: ARG002
        *, offsets: bool,  # noqa: ARG002
    ) -> object:  # fmt: skip
        return names


class Original(_Common):
    """As the original's broker does: a reply of its own for each request, numbers for ids, and binary events."""

    name: Final = "original"

    def authenticated(self, client_flags: int | None) -> bytes:
        return encode(Ok() if client_flags is None else AuthOk(KNOWN))

    def published(self, request_id: RequestId, *, binary: bool) -> bytes:
        if not isinstance(request_id, int):
            return encode(Ok())
        return encode_ack(request_id) if binary else encode(PublishOk(request_id))

    def publish_failed(self, request_id: RequestId, message: str, *, binary: bool) -> bytes:
        if not isinstance(request_id, int):
            return self.failed(message, request_id)
        return encode_ack(request_id, message) if binary else encode(PublishError(request_id, message))

    def subscribed(self, subscription_id: int, request_id: RequestId = None) -> bytes:  # noqa: ARG002
        return encode(Subscribed(subscription_id))

    def cursor_error(self, reason: str, requested: int, available: int, request_id: RequestId = None) -> bytes:  # noqa: ARG002
        return encode(SubscribeCursorError("too_old" if reason == "too_old" else "in_future", requested, available))

    def hello(self, subscription_id: int) -> bytes:
        return encode(EventStreamHello(subscription_id))

    def cache_stored(self, request_id: RequestId) -> bytes:
        return encode(CacheOk(request_id) if isinstance(request_id, int) else Ok())

    def cache_deleted(self, request_id: RequestId, deleted: bool) -> bytes:
        if isinstance(request_id, int):
            return encode(CacheOk(request_id, deleted))
        return encode(Ok(deleted=deleted))

    def events(
        self, names: tuple[str, str, str], payloads: Sequence[bytes], base_offset: int | None,  # noqa: ARG002
        subscription_id: int, flags: int | None,
    ) -> bytes:  # fmt: skip
        return encode_events(
            payloads,
            subscription_id if _with_id(flags) else None,
            base_offset if flags is not None and flags & OFFSETS else None,
        )

    def largest_event(
        self, names: tuple[str, str, str], flags: int | None, max_frame: int, *, offsets: bool  # noqa: ARG002
    ) -> int:  # fmt: skip
        with_offset = offsets and flags is not None and bool(flags & OFFSETS)
        empty = encode_events((b"",), 0 if _with_id(flags) else None, 0 if with_offset else None)
        return max_frame - (len(empty) - HEADER_SIZE)

    def left_out(self, message: str) -> bytes:  # noqa: ARG002
        """Nothing: the original's clients take no other message here. They see by the offsets that one is missing."""
        return b""

    def events_key(
        self, names: tuple[str, str, str], subscription_id: int, flags: int | None,  # noqa: ARG002
        *, offsets: bool,
    ) -> object:  # fmt: skip
        with_offset = offsets and flags is not None and bool(flags & OFFSETS)
        return subscription_id if _with_id(flags) else -1, with_offset


def _with_id(flags: int | None) -> bool:
    """Clients that do not say what they read may be too old for events without an id. Of those that do, all read them,
    even if they name no flag of events at all, unless they ask for the other kind alone."""
    return flags is None or flags & (EVENTS | SHARED) == EVENTS


DOCUMENT: Final[Dialect] = Document()
ORIGINAL: Final[Dialect] = Original()
