"""RustLog for the client core: encoding of requests, and matching of replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.clients._core.binding import Binding
from penstock.clients._core.inflight import OrderedRequests
from penstock.clients._core.requests import RequestSpec
from penstock.clients.rustlog.errors import FAMILY, BadReply, Unsendable, reply_error
from penstock.wire.rustlog import messages as m
from penstock.wire.rustlog.codec.dialect import DIALECTS, Dialect
from penstock.wire.rustlog.errors import ProtocolError
from penstock.wire.rustlog.frames import MAX_FRAME, Framer, frame


class RustLogBinding(Binding):
    errors = FAMILY

    def __init__(self, dialect: str, timeout: float) -> None:
        self._dialect = DIALECTS[dialect]
        self._timeout = timeout

    def encode(self, spec: RequestSpec[Any], request_id: int) -> bytes:  # noqa: ARG002
        try:
            payload = self._dialect.encode_request(spec.request)
        except (ProtocolError, UnicodeEncodeError) as error:
            raise Unsendable(str(error)) from error
        if len(payload) > MAX_FRAME:
            raise Unsendable(f"The request of {len(payload)} bytes does not fit a frame (max: {MAX_FRAME})")
        return frame(payload)

    def in_flight(self) -> RustLogRequests:
        return RustLogRequests(self._dialect, self._timeout)


class RustLogRequests(OrderedRequests[bytes]):
    """Requests in flight on one connection."""

    def __init__(self, dialect: Dialect, timeout: float) -> None:
        super().__init__(timeout, FAMILY)
        self._dialect = dialect
        self._framer = Framer()

    @property
    def buffered(self) -> bool:
        return self._framer.buffered > 0

    def frames(self, data: bytes) -> Iterable[bytes]:
        frames = self._framer.feed(data)
        return frames if self._framer.error is None else self._until_error(frames)

    def _until_error(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        yield from frames
        raise BadReply(f"The server sent a bad frame: {self._framer.error}")

    def message(self, spec: RequestSpec[Any], frame: bytes) -> Any:
        try:
            reply = self._dialect.decode_response(frame)
        except ProtocolError as error:
            raise BadReply(f"The server sent an unreadable reply: {error}") from error
        if isinstance(reply, spec.reply):
            return reply
        if isinstance(reply, m.Error):
            raise reply_error(reply)
        raise BadReply(f"The server sent {type(reply).__name__} where {spec.reply.__name__} was due")
