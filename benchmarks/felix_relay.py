"""What the QUIC library does without a broker: a relay that hands on bytes to every subscriber and answers requests
with prepared frames. The same socket code and settings as the broker's, nothing above them."""

from __future__ import annotations

import asyncio
import datetime
import socket
import sys

import uvloop

from penstock.quic.certificate import Certificate, kept
from penstock.quic.link import Link, Reader, Stream
from penstock.quic.server import QuicServer
from penstock.quic.settings import QuicSettings

HELLO = bytes.fromhex("464c5831000100000000000c") + b"x" * 12  # any frame


class Relay:
    """Streams whose first byte is `s` are subscribers', those with `p` publishers', those with `q` ask. A publisher's
    next bytes say how long a frame is, so that each is acknowledged if its first byte was `P`."""

    def __init__(self) -> None:
        self.followers: list[Stream] = []
        self.publishers: list[Link] = []

    def owner(self, link: Link) -> Peer:
        return Peer(self, link)

    def congested(self) -> bool:
        return any(stream.congested for stream in self.followers)

    def relieved(self) -> None:
        if not self.congested():
            for link in self.publishers:
                link.resume()


class Peer:
    def __init__(self, relay: Relay, link: Link) -> None:
        self.relay = relay
        self.link = link

    def connected(self, link: Link) -> None: ...

    def accepted(self, stream: Stream) -> Reader:
        return Talk(self, stream)

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.relay.followers = [stream for stream in self.relay.followers if stream._link is not self.link]
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


async def main(port: int, directory: str) -> None:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", port))
    certificate: Certificate = kept(directory, datetime.datetime.now(datetime.UTC))
    QuicServer(own, QuicSettings(), certificate, Relay().owner, asyncio.get_running_loop())
    print("ready", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
