"""A proxy between client and server on which replies get lost, are late, or are damaged."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from enum import Enum, auto

from tests.clients.scripted_server import Peer, ScriptedServer

from penstock.wire.flymq.codec import requests
from penstock.wire.flymq.frames import Framer, content, frame
from penstock.wire.flymq.messages import Request
from penstock.wire.flymq.opcodes import Op


class Fault(Enum):
    """The treatment of one reply."""

    NONE = auto()
    DROP = auto()  # the connection is closed instead
    HALF = auto()  # half of it is sent, then the connection is closed
    SILENCE = auto()  # it is never sent, and nothing behind it
    CLOSE_AFTER = auto()  # it is sent, then the connection is closed
    JUNK = auto()  # a payload that cannot be read is sent instead
    WRONG = auto()  # a reply of another kind is sent instead
    BAD_MAGIC = auto()  # a header that no frame has is sent instead
    TWICE = auto()  # it is sent twice
    AND_MORE = auto()  # it is sent, and with it the beginning of another
    BYTEWISE = auto()  # every byte of it is sent by itself


class FaultyProxy(ScriptedServer[Peer]):
    """A proxy to a server, on which replies meet faults. Connections are refused outside `with`."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._target = port
        self.faults: deque[Fault] = deque()  # one for each reply to come; none when empty
        self.requests: list[Request] = []  # all that were sent
        self.hold = 1  # replies are sent when so many have gathered
        self.delay = 0.0  # seconds before each reply

    @property
    def opcodes(self) -> list[Op]:
        return [requests.OPCODES[type(request)] for request in self.requests]

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = Peer(writer)
        self.peers.add(peer)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            both = [
                asyncio.ensure_future(self._forward_requests(reader, server_writer)),
                asyncio.ensure_future(self._forward_replies(server_reader, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            for end in (writer, server_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
            self.peers.discard(peer)

    async def _forward_requests(self, reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter) -> None:
        framer = Framer()
        while data := await reader.read(65536):
            self.requests += [requests.decode(one.opcode, content(one)) for one in framer.feed(data)]
            server_writer.write(data)
            await server_writer.drain()

    async def _forward_replies(self, server_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framer = Framer(stray=False)
        held: list[bytes] = []
        while data := await server_reader.read(65536):
            for one in framer.feed(data):
                fault = self.faults.popleft() if self.faults else Fault.NONE
                await asyncio.sleep(self.delay)
                if fault is Fault.SILENCE:
                    await asyncio.Event().wait()
                held += self._pieces(frame(one.opcode, one.payload), fault)
                if len(held) >= self.hold:
                    for piece in [b"".join(held)] if self.hold > 1 else held:
                        writer.write(piece)
                        await writer.drain()
                    held.clear()
                if fault in (Fault.DROP, Fault.HALF, Fault.CLOSE_AFTER):
                    return

    @staticmethod
    def _pieces(reply: bytes, fault: Fault) -> list[bytes]:
        """One reply as the fault has it."""
        if fault is Fault.BYTEWISE:
            return [bytes([byte]) for byte in reply]
        sent = {
            Fault.DROP: b"",
            Fault.HALF: reply[: len(reply) // 2],
            Fault.JUNK: frame(reply[2], b"\xff"),
            Fault.WRONG: frame(Op.LIST_TOPICS if reply[2] != Op.LIST_TOPICS else Op.WHOAMI, bytes(12)),
            Fault.BAD_MAGIC: b"HTTP/1.1 400 Bad Request\r\n",
            Fault.TWICE: reply * 2,
            Fault.AND_MORE: reply + reply[:3],
        }
        return [sent.get(fault, reply)]
