"""The QUIC state machine of one connection: qh3's, adapted. Datagrams in, datagrams out.

qh3 fixes the number of streams that a peer may open and the size of datagrams to a client, delivers everything that
arrives at once, and rejects clients that offer no application protocol or an unknown one. Changing that takes internals
of qh3; so its version is pinned, and no other module imports them. `tests/transport/quic/test_state_machine.py` fails
if they change.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from qh3 import tls
from qh3._hazmat import Buffer, QuicConnectionCore, UdpSocketState, X25519KeyExchange, pull_quic_header
from qh3.quic import events
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection
from qh3.quic.packet import (
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_transport_parameters,
    push_quic_transport_parameters,
)
from qh3.quic.tls_bridge import QuicTlsBridge, QuicTlsBridgeError

from penstock.transport.quic.burst import Burst, Event
from penstock.transport.quic.settings import QuicSettings

__all__ = ("Ending", "QuicStateMachine", "StreamRefused", "UdpSocketState", "client_machine", "long_header",
           "retry_packet", "server_configuration", "server_machine", "split", "version_negotiation")  # fmt: skip

logging.getLogger("quic").setLevel(logging.ERROR)  # it warns about every peer that closes

Address: TypeAlias = tuple[Any, ...]  # as the system returns it: host, port, …
CID_BYTES: Final = 8
LARGEST_DATAGRAM: Final = 65_527  # that we accept
PREFERRED_ALPN: Final = "felix"
VERSIONS: Final[tuple[int, ...]] = (QuicProtocolVersion.VERSION_1,)
FIXED_BIT: Final = 0x40  # of a packet's first byte
INITIAL: Final[int] = QuicPacketType.INITIAL
SIGNATURES: Final[tuple[int, ...]] = (  # that a client accepts; qh3 by default does not accept the last one
    tls.SignatureAlgorithm.ECDSA_SECP256R1_SHA256,
    tls.SignatureAlgorithm.RSA_PSS_RSAE_SHA256,
    tls.SignatureAlgorithm.ECDSA_SECP384R1_SHA384,
    tls.SignatureAlgorithm.RSA_PSS_RSAE_SHA384,
    tls.SignatureAlgorithm.RSA_PSS_RSAE_SHA512,
    tls.SignatureAlgorithm.RSA_PKCS1_SHA256,  # these only within chains
    tls.SignatureAlgorithm.RSA_PKCS1_SHA384,
    tls.SignatureAlgorithm.RSA_PKCS1_SHA512,
    tls.SignatureAlgorithm.ED25519,
)
ONE_RTT_CRYPTO_LIMIT: Final = 64 << 10  # handshake bytes after the handshake, where few are needed


class Ending(NamedTuple):
    """The code and reason with which a connection ended."""

    code: int
    reason: str


class StreamRefused(Exception):
    """The stream cannot be opened or used: there are too many, or it has ended."""


class Header(NamedTuple):
    """The long header of a packet, as at the start of a connection."""

    version: int
    kind: int
    destination: bytes
    source: bytes
    token: bytes


def long_header(datagram: bytes) -> Header | None:
    """The header, or None if it cannot be parsed."""
    try:
        version, kind, _, destination, source, token, *_ = pull_quic_header(datagram, 0, CID_BYTES)
    except ValueError:
        return None
    return None if version is None else Header(version, kind, destination, source, token)


def version_negotiation(header: Header) -> bytes:
    return encode_quic_version_negotiation(header.destination, header.source, list(VERSIONS))


def retry_packet(header: Header, source: bytes, token: bytes) -> bytes:
    return encode_quic_retry(header.version, source, header.source, header.destination, token)


def split(data: bytes, segment: int) -> list[bytes]:
    """The datagrams that the kernel has joined: all have `segment` bytes, but for the last, which may have fewer."""
    return [data[at : at + segment] for at in range(0, len(data), segment)]


class _Bridge(QuicTlsBridge):
    """TLS with our transport parameters, accepting any application protocol."""

    def __init__(self, configuration: _Configuration, **rest: Any) -> None:
        super().__init__(configuration, **rest)
        if not configuration.is_client:
            self._hello = self.tls._server_handle_hello
            self.tls._server_handle_hello = self._handle_hello  # type: ignore[assignment, method-assign]

    def serialize_transport_parameters(self) -> bytes:
        configuration = cast(_Configuration, self.configuration)
        parameters = pull_quic_transport_parameters(Buffer(data=super().serialize_transport_parameters()))
        parameters.initial_max_streams_bidi = parameters.initial_max_streams_uni = configuration.streams
        parameters.max_udp_payload_size = LARGEST_DATAGRAM
        parameters.google_connection_options = parameters.initial_rtt = None
        parameters.max_datagram_frame_size = None
        written = Buffer(capacity=1200)
        push_quic_transport_parameters(written, parameters)
        return written.data

    def _handle_hello(self, hello: Any, *outputs: Any) -> None:
        """Select the client's application protocol before the ClientHello is handled."""
        at = hello.tell()
        offered = tls.pull_client_hello(hello).alpn_protocols
        hello.seek(at)
        self.tls._alpn_protocols = None if not offered else [PREFERRED_ALPN, *offered]
        self._hello(hello, *outputs)


