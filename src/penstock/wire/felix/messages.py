"""The JSON messages of Felix: those of the specification ("document") and of the original, and our extensions of the
cache.

A message is a request or a reply; its class is its `type`. Fields are encoded in the original's order, and absent ones
are left out, as in the original. Unknown fields are ignored.

The two dialects share most messages and differ in a few rules: request ids of the specification are strings, but
numbers are accepted too; those of the original are numbers only. The scopes of all cache messages are optional here,
because the specification has none.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, field

from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.frames import frame

RequestId: TypeAlias = int | str | None

MAX_U64: Final = 0xFFFF_FFFF_FFFF_FFFF
MAX_I64: Final = 0x7FFF_FFFF_FFFF_FFFF

U16 = Annotated[int, Meta(ge=0, le=0xFFFF)]
U32 = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
U64 = Annotated[int, Meta(ge=0)]  # msgspec cannot express the upper bound; see `codec/requests`
I64 = Annotated[int, Meta(ge=-MAX_I64 - 1, le=MAX_I64)]
AckMode = Literal["none", "per_message", "per_batch"]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _nothing() -> None:
    """The default of a field that is encoded even if it is absent: as null."""


class Message(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag=_snake):
    """Any JSON message of one frame."""


class CacheMessage(Message, frozen=True, gc=False, kw_only=True):
    """A message about one key of a cache. Without a scope, the one in the broker's configuration applies."""

    tenant_id: str | None = None
    namespace: str | None = None
    cache: str | None = None
    key: str


# -- requests


class Auth(Message, frozen=True, gc=False):
    tenant_id: str
    token: str
    client_flags: U16 | None = None  # flags of the frames that the client reads
    client_features: U32 | None = None  # see `features`
    client_features_hi: U32 | None = None


class Publish(Message, frozen=True, gc=False):
    tenant_id: str
    namespace: str
    stream: str
    payload: bytes
    request_id: RequestId = None
    ack: AckMode | None = None
    key: bytes | None = None
    shard: U32 | None = None  # the partition, overrides the key

    @property
    def acked(self) -> bool:
        return self.ack != "none"


class PublishBatch(Message, frozen=True, gc=False):
    tenant_id: str
    namespace: str
    stream: str
    payloads: list[bytes]
    request_id: RequestId = None
    ack: AckMode | None = None
    key: bytes | None = None  # of all payloads
    shard: U32 | None = None

    @property
    def acked(self) -> bool:
        return self.ack != "none"


