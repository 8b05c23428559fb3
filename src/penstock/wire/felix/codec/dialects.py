"""The two dialects of Felix, and how each encodes what the server sends.

A stream whose first frame is `auth` uses the original's dialect, any other that of the specification ("document").
`messages` decodes the requests; this module encodes replies and events, as whole frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.wire.felix import features
from penstock.wire.felix.codec.binary import encode_ack, encode_events
from penstock.wire.felix.errors import Advice
from penstock.wire.felix.frames import (
    ACK_CODE,
    ACK_DETAIL,
    ACK_OFFSET,
    EVENTS,
    HEADER_SIZE,
    KNOWN,
    OFFSETS,
    SHARED,
    SKIPPED,
    TIMESTAMPS,
)
from penstock.wire.felix.messages import (
    AuthOk,
    CacheCas,
    CacheCasOk,
    CacheOk,
    CacheRequest,
    CacheValue,
    CounterValue,
    Error,
    ErrorDetail,
    Event,
    EventBatch,
    EventStreamHello,
    Ok,
    PublishError,
    PublishOk,
    StreamShardsView,
    SubscribeCursorError,
    Subscribed,
    Unsupported,
    encode,
)
from penstock.wire.felix.messages import RequestId as RequestId


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """ "document" or "original"."""

    @property
    def original(self) -> bool: ...

    def authenticated(self) -> bytes: ...

    def published(self, request_id: RequestId, *, binary: bool, offset: int | None = None) -> bytes:
        """The acknowledgement of a publish; `binary` if the request was (0x0009). `offset`: of the first payload, for
        clients that want it."""

    def publish_failed(
        self, request_id: RequestId, message: str, *, binary: bool, advice: Advice | None = None
    ) -> bytes: ...

    def subscribed(self, subscription_id: int, request_id: RequestId = None) -> bytes: ...

    def cursor_error(self, reason: str, requested: int, available: int, request_id: RequestId = None) -> bytes:
        """`reason`: "too_old" (`available` is the oldest offset kept) or "in_future" (it is the next offset to be
        assigned)."""

    def hello(self, subscription_id: int) -> bytes:
        """The first frame of an event stream."""

    def cache_stored(self, request_id: RequestId) -> bytes: ...

    def cache_deleted(self, request_id: RequestId, deleted: bool) -> bytes:
        """`deleted`: whether the key existed."""

    def cache_value(self, request: CacheRequest, value: bytes | None) -> bytes:
        """Echoes the key and id of the request, and its scope if it had one."""

    def cache_compared(self, request: CacheCas, stored: bool, value: bytes | None) -> bytes:
        """`value`: the current value."""

    def counter_value(self, value: int | None, request_id: RequestId) -> bytes: ...

    def failed(self, message: str, request_id: RequestId = None, advice: Advice | None = None) -> bytes: ...

    def unsupported(self, message: str, request_type: str, request_id: RequestId = None) -> bytes:
        """The reply to a request of an unknown type."""

    def stream_shards(self, shards: int, request_id: RequestId) -> bytes: ...

    def events(
        self, names: tuple[str, str, str], payloads: Sequence[bytes], base_offset: int | None,
        subscription_id: int, flags: int | None, skipped: int = 0, timestamps: Sequence[int] | None = None,
    ) -> bytes:  # fmt: skip
        """One frame of consecutive events, for a client that reads frames with these flags; None: unknown.
        `base_offset` is None for streams without a single sequence of offsets. `skipped`: number of offsets before it
        without an event."""

    def largest_event(self, names: tuple[str, str, str], flags: int | None, max_frame: int, *, offsets: bool) -> int:
        """Bytes of the largest event that fits into a frame with `max_frame` bytes of payload."""

    def left_out(self, message: str) -> bytes:
        """The notice that replaces an event too large for any frame; empty if the dialect has none."""

    def events_key(
        self, names: tuple[str, str, str], subscription_id: int, flags: int | None, *, offsets: bool
    ) -> object:
        """Equal for subscribers whose `events` are the same bytes: they share a single encoding. `offsets`: whether
        `base_offset` will be given."""


class _Common:
    """The messages that both dialects encode in the same way."""

    def stream_shards(self, shards: int, request_id: RequestId) -> bytes:
        return encode(StreamShardsView(shards, request_id))

    def counter_value(self, value: int | None, request_id: RequestId) -> bytes:
        return encode(CounterValue(value, request_id))

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
    """The specification's dialect: JSON only, `ok` for every success, string ids of subscriptions."""

    name: Final = "document"

    original: Final = False

    def authenticated(self) -> bytes:  # the specification has no `auth`
        return encode(Ok())

    def published(self, request_id: RequestId, *, binary: bool, offset: int | None = None) -> bytes:  # noqa: ARG002
        return encode(Ok(request_id))

    def publish_failed(
        self, request_id: RequestId, message: str, *, binary: bool, advice: Advice | None = None  # noqa: ARG002
    ) -> bytes:  # fmt: skip
        return self.failed(message, request_id)

    def failed(self, message: str, request_id: RequestId = None, advice: Advice | None = None) -> bytes:  # noqa: ARG002
        return encode(Error(request_id=request_id, message=message))

    def unsupported(self, message: str, request_type: str, request_id: RequestId = None) -> bytes:  # noqa: ARG002
        return self.failed(message, request_id)

    def subscribed(self, subscription_id: int, request_id: RequestId = None) -> bytes:
        return encode(Ok(request_id, subscription_id=str(subscription_id)))

    def cursor_error(self, reason: str, requested: int, available: int, request_id: RequestId = None) -> bytes:
        """The specification has no `start`; clients that use it anyway get an error text."""
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
        subscription_id: int, flags: int | None, skipped: int = 0, timestamps: Sequence[int] | None = None,  # noqa: ARG002
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
    """The dialect of the original's broker: a separate reply type for each request, numeric ids, and binary events. A
    client only gets the flags and features that it offered in `auth`."""

    name: Final = "original"
    original: Final = True

    def __init__(
        self, flags: int | None = None, offered: int | None = None, offered_extended: int | None = None
    ) -> None:
        """`flags` of the frames that the client reads, and the two words of its features; None: not announced."""
        self._flags = flags
        self._features = None if offered is None else offered & features.SERVED
        extended = offered is not None and offered & features.EXTENDED and offered_extended
        self._extended = extended & features.SERVED_EXTENDED if extended else 0
        self._codes = bool(self._features and self._features & features.ERROR_CODES)
        self._answers_unsupported = bool(self._features and self._features & features.UNSUPPORTED)
        reads = flags or 0
        self._ack_codes = bool(reads & ACK_CODE)
        self._ack_details = bool(reads & ACK_DETAIL)
        self._ack_offsets = bool(reads & ACK_OFFSET)

    def authenticated(self) -> bytes:
        if self._flags is None:
            return encode(Ok())
        if self._extended and self._features is not None:
            return encode(AuthOk(self._flags & KNOWN, self._features | features.EXTENDED, self._extended))
        return encode(AuthOk(self._flags & KNOWN, self._features))

    def published(self, request_id: RequestId, *, binary: bool, offset: int | None = None) -> bytes:
        if not isinstance(request_id, int):
            return encode(Ok())
        if not self._ack_offsets:
            offset = None
        return encode_ack(request_id, None, offset) if binary else encode(PublishOk(request_id, offset))

    def publish_failed(
        self, request_id: RequestId, message: str, *, binary: bool, advice: Advice | None = None
    ) -> bytes:
        if not isinstance(request_id, int):
            return self.failed(message, request_id, advice)
        if binary:
            return encode_ack(
                request_id, message, advice=advice if self._ack_codes else None, detailed=self._ack_details
            )
        return encode(PublishError(request_id, message, *self._advice_fields(advice)))

    def failed(self, message: str, request_id: RequestId = None, advice: Advice | None = None) -> bytes:
        code, retry, detail = self._advice_fields(advice)
        return encode(Error(request_id=request_id, message=message, code=code, retry=retry, detail=detail))

    def _advice_fields(self, advice: Advice | None) -> tuple[str | None, str | None, ErrorDetail | None]:
        if advice is None or advice.code is None or not self._codes:
            return None, None, None
        pause = advice.retry_after_ms
        detail = None if pause is None else ErrorDetail(retry_after_ms=pause)
        return advice.code.name.lower(), advice.retry.name.lower(), detail

    def unsupported(self, message: str, request_type: str, request_id: RequestId = None) -> bytes:
        if not self._answers_unsupported:
            return self.failed(message, request_id)
        return encode(Unsupported(request_type, request_id if isinstance(request_id, int) else None))

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
        subscription_id: int, flags: int | None, skipped: int = 0, timestamps: Sequence[int] | None = None,
    ) -> bytes:  # fmt: skip
        reads = flags or 0
        return encode_events(
            payloads,
            subscription_id if _with_id(flags) else None,
            base_offset if reads & OFFSETS else None,
            skipped if reads & SKIPPED else 0,
            timestamps if reads & TIMESTAMPS else None,
        )

    def largest_event(
        self, names: tuple[str, str, str], flags: int | None, max_frame: int, *, offsets: bool  # noqa: ARG002
    ) -> int:  # fmt: skip
        with_offset = offsets and flags is not None and bool(flags & OFFSETS)
        empty = encode_events(
            (b"",), 0 if _with_id(flags) else None, 0 if with_offset else None,
            int(bool((flags or 0) & SKIPPED)), (0,) if (flags or 0) & TIMESTAMPS else None,
        )  # fmt: skip
        return max_frame - (len(empty) - HEADER_SIZE)

    def left_out(self, message: str) -> bytes:  # noqa: ARG002
        """Nothing: the original's clients accept no other message here. They detect the missing event by the
        offsets."""
        return b""

    def events_key(
        self, names: tuple[str, str, str], subscription_id: int, flags: int | None,  # noqa: ARG002
        *, offsets: bool,
    ) -> object:  # fmt: skip
        with_offset = offsets and flags is not None and bool(flags & OFFSETS)
        more = (flags or 0) & (SKIPPED | TIMESTAMPS)
        return subscription_id if _with_id(flags) else -1, with_offset, more


def _with_id(flags: int | None) -> bool:
    """Whether events carry the subscription id. Clients that do not announce what they read may be too old for events
    without it. All others read those, even if they announce no event flags at all, unless they announce only EVENTS."""
    return flags is None or flags & (EVENTS | SHARED) == EVENTS


DOCUMENT: Final[Dialect] = Document()
ORIGINAL: Final[Dialect] = Original()