def seed_random_keys() -> None:
    """Generate a key and discard it. The first key of a thread takes 30 ms of CPU to gather entropy, which would stall
    the first client and all others."""
    X25519KeyExchange()


class _Configuration(QuicConfiguration):
    streams: int = 100


class QuicStateMachine(QuicConnection):
    """One connection. Received data is buffered, and holds back the peer, until `take_events` is called."""

    def __init__(self, configuration: _Configuration, reset_token: Callable[[bytes], bytes] | None = None, **rest: Any):
        super().__init__(configuration=configuration, **rest)
        self._reset_token = reset_token
        self._burst = Burst()
        self._crypto_bytes = 0
        self.ending: Ending | None = None
        self.refused_by_tls = False

    _native: QuicConnectionCore  # set from the first datagram on

    def begin(self, header: Header, address: Address, now: float) -> None:
        """Start a server's connection, before its first datagram, which has this header."""
        self._remote_addr = address
        self._version = header.version
        self._create_core(address, header.destination, now)
        self._create_tls(remote_source_cid=header.source)  # qh3 misses an empty one, which many clients have

    # -- called by the connection

    @property
    def established(self) -> bool:
        return self._handshake_complete

    @property
    def over(self) -> bool:
        """Whether the peer closed, timed out or violated the protocol. Also up to date while no events are taken."""
        return self._core is not None and self._core.state in ("draining", "terminated")

    @property
    def unsent(self) -> int:
        return 0 if self._core is None else self._native.get_send_buffer_size(None)

    @property
    def unacknowledged(self) -> int:
        return 0 if self._core is None else self._native.bytes_in_flight

    @property
    def quiet(self) -> bool:
        """Whether the peer has acknowledged everything and nothing is pending. A FIN without data does not count in
        `unsent`, so the timer is checked too: it is the pacing timer while something remains to be sent."""
        if self._core is None:
            return True
        timer = self._native.get_timer()
        return not self.unsent and not self.unacknowledged and (timer is None or timer[0] == "idle")

    @property
    def peer_idle_seconds(self) -> float:
        parameters = None if self._tls is None else self._tls.remote_transport_parameters
        return (parameters.max_idle_timeout or 0) / 1000 if parameters is not None else 0.0

    def stream_unsent(self, stream: int) -> int:
        return self._native.get_send_buffer_size(stream)

    def take_events(self, limit: int) -> Burst:
        """Events with about `limit` bytes at most. Taking them is what lets the peer send more."""
        burst, self._burst = self._burst, Burst()
        if self._core is not None:
            burst.fill(self._native.next_event, limit, self._apply)
        return burst

    def open(self, *, bidirectional: bool) -> int:
        return self._stream(self._native.open_stream, not bidirectional)

    def send(self, stream: int, data: bytes, end: bool) -> None:
        try:
            self._native.send_stream(stream, data, end)
        except (ValueError, RuntimeError) as error:
            raise StreamRefused(str(error)) from None

    def reset(self, stream: int, code: int) -> None:
        self._stream(self._native.reset_stream, stream, code)

    def refuse(self, stream: int, code: int) -> None:
        self._stream(self._native.stop_sending, stream, code)

    def ping(self) -> None:
        if self._core is not None:
            self._native.send_ping(0)

    def datagrams(self, now: float, limit: int) -> list[tuple[bytes, Address]]:
        """Up to `limit` datagrams to send."""
        if self._core is None:
            return []
        found: list[tuple[bytes, Address]] = []
        poll = self._native.poll_transmit
        while len(found) < limit:
            try:
                transmit = poll(now)
            except RuntimeError:
                if self._handshake_complete or self._is_client:
                    raise
                break  # qh3's way of saying that it must not send more until the client's address is validated
            if transmit is None:
                break
            found.append((transmit[0], transmit[1]))
        return found

    # -- qh3's behaviour, changed

    def receive_datagram(self, data: bytes, addr: Address, now: float) -> None:
        """A server may send three times the bytes it received until the client's address is validated. qh3 does not
        count padding behind a packet, which leaves it too little for the handshake with clients that pad there."""
        if self._is_client or self._handshake_complete:
            super().receive_datagram(data, addr, now)
            return
        at = 0
        while at < len(data):
            end = _packet_end(data, at)
            packet = data[at:end]
            _, _, accepted, *_ = self._native.receive_datagram(packet, addr, now, len(data))
            if accepted:
                self._learn_remote_source_cid(packet)
            self._drain_core()  # a later packet may need the keys that this one provides
            at = end

    def receive_many_datagrams(self, datagrams: list[bytes], addr: Address, now: float) -> None:
        if self._handshake_complete:
            self._native.receive_many_datagrams(datagrams, addr, now)  # qh3 offers each datagram to its log before
        else:
            super().receive_many_datagrams(datagrams, addr, now)

    def receive_joined_datagrams(self, data: bytes, segment: int, addr: Address, now: float) -> None:
        """Datagrams one after the other; all have `segment` bytes, but for the last, which may have fewer."""
        if self._handshake_complete:
            self._native.receive_gro_buffer(data, segment, addr, now)
        else:
            self.receive_many_datagrams(split(data, segment), addr, now)

    def _create_core(self, remote_addr: Address, initial_dcid: bytes, now: float) -> None:
        configuration = cast(_Configuration, self._configuration)
        assert self._version is not None
        self._core = self._native = QuicConnectionCore(
            self._is_client,
            self._version,
            ("0.0.0.0", 0),
            remote_addr,
            self.host_cid,
            initial_dcid,
            self._is_client or self._retry_source_connection_id is not None,
            2 if self._is_client else 8,  # connection ids, as in the transport parameters
            configuration.max_datagram_size,
            configuration.probe_datagram_size,
            configuration.idle_timeout,
            3,  # acknowledgement delay exponent
            None,  # no datagram frames
            None,
            configuration.max_data,
            0,  # the peer's limits are not known yet
            configuration.max_stream_data,
            0,
            0,
            0,
            configuration.max_stream_data,
            configuration.streams,
            configuration.streams,
            0,
            0,
            configuration.initial_rtt,
            0.025,  # maximum acknowledgement delay
            now,
        )
        self._applied_transport_parameters = None
        self._pre_handshake_state_replayed = False

    def _create_tls(self, remote_source_cid: bytes | None) -> QuicTlsBridge:
        self._tls = _Bridge(
            cast(_Configuration, self._configuration),
            version=self._version,
            local_initial_source_connection_id=self.host_cid,
            remote_initial_source_connection_id=remote_source_cid,
            original_destination_connection_id=self._original_destination_connection_id,
            retry_source_connection_id=self._retry_source_connection_id,
            stateless_reset_token=None if self._reset_token is None else self._reset_token(self.host_cid),
            version_change_handler=self._set_version,
        )
        return self._tls

    def _drain_core(self) -> None:
        """Called by qh3 after everything. Handshake events are handled at once; all others wait for `take_events`."""
        while not self._handshake_complete:
            event = self._native.next_event()
            if event is None:
                return
            self._burst.add(event, self._apply)

    # -- internal

    def _apply(self, event: Event, burst: Burst) -> None:
        """Handle an event that is not about streams."""
        kind = event[0]
        if kind == "crypto_data":
            self._handshake(event)
        elif kind == "connection_id_issued":
            burst.issued.append(event[1])
        elif kind == "connection_id_retired":
            burst.retired.append(event[1])
        elif kind == "handshake_done":
            self._handshake_confirmed = True
            self._native.handshake_confirmed()
        elif kind == "peer_closed":
            self._ended(event[2], event[4])
        elif kind in ("protocol_error", "connection_terminated"):
            self._ended(event[1], event[3])

    def _ended(self, code: int, reason: bytes | str) -> None:
        if self.ending is None:
            self.ending = Ending(code, reason if isinstance(reason, str) else reason.decode("utf-8", "replace"))

    def _handshake(self, event: tuple[Any, ...]) -> None:
        _, epoch, offset, data = event
        try:
            if self._handshake_complete:
                self._crypto_bytes += len(data)
                if self._crypto_bytes > ONE_RTT_CRYPTO_LIMIT:
                    raise QuicTlsBridgeError(0x0D, "too much handshake data")
            assert self._tls is not None
            self._tls.receive_crypto(tls.Epoch(epoch), data, offset, version=self._native.version)
            self._drain_tls()
            self._events.clear()
        except QuicTlsBridgeError as error:
            self.refused_by_tls = True
            self._ended(error.error_code, error.reason_phrase)
            self._native.close(error.error_code, int(error.frame_type), error.reason_phrase.encode()[:256])
            self._close_event = events.ConnectionTerminated(error.error_code, error.frame_type, error.reason_phrase)

    def _stream(self, operation: Callable[..., Any], *arguments: object) -> int:
        try:
            return cast(int, operation(*arguments))
        except (ValueError, RuntimeError) as error:
            raise StreamRefused(str(error)) from None


