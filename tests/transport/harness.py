"""A listener in this process with a session made for tests behind it, on either event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from penstock.broker.broker import Broker
from penstock.broker.runtime.scheduler import INLINE, Scheduler
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.session import Channel, Door
from penstock.log.committer import InlineCommitter
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.transport.connection_limits import ConnectionLimits, ConnectionTracker, KeepAlive
from penstock.transport.endpoint import Endpoint
from penstock.transport.port import Port
from penstock.transport.tcp_listener import BindAddress, Listener

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}

HELLO = b"\x00\x00\x00\x05{"  # first bytes that go to the rustlog door


def run(loop: str, scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scene(), 20)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


class EchoSession:
    """Sends back what it gets. Certain bytes make it misbehave, or do what a session may do."""

    def __init__(self, stage: Stage, channel: Channel) -> None:
        self.stage = stage
        self.channel = channel
        self.received = b""
        self.held = 0
        self.long_lived = stage.long_lived
        self.events: list[str] = []

    def receive(self, data: bytes) -> None:
        self.received += data
        if b"RAISE" in data:
            raise RuntimeError("planted")
        if b"HOLD" in data:
            self.held = 1 << 27
        if b"FLOOD" in data:
            self.channel.send(bytes(64 << 20))
        if b"BYE" in data:
            self.channel.send(b"bye")
            self.channel.close()
        elif self.stage.echo:
            self.channel.send(data)

    def end_of_input(self) -> None:
        self.events.append("end")
        self.channel.send(b"END")
        self.channel.close()

    def stop(self) -> None:
        self.events.append("stop")
        if b"STAY" not in self.received:
            self.channel.send(b"STOPPED")
            self.channel.close()

    def lost(self) -> None:
        self.events.append("lost")

    yielding = False
    awaiting_commit = False

    def describe_work(self) -> dict[str, str]:
        return {"door": "echo", "peer": self.channel.peer, "request": "echo"}

    @property
    def held_bytes(self) -> int:
        return self.held

    def release(self) -> None:
        self.held = 0
        self.channel.progress()


@dataclass
class Stage:
    """The objects that a scene can inspect."""

    address: tuple[str, int] = ("", 0)
    tracker: ConnectionTracker = None  # type: ignore[assignment]
    broker: Broker = None  # type: ignore[assignment]
    sessions: list[EchoSession] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    clients: list[asyncio.StreamWriter] = field(default_factory=list)
    echo: bool = True
    long_lived: bool = False  # what its sessions say of themselves
    identity: Identity = ANONYMOUS  # whom the next client should be taken for

    async def connect(self, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if tls else None
        reader, writer = await asyncio.open_connection(*self.address, ssl=tls, server_hostname=name)
        self.clients.append(writer)
        return reader, writer

    def raw(self) -> socket.socket:
        return socket.create_connection(self.address)

    def door(self, name: str) -> Door:
        def make(broker: Broker, channel: Channel, identity: Identity) -> EchoSession:
            assert broker is self.broker and identity == self.identity._replace(peer=channel.peer)
            self.opened.append(name)
            self.sessions.append(EchoSession(self, channel))
            return self.sessions[-1]

        return Door(name, make, 1 << 16)


def broker_in(path: Path, scheduler: Scheduler = INLINE) -> Broker:
    engine = FileEngine(
        OsFiles(str(path)), LogSettings(file_bytes=1 << 20), committer=InlineCommitter(), clock=lambda: 1
    )
    return Broker(engine, scheduler=scheduler)


@asynccontextmanager
async def stage(path: Path, **changes: Any) -> AsyncIterator[Stage]:
    limits = {"connections": 100, "connection_bytes": 1 << 20, "total_bytes": 1 << 28, "idle_seconds": 60.0,
              "handshake_seconds": 10.0, "keepalive": KeepAlive()}  # fmt: skip
    limits |= {key: changes.pop(key) for key in list(changes) if key in limits}
    doors = changes.pop("doors", ("rustlog", "http"))
    one = Stage()
    one.broker = broker_in(path, asyncio.get_running_loop())
    one.tracker = ConnectionTracker(ConnectionLimits(**limits), one.broker.metrics, asyncio.get_running_loop())  # type: ignore[arg-type]
    place = BindAddress(Endpoint("127.0.0.1", 0), ("rustlog",))
    listener = Listener(place)
    host, _, port = str(listener.endpoint).rpartition(":")
    one.address = (host, int(port))
    served = {name: one.door(name) for name in doors}
    await listener.start(
        Port(protocol="rustlog", doors=served, broker=one.broker, identity=ANONYMOUS, tracker=one.tracker, **changes)
    )
    try:
        yield one
    finally:
        for client in one.clients:
            with contextlib.suppress(AttributeError):  # asyncio's way to say that it is closed already
                client.transport.abort()
            with contextlib.suppress(OSError):
                await client.wait_closed()
        listener.close()
        await one.tracker.drain(0.5)
        one.tracker.close()
        one.broker.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that the event loop is about to make true; `run` bounds how long."""
    while not condition():  # noqa: ASYNC110 - the conditions are those of the code under test, which has no events
        await asyncio.sleep(0.005)
