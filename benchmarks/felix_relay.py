"""What QUIC does on this machine without a broker: relays that hand on bytes to every subscriber and answer requests
with prepared frames. One is on the broker's own socket code and settings (`own`), the other on the server that comes
with the library (`library`), with datagrams of the same size; nothing is above them."""

from __future__ import annotations

import asyncio
import datetime
import socket
import sys
from typing import Any

import uvloop

from penstock.transport.quic.certificate import Certificate, kept, paths
from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver
from penstock.transport.quic.server import QuicServer
from penstock.transport.quic.settings import LOOPBACK_DATAGRAM, QuicSettings

HELLO = bytes.fromhex("464c5831000100000000000c") + b"x" * 12  # any frame


class Relay:
    """Streams whose first byte is `s` are subscribers', those with `p` publishers', those with `q` ask. A publisher's
    next bytes say how long a frame is, so that each is acknowledged if its first byte was `P`."""

    def __init__(self) -> None:
        self.followers: list[Stream] = []
        self.publishers: list[QuicConnection] = []

    def owner(self, link: QuicConnection) -> Peer:
        return Peer(self, link)

    def congested(self) -> bool:
        return any(stream.congested for stream in self.followers)

    def relieved(self) -> None:
        if not self.congested():
            for link in self.publishers:
                link.resume()


class Peer:
    def __init__(self, relay: Relay, link: QuicConnection) -> None:
        self.relay = relay
        self.link = link

    def connected(self, link: QuicConnection) -> None: ...

    def accepted(self, stream: Stream) -> StreamReceiver:
        return Talk(self, stream)

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.relay.followers = [stream for stream in self.relay.followers if stream._connection is not self.link]
        self.relay.publishers = [link for link in self.relay.publishers if link is not self.link]


class Talk:
    def __init__(self, peer: Peer, stream: Stream | None) -> None:
        self.peer = peer
        self.stream = stream
        self.kind = ""
        self.size = 0  # of a frame
        self.had = 0

    def received(self, data: bytes, end: bool) -> None:  # noqa: ARG002
        assert self.stream is not None
        if not self.kind:
            self.kind = chr(data[0])
            self.size = int.from_bytes(data[1:5])
            self._begin()
            data = data[5:]
            if not data:
                return
        if self.kind in "pP":
            for stream in self.peer.relay.followers:
                stream.send(data)
            if self.peer.relay.congested():
                self.peer.link.pause()
        self.had += len(data)
        count, self.had = divmod(self.had, self.size)
        if count and self.kind in "Pq":
            self.stream.send(HELLO * count)

    def _begin(self) -> None:
        assert self.stream is not None
        self.stream.send(HELLO)
        if self.kind == "s":
            follower = self.peer.link.open(Talk(self.peer, None), bidirectional=False)
            follower.send(HELLO)
            self.peer.relay.followers.append(follower)
            self.stream.send(HELLO)
        elif self.kind in "pP":
            self.peer.relay.publishers.append(self.peer.link)

    def reset(self, code: int) -> None: ...

    def refused(self, code: int) -> None: ...

    def drained(self) -> None:
        self.peer.relay.relieved()


async def library(port: int, directory: str) -> None:
    """The library's own server, which holds nobody back: what a subscriber has not taken yet is in its memory."""
    from qh3.asyncio.protocol import QuicConnectionProtocol
    from qh3.asyncio.server import serve
    from qh3.quic.configuration import QuicConfiguration
    from qh3.quic.events import ConnectionTerminated, StreamDataReceived

    followers: list[tuple[QuicConnectionProtocol, int]] = []

    class Plain(QuicConnectionProtocol):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.talks: dict[int, list[int]] = {}  # stream → kind, bytes of a frame, bytes of one that is not whole

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, ConnectionTerminated):
                followers[:] = [one for one in followers if one[0] is not self]
            elif isinstance(event, StreamDataReceived) and event.data:
                self.take(event.stream_id, event.data)

        def take(self, stream: int, data: bytes) -> None:
            quic = self._quic
            talk = self.talks.get(stream)
            if talk is None:
                talk = self.talks[stream] = [data[0], int.from_bytes(data[1:5]), 0]
                data = data[5:]
                quic.send_stream_data(stream, HELLO)
                if talk[0] == ord("s"):
                    own = quic.get_next_available_stream_id(is_unidirectional=True)
                    quic.send_stream_data(own, HELLO)
                    quic.send_stream_data(stream, HELLO)
                    followers.append((self, own))
            if data and talk[0] in b"pP":
                for peer, own in followers:
                    peer._quic.send_stream_data(own, data)
                    peer._transmit_soon()
            talk[2] += len(data)
            count, talk[2] = divmod(talk[2], talk[1])
            if count and talk[0] in b"Pq":
                quic.send_stream_data(stream, HELLO * count)

    kept(directory, datetime.datetime.now(datetime.UTC))
    configuration = QuicConfiguration(is_client=False, max_datagram_size=LOOPBACK_DATAGRAM, probe_datagram_size=False)
    configuration.load_cert_chain(*paths(directory))
    await serve("127.0.0.1", port, configuration=configuration, create_protocol=Plain)


async def own(port: int, directory: str) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", port))
    certificate: Certificate = kept(directory, datetime.datetime.now(datetime.UTC))
    QuicServer(taken, QuicSettings(), certificate, Relay().owner, asyncio.get_running_loop())


async def main(kind: str, port: int, directory: str) -> None:
    await {"own": own, "library": library}[kind](port, directory)
    print("ready", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