def _configuration(settings: QuicSettings, datagram: int, *, is_client: bool) -> _Configuration:
    made = _Configuration(
        is_client=is_client,
        idle_timeout=settings.idle_seconds,
        max_data=settings.connection_window,
        max_stream_data=settings.stream_window,
        max_datagram_size=datagram,
        probe_datagram_size=is_client and not settings.datagram_bytes and datagram <= 1472,
        connection_id_length=CID_BYTES,
        supported_versions=list(VERSIONS),
        initial_rtt=0.1,
    )
    made.streams = settings.streams
    return made


def server_configuration(settings: QuicSettings, datagram: int, certificate: bytes, key: bytes) -> _Configuration:
    """The configuration shared by connections with datagrams of this size. Certificate and key are PEM."""
    made = _configuration(settings, datagram, is_client=False)
    made.load_cert_chain(certificate, key)
    return made


def _packet_end(data: bytes, at: int) -> int:
    """The end of the packet at `at`, including padding behind it."""
    try:
        end = pull_quic_header(data, at, CID_BYTES)[9]
    except ValueError:
        return len(data)
    return end if at < end < len(data) and data[end] & FIXED_BIT else len(data)


def server_machine(
    configuration: _Configuration, original: bytes, retried: bytes | None, reset_token: Callable[[bytes], bytes]
) -> QuicStateMachine:
    """A server's state machine. `original` is the destination id that the client first chose, `retried` the one that a
    Retry assigned."""
    return QuicStateMachine(
        configuration, reset_token, original_destination_connection_id=original, retry_source_connection_id=retried
    )


def client_machine(settings: QuicSettings, datagram: int, name: str) -> QuicStateMachine:
    made = _configuration(settings, datagram, is_client=True)
    made.alpn_protocols = list(settings.alpn) or None
    made.server_name = name
    made.signature_algorithms = list(SIGNATURES)
    if settings.fingerprint or not settings.verify:
        made.verify_mode = ssl.CERT_NONE
        made.assert_fingerprint = settings.fingerprint or None
    elif settings.ca_file:
        made.load_verify_locations(cafile=settings.ca_file)
    return QuicStateMachine(made)
