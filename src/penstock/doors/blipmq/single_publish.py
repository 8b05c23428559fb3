"""Single PUBLISH: one message that arrives alone, or with a PING behind it, whose PONG says that it is stored.

A client that waits for each message mostly publishes to one topic, so that the beginning of its frames needs to be
decoded only once.
"""

from __future__ import annotations

from penstock.doors.blipmq.produce_batch import PublishProperties
from penstock.doors.blipmq.request_context import BlipMqContext
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.messages import NO_TTL


class SinglePublish:
    """A message with QoS 1 and without a TTL, and the PONG that follows it."""

    __slots__ = ("correlation", "payload", "pong", "topic", "value")

    def __init__(self, correlation: int, topic: str, payload: bytes, value: bytes, pong: bytes) -> None:
        self.correlation = correlation
        self.topic = topic
        self.payload = payload
        self.value = value
        self.pong = pong  # a frame; empty: none

    def frame(self) -> f.Frame:
        return f.PUBLISH, self.correlation, self.payload


class SinglePublishDecoder:
    """Remembers how the last message of its connection was published."""

    __slots__ = ("_context", "_prefix", "_publication")

    def __init__(self, context: BlipMqContext) -> None:
        self._context = context
        self._prefix = b""  # of a payload, before the value
        self._publication: PublishProperties | None = None

    def decode(self, data: bytes) -> SinglePublish | None:
        """None if the data is anything else, or begins differently than all that this connection has published."""
        size = len(data)
        if size < f.HEADER_SIZE:
            return None
        length, kind, correlation = f.HEADER.unpack_from(data)
        end = 4 + length
        if kind != f.PUBLISH or not f.HEADER_SIZE <= end <= size:
            return None
        pong = b""
        if end < size:
            if size - end != f.HEADER_SIZE:
                return None
            length, kind, ping = f.HEADER.unpack_from(data, end)
            if kind != f.PING or length != f.MIN_FRAME:
                return None
            pong = codec.encode_pong(ping)
        payload = data[f.HEADER_SIZE : end]
        publication = self._publication
        if publication is None or not payload.startswith(self._prefix):
            publication = self._find(payload)
            if publication is None:
                return None
        value = payload[len(self._prefix) :]
        if len(value) > publication.limit:
            return None
        return SinglePublish(correlation, publication.topic, payload, value, pong)

    def _find(self, payload: bytes) -> PublishProperties | None:
        """The properties with which this connection has published such messages before. Remembers them."""
        context = self._context
        fields = codec.decode_publish(payload) if context.version == 1 else codec.decode_publish_v2(payload)
        if fields is None:
            return None
        prefix = payload[: fields[3]]
        found = context.publications.get(prefix)
        if found is None or found.refusal is not None or found.qos != 1 or found.ttl != NO_TTL:
            return None
        self._prefix, self._publication = prefix, found
        return found
