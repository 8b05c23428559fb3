"""A bare Felix connection for tests: frames of a subscription as they come, and how its event stream ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver
from penstock.transport.quic.settings import QuicSettings
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import decode_events
from penstock.wire.felix.frames import KNOWN, Frame, Framer

SECONDS = 30.0


class Inbox:
    """The reader of one stream: all its frames, and its end."""

    def __init__(self, news: asyncio.Event) -> None:
        self._frames = Framer(16 << 20)
        self._news = news
        self.frames: list[Frame] = []
        self.ended = False
        self.reset_code: int | None = None

    def received(self, data: bytes, end: bool) -> None:
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            self.frames.append(frame)
        self.ended = end
        self._news.set()

    def reset(self, code: int) -> None:
        self.reset_code = code
        self._news.set()

    def refused(self, code: int) -> None: ...

    def drained(self) -> None: ...

    @property
    def over(self) -> bool:
        return self.ended or self.reset_code is not None

    @property
    def batches(self) -> list[tuple[int, int | None, list[bytes]]]:
        """Flags, offset and payloads of each frame with events: of all frames behind the hello."""
        found = []
        for flags, payload in self.frames[1:]:
            events = decode_events(flags, payload)
            found.append((flags, events.base_offset, events.payloads))
        return found

    @property
    def events(self) -> list[tuple[int, bytes]]:
        """Each with its offset."""
        return [
            pair for _, offset, payloads in self.batches if offset is not None for pair in enumerate(payloads, offset)
        ]


@dataclass
class Wire:
    """The owner of a link."""

    link: QuicConnection = field(init=False)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    inboxes: list[Inbox] = field(default_factory=list)  # of the streams that the server opened
    over: bool = False

    def connected(self, link: QuicConnection) -> None:
        self.link = link

    def accepted(self, stream: Stream) -> StreamReceiver:  # noqa: ARG002
        self.inboxes.append(Inbox(self.news))
        return self.inboxes[-1]

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.over = True
        self.news.set()

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait for something to be so."""
        async with asyncio.timeout(SECONDS):
            while not true():
                assert not self.over, "the connection is over"
                self.news.clear()
                await self.news.wait()

    async def subscribe(self, stream: str, start: m.Start | None = None, tenant: str = "default") -> Inbox:
        """The event stream of a new subscription, as soon as there is one."""
        count, replies = len(self.inboxes), Inbox(self.news)
        control = self.link.open(replies, bidirectional=True)
        control.send(m.encode(m.Auth(tenant_id=tenant, token="", client_flags=KNOWN)))
        control.send(m.encode(m.Subscribe(tenant_id=tenant, namespace="default", stream=stream, start=start)))
        await self.until(lambda: len(replies.frames) == 2)
        assert isinstance(m.decode_reply(replies.frames[1].payload), m.Subscribed), replies.frames
        await self.until(lambda: len(self.inboxes) > count and self.inboxes[-1].frames)
        return self.inboxes[-1]


@asynccontextmanager
async def wired(place: tuple[str, int], **settings: Any) -> AsyncIterator[Wire]:
    wire = Wire()
    await connect(*place, QuicSettings(verify=False, **settings), wire)
    try:
        yield wire
    finally:
        wire.link.close()
        await asyncio.sleep(0)
