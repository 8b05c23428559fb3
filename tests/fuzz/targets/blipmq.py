"""BlipMQ's decoders: frames, the payload of every type in both directions, and rows of PUBLISH."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.targets.target import Target, check_feeding, conversations, same, script, scripts, vector_data

from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.messages import NO_TTL, Publish

_HEADER: Final = f.HEADER_SIZE


def frames(data: bytes) -> None:
    run = script(data)
    last = f.DELIVER if run.mode & 1 else f.POLL
    for kind, correlation, payload in check_feeding(lambda: f.Framer(last), run)[:3]:
        same(f.Framer(last).feed(f.encode_frame(kind, correlation, payload)), [(kind, correlation, payload)])


def payload(data: bytes) -> None:
    """Behind a byte that says what it is."""
    if data:
        _PAYLOADS[data[0] % len(_PAYLOADS)](data[1:])


def _again(encoded: bytes) -> bytes:
    """The payload of a frame."""
    ((_, _, found),) = f.Framer(f.DELIVER).feed(encoded)
    return found


def _publish(decode: Callable[[bytes], Publish | None]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        found = decode(data)
        if found is None:
            return
        qos, ttl, topic, start = found
        if qos & codec.TTL_FLAG == 0:  # version 1 has no flags: whatever is in the byte is a QoS that is refused
            written = codec.encode_publish(7, qos, topic, data[start:], None if ttl == NO_TTL else ttl)
            same(_again(written), data)

    return check


def _subscribe(data: bytes) -> None:
    found = codec.decode_subscribe(data)
    if found is not None:
        same(codec.decode_subscribe(_again(codec.encode_subscribe(7, *found))), found)


def _nack(data: bytes) -> None:
    found = codec.decode_nack(data)
    if found is not None:
        same(_again(codec.encode_nack(7, *found)), data)


def _deliver(data: bytes) -> None:
    found = codec.decode_deliver(data)
    if found is not None:
        same(_again(codec.encode_deliver(found.tag, found.qos, found.topic, found.value)), data)


def _delivery(data: bytes) -> None:
    found = codec.decode_delivery(7, data)
    if found is not None:
        same(_again(codec.encode_delivery(7, found.qos, found.topic, found.value)), data)


def _exact(decode: Callable[[bytes], Any], encode: Callable[[int, Any], bytes]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        found = decode(data)
        if found is not None:
            same(_again(encode(7, found)), data)

    return check


_PAYLOADS: Final[tuple[Callable[[bytes], None], ...]] = (
    _delivery,
    _exact(codec.decode_hello, codec.encode_hello),
    _exact(codec.decode_auth, codec.encode_auth),
    _publish(codec.decode_publish),
    _subscribe,
    _exact(codec.decode_subscription_id, codec.encode_ack),
    _nack,
    _publish(codec.decode_publish_v2),
    _exact(codec.decode_subscription_id, codec.encode_poll),
    _deliver,
)


def publishes(data: bytes) -> None:
    """A row of PUBLISH frames is what each of them is alone."""
    found = f.Framer().feed(data)
    for start, (kind, _, first) in enumerate(found):
        fields = codec.decode_publish_v2(first) if kind == f.PUBLISH else None
        if fields is None:
            continue
        indexes, values, end = codec.collect_publishes(found, start, first[: fields[3]])
        assert indexes[0] == start and len(indexes) == len(values) and indexes[-1] < end <= len(found)
        row = [index for index in range(start, end) if found[index][0] == f.PUBLISH]
        same(indexes, row)
        for index, value in zip(indexes, values, strict=True):
            payload = found[index][2]
            same(codec.decode_publish_v2(payload), fields)
            same(payload[fields[3] :], value)


def _payloads() -> list[bytes]:
    found = vector_data("blipmq")
    return [bytes((data[4] % len(_PAYLOADS),)) + data[_HEADER:] for data in found if len(data) >= _HEADER]


def _streams() -> list[bytes]:
    single = vector_data("blipmq", "client")
    return [*single, *conversations("blipmq"), *[data * 9 for data in single[:6]]]


TARGETS: Final = (
    Target("blipmq.frames", frames, lambda: scripts([*_streams(), *vector_data("blipmq", "server")], (0, 1))),
    Target("blipmq.payload", payload, _payloads),
    Target("blipmq.publishes", publishes, _streams),
)
