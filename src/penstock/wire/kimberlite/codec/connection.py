"""The codecs of both ends of a connection: bytes to messages and back, in the peer's dialect. No sockets.

`ServerCodec` detects the dialect, and answers in it; `ClientCodec` uses the one that it was created for.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.kimberlite.codec import detection
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect, translate
from penstock.wire.kimberlite.errors import BadVersion, FrameError, MalformedPayload
from penstock.wire.kimberlite.frames import (
    MAX_PAYLOAD,
    Checksum,
    Frame,
    Framer,
    crc32,
    crc32c,
    frame,
)
from penstock.wire.kimberlite.messages import (
    AuditMetadata,
    ErrorCode,
    ErrorResponse,
    Handshake,
    Message,
    Push,
    Request,
    Response,
)

__all__ = ["ClientCodec", "Refused", "ServerCodec"]

_OLDEST: Final = "v0.4"  # used to answer a version below all others
_NEWEST: Final = "5b"


class Refused(Exception):
    """The peer sent undecodable data. `reply`, which may be empty, is to be sent before the connection is closed. The
    text is for the log."""

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply


class ServerCodec:
    """The server's end of a connection. `assume` selects a generation where the client's version is ambiguous: "auto",
    or the name of a generation."""

    __slots__ = (
        "_agreed", "_assume", "_checksum", "_dialects", "_over", "_settled", "framer", "version",
    )  # fmt: skip

    def __init__(self, assume: str = "auto") -> None:
        self.version = 0  # of the peer; 0 before its first frame
        self._assume = assume
        self.framer = Framer(detection.VERSIONS)  # what is buffered, and the size of the last request's frame
        self._checksum: Checksum | None = None
        self._dialects: list[Dialect] = []  # candidates for the peer's dialect, most likely first
        self._agreed: frozenset[type[Message]] = frozenset()  # requests that are the same in all of them
        self._settled = False  # the candidates are final: in version 1, from the handshake on
        self._over = False

    @property
    def pushes(self) -> bool:
        """True if this peer supports pushes."""
        return self.version >= 2

    def feed(self, data: bytes) -> None:
        if not self._over:
            self.framer.feed(data)

    def next(self) -> Request | None:
        """The next request, or None if there is none yet. Raises Refused, after which nothing more is accepted."""
        try:
            arrived = self.framer.next()
        except FrameError as error:
            raise self._refuse(str(error), error) from None
        if arrived is None:
            return None
        _, checksum, data, start, end = arrived
        if self._checksum is None or self._checksum(memoryview(data)[start:end]) != checksum:
            self._verify(arrived)
        why = "a message that cannot be read"
        if self._settled:
            try:
                request = self._dialects[0].read_request(data, start, end)
            except MalformedPayload as error:
                why = str(error)
            else:
                if type(request.payload) in self._agreed:
                    return request
        return self._recognise(arrived, why)

    def _verify(self, arrived: Frame) -> None:
        """Detect the peer's checksum algorithm. Raises Refused if the frame's checksum is wrong."""
        payload = memoryview(arrived.data)[arrived.start : arrived.end]
        if self._checksum is not None:
            raise self._refuse("the checksum of a frame is wrong", arrived=arrived)
        matching = [each for each in (crc32, crc32c) if each(payload) == arrived.checksum]
        if not matching:
            raise self._refuse("the checksum of a frame is wrong", arrived=arrived)
        if len(matching) == 1:  # both match once in 2**32 frames; then the next frame decides
            self._checksum = matching[0]

    def _recognise(self, arrived: Frame, why: str) -> Request:
        """Decode a request while the dialect is not certain, and narrow it down. `why` is the error text if no dialect
        can decode it."""
        version, _, data, start, end = arrived
        if self._settled:
            readings = detection.read(self._dialects, data, start, end)
        elif version == 1:
            readings = detection.first(data, start, end, self._assume)
        else:
            readings = detection.read(detection.later(version, self._assume), data, start, end)
        if not readings:
            raise self._refuse(why, arrived=arrived)
        dialects, request = detection.decide(readings)
        if dialects != self._dialects:
            self._dialects, self._agreed = dialects, detection.agreed(dialects)
        self._settled = self._settled or version > 1 or isinstance(request.payload, Handshake)
        self.version = version
        self.framer.versions = (version,)
        return request

    def discard(self) -> None:
        """Drop undecoded data, and accept no more."""
        self._over = True
        self.framer.clear()

    # -- encoding

    def response(self, request_id: int, payload: Message) -> bytes:
        """A whole frame. An answer that the peer cannot understand, or that fits no frame, becomes an error."""
        best = self._dialects[0]
        if type(payload) not in best.known or isinstance(payload, ErrorResponse):
            payload = translate(payload, self._dialects)
        out = best.write_response(request_id, payload)
        if len(out) > MAX_PAYLOAD:
            text = f"the answer has {len(out)} bytes, and a frame {MAX_PAYLOAD} at most; ask for less at a time"
            out = best.write_response(request_id, ErrorResponse(ErrorCode.QUERY_EXECUTION_ERROR, text))
        return frame(out, self.version, self._checksum or crc32, self.framer.little)

    def push(self, payload: Message) -> bytes:
        """A whole frame. Only if `pushes`."""
        data = self._dialects[0].write_push(payload)
        return frame(data, self.version, self._checksum or crc32, self.framer.little)

    def _refuse(self, text: str, error: FrameError | None = None, arrived: Frame | None = None) -> Refused:
        """Accept no more input. The peer gets the reason if its dialect is known. Otherwise it gets none, as in the
        specification, unless its version is unsupported, since a newer client needs to know that."""
        if self._dialects:
            about = self._dialects[0].read_id(*arrived[2:]) if arrived is not None else 0
            reply = self.response(about, ErrorResponse(ErrorCode.INVALID_REQUEST, text))
        elif isinstance(error, BadVersion):
            text += f"; this server speaks {detection.VERSIONS[0]} to {detection.VERSIONS[-1]}"
            nearest = dialect(_NEWEST if error.version else _OLDEST)
            out = nearest.write_response(0, ErrorResponse(ErrorCode.INVALID_REQUEST, text))
            reply = frame(out, error.version, little=self.framer.little)
        else:
            reply = b""
        self.discard()
        return Refused(text, reply)


class ClientCodec:
    """The client's end of a connection, in a dialect of `dialects.NAMED`."""

    __slots__ = ("_checksum", "_dialect", "_framer", "_little")

    def __init__(self, name: str = _NEWEST, *, castagnoli: bool = False, little: bool = False) -> None:
        self._dialect = dialect(*NAMED[name])
        self._checksum = crc32c if castagnoli else crc32
        self._little = little
        self._framer = Framer((self.version,))

    @property
    def version(self) -> int:
        return self._dialect.version

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return self._framer.buffered

    def request(self, id: int, tenant: int, payload: Message, audit: AuditMetadata | None = None) -> bytes:  # noqa: A002
        """A whole frame. Raises ValueError for a request that this version does not have, or that fits no frame."""
        try:
            out = self._dialect.write_request(id, tenant, payload, audit)
        except KeyError:
            raise ValueError(f"version {self.version} of the protocol has no {type(payload).__name__}") from None
        if len(out) > MAX_PAYLOAD:
            raise ValueError(f"a request of {len(out)} bytes; the most is {MAX_PAYLOAD}")
        return frame(out, self.version, self._checksum, self._little)

    def feed(self, data: bytes) -> None:
        self._framer.feed(data)

    def next(self) -> Response | Push | None:
        """The next answer, or None if there is none yet. Raises MalformedPayload."""
        try:
            arrived = self._framer.next()
        except FrameError as error:
            raise MalformedPayload(str(error)) from None
        if arrived is None:
            return None
        _, checksum, data, start, end = arrived
        if self._checksum(memoryview(data)[start:end]) != checksum:
            raise MalformedPayload("the checksum of a frame is wrong")
        return self._dialect.read_answer(data, start, end)