class From(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The start of a subscription at an offset."""

    offset: U64


Start: TypeAlias = Literal["latest", "earliest"] | From


class Subscribe(Message, frozen=True, gc=False):
    tenant_id: str
    namespace: str
    stream: str
    subscription_id: U64 | None = None
    start: Start | None = None
    request_id: RequestId = None  # not in the specification, but echoed like everywhere
    shard: U32 | None = None


class StreamShards(Message, frozen=True, gc=False):
    """A request for the number of partitions of a stream."""

    tenant_id: str
    namespace: str
    stream: str
    request_id: RequestId = None


class CachePut(CacheMessage, frozen=True, gc=False, kw_only=True):
    value: bytes
    request_id: RequestId = None
    ttl_ms: U64 | None = field(default_factory=_nothing)


class CacheGet(CacheMessage, frozen=True, gc=False, kw_only=True):
    request_id: RequestId = None


class CacheDelete(CacheMessage, frozen=True, gc=False, kw_only=True):
    request_id: RequestId = None


class CacheCas(CacheMessage, frozen=True, gc=False, kw_only=True):
    """Store the value if the current one equals `expected`; None: if there is none."""

    expected: bytes | None
    value: bytes
    request_id: RequestId = None
    ttl_ms: U64 | None = field(default_factory=_nothing)


class CacheIncrement(CacheMessage, frozen=True, gc=False, kw_only=True):
    by: I64 = 1
    request_id: RequestId = None
    ttl_ms: U64 | None = field(default_factory=_nothing)


class CounterAdd(CacheMessage, frozen=True, gc=False, kw_only=True):
    delta: I64
    request_id: RequestId = None


class CounterGet(CacheMessage, frozen=True, gc=False, kw_only=True):
    request_id: RequestId = None


CacheRequest: TypeAlias = CachePut | CacheGet | CacheDelete | CacheCas | CacheIncrement | CounterAdd | CounterGet
Request: TypeAlias = Auth | Publish | PublishBatch | Subscribe | StreamShards | CacheRequest


# -- replies


class AuthOk(Message, frozen=True, gc=False):
    server_flags: U16
    server_features: U32 | None = None
    server_features_hi: U32 | None = None


class ErrorDetail(Struct, frozen=True, gc=False, omit_defaults=True):
    reason: str | None = None
    retry_after_ms: U64 | None = None


class Ok(Message, frozen=True, gc=False):
    """The specification's reply to nearly everything; the original's, to requests without an id."""

    request_id: RequestId = None
    subscription_id: int | str | None = None
    deleted: bool | None = None


class Error(Message, frozen=True, gc=False, kw_only=True):
    request_id: RequestId = None
    message: str
    code: str | None = None
    retry: str | None = None
    detail: ErrorDetail | None = None


class Unsupported(Message, frozen=True, gc=False):
    """The server does not know this type of request."""

    request_type: str
    request_id: U64 | None = None


class PublishOk(Message, frozen=True, gc=False):
    request_id: U64
    offset: U64 | None = None  # of the first payload


class PublishError(Message, frozen=True, gc=False):
    request_id: U64
    message: str
    code: str | None = None
    retry: str | None = None
    detail: ErrorDetail | None = None


class StreamShardsView(Message, frozen=True, gc=False):
    shards: U32
    request_id: RequestId = None


class Subscribed(Message, frozen=True, gc=False):
    subscription_id: U64


class SubscribeCursorError(Message, frozen=True, gc=False):
    reason: Literal["too_old", "in_future"]
    requested: U64
    available: U64  # the oldest offset kept, or the next one to be assigned


class EventStreamHello(Message, frozen=True, gc=False):
    subscription_id: int | str


class Event(Message, frozen=True, gc=False):
    tenant_id: str
    namespace: str
    stream: str
    payload: bytes
    offset: U64 | None = None


class EventBatch(Message, frozen=True, gc=False):
    tenant_id: str
    namespace: str
    stream: str
    payloads: list[bytes]
    base_offset: U64 | None = None


class CacheOk(Message, frozen=True, gc=False):
    request_id: U64
    deleted: bool | None = None


class CacheValue(CacheMessage, frozen=True, gc=False, kw_only=True):
    value: bytes | None = field(default_factory=_nothing)
    request_id: RequestId = None


class CounterValue(Message, frozen=True, gc=False):
    value: I64 | None = None  # None: never set
    request_id: RequestId = None


class CacheCasOk(Message, frozen=True, gc=False, kw_only=True):
    request_id: RequestId = None
    key: str
    stored: bool
    value: bytes | None = field(default_factory=_nothing)  # the current value


Reply: TypeAlias = (
    AuthOk
    | Ok
    | Error
    | Unsupported
    | PublishOk
    | PublishError
    | StreamShardsView
    | Subscribed
    | SubscribeCursorError
    | EventStreamHello
    | Event
    | EventBatch
    | CacheOk
    | CacheValue
    | CounterValue
    | CacheCasOk
)


class ReadablePart(Struct, frozen=True, gc=False):
    """The decodable parts of a malformed message."""

    request_id: RequestId = None
    type: str = ""
    ack: str | None = None


class _IdAlone(Struct, frozen=True, gc=False):
    request_id: RequestId = None


# -- encoding and decoding

REQUESTS: Final = msgspec.json.Decoder(Request)
_REPLIES: Final = msgspec.json.Decoder(Reply)
_ID: Final = msgspec.json.Decoder(ReadablePart)
_ID_ALONE: Final = msgspec.json.Decoder(_IdAlone)
_ENCODER: Final = msgspec.json.Encoder()

REQUEST_TYPES: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Request))
_REPLY_TYPES: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Reply))

_WRONG_TYPE: Final = re.compile(r"Invalid value '(.*)' - at `\$\.type`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_AT: Final = re.compile(r"(.*) - at `\$\.(.*)`", re.DOTALL)
UNKNOWN_TYPE: Final = "unknown message type"
_MOST_TOLD: Final = 64  # characters of the peer's text in an error message
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(message: Message) -> bytes:
    """The whole frame."""
    return frame(_ENCODER.encode(message))


def decode_reply(payload: bytes) -> Reply:
    """Decode a reply of either dialect, for clients. Raises Malformed."""
    try:
        if not payload.isascii():
            payload.decode()  # msgspec does not validate strings that it skips
        return _REPLIES.decode(payload)  # type: ignore[no-any-return]
    except UNDECODABLE as error:
        text = described(error, _REPLY_TYPES)
    raise Malformed(text)


def described(error: Exception, types: frozenset[Any]) -> str:
    """One of the `UNDECODABLE` errors in the terms of this protocol. `types`: of the messages that were allowed."""
    if isinstance(error, msgspec.ValidationError):
        return _plain(str(error), types)
    if isinstance(error, RecursionError):
        return "malformed JSON: nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"malformed JSON: invalid UTF-8 at byte {error.start}"
    return "malformed JSON: " + _sentence(str(error).removeprefix("JSON is malformed: "))


def _plain(text: str, types: frozenset[Any]) -> str:
    """msgspec's error message in the terms of this protocol."""
    if found := _WRONG_TYPE.fullmatch(text):
        return _wrong_type(found[1], types)
    if found := _MISSING.fullmatch(text):
        return f"missing field '{found[1]}'"
    if found := _AT.fullmatch(text):
        return f"field '{found[2]}': {_sentence(found[1])}"
    return f"malformed message: {_sentence(text)}"


def _wrong_type(name: str, types: frozenset[Any]) -> str:
    if name in types:
        return "duplicate field 'type'"  # a valid type that is rejected must be the second one
    if name in REQUEST_TYPES | _REPLY_TYPES:
        return f"unexpected message type '{name}'"
    return f"{UNKNOWN_TYPE} '{name[:_MOST_TOLD]}'"


def _sentence(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]


def readable_part(payload: bytes) -> ReadablePart:
    """The decodable part of a request that cannot be executed."""
    try:
        return _ID.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return ReadablePart(_ID_ALONE.decode(payload).request_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ReadablePart()
