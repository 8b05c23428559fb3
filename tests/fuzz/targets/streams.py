"""Felix' sessions: a connection with several streams, which the script opens, ends and resets as it likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.doors.felix.peer import Peer, Stream, frame, frames
from tests.fuzz.targets import felix as felix_streams
from tests.fuzz.targets import talks
from tests.fuzz.targets.conversation import ACTIONS, SECURED, ScriptedBroker, furnished, no_errors_logged
from tests.fuzz.targets.target import Script, Target, script, scripts

from penstock.doors.felix.request_context import FelixSettings

MENDED: Final = 1
GREETED: Final = 4
SLOW: Final = ("keep", "drop_new", "drop_old")  # by the upper bits of the mode
MAX_STREAMS: Final = 4


class Connection:
    """One connection, and the stream that pieces go to."""

    def __init__(self, fixture: ScriptedBroker, slow: str) -> None:
        self.fixture = fixture
        self.peer = Peer(fixture, FelixSettings(slow=slow, queue_events=4, batch_events=2), streams=3)
        self.current = self.peer.stream()
        self.gone: set[int] = set()

    @property
    def line(self) -> Any:
        return self.peer.line

    def receive(self, data: bytes) -> None:
        if data and self._usable(self.current):
            self.current.send_all(data)

    def _usable(self, stream: Stream) -> bool:
        return not (self.line.dead or stream.closed or stream.left or id(stream) in self.gone) and (
            stream.reset_with is None
        )

    def act(self, action: int) -> None:
        (STREAM_ACTIONS[action - len(ACTIONS)] if action >= len(ACTIONS) else ACTIONS[action])(self)

    # -- what ACTIONS does with a connection

    def congest(self) -> None:
        for stream in (self.current, *self.line.opened):
            stream.limit = -1

    def drain(self) -> None:
        for stream in self._all():
            if stream.limit is not None:
                stream.limit = None
                if self._usable(stream):
                    stream.session.receive(b"")

    def end(self) -> None:
        self._end(self.current)

    def _end(self, stream: Stream) -> None:
        if self._usable(stream) and stream in self.line.streams and not getattr(stream, "said_all", False):
            stream.said_all = True  # type: ignore[attr-defined]
            stream.end()

    def stop(self) -> None:
        if not self.line.dead:
            self.peer.host.stop()
            for stream in self._all():
                if self._usable(stream):
                    stream.session.stop()

    def lose(self) -> None:
        if not self.line.dead:
            self.line.lose()

    # -- and what it can do besides

    def open(self, *, uni: bool) -> None:
        if not self.line.dead and len(self.line.streams) < MAX_STREAMS:
            self.current = self.peer.stream(uni=uni)

    def switch(self) -> None:
        streams = self.line.streams
        self.current = streams[(streams.index(self.current) + 1) % len(streams)]

    def reset(self) -> None:
        if self._usable(self.current):
            self.gone.add(id(self.current))
            self.current.session.lost()

    def refuse(self) -> None:
        """The client wants nothing more of what the broker sends on its newest stream, or here."""
        stream = self.line.opened[-1] if self.line.opened else self.current
        if self._usable(stream) and not stream.uni:
            stream.session.refused(7)

    def _all(self) -> list[Stream]:
        return [*self.line.streams, *self.line.opened]

    def finish(self) -> None:
        fixture = self.fixture
        fixture.free()
        self.drain()
        for stream in list(self.line.streams):
            self._end(stream)
        fixture.settle(
            lambda: self.line.dead or not any(map(self._usable, self.line.streams)),
            lambda: [(len(stream.sent), stream.session.held_bytes) for stream in self._all()],
        )
        assert self.line.dead or not any(map(self._usable, self.line.streams)), (
            "a stream is not closed, although everything was answered"
        )
        for stream in self.line.streams:
            assert stream.session.held_bytes == 0, f"{stream.session.held_bytes} bytes are held"
        self.lose()
        fixture.run_all()
        fixture.commit()
        for stream in self._all():
            assert stream.session.held_bytes == 0, f"{stream.session.held_bytes} bytes are held at the end"


STREAM_ACTIONS: Final[Sequence[Callable[[Connection], None]]] = (
    lambda connection: connection.open(uni=False),
    lambda connection: connection.open(uni=True),
    Connection.switch,
    Connection.reset,
    Connection.refuse,
)


def felix(data: bytes) -> None:
    run = script(data)
    stream = felix_streams.mended(run.stream) if run.mode & MENDED else run.stream
    fixture = ScriptedBroker(secured=bool(run.mode & SECURED))
    with no_errors_logged() as complaints:
        connection = Connection(fixture, SLOW[(run.mode >> 4) % len(SLOW)])
        if run.mode & GREETED:
            connection.receive(frame({"type": "auth", "tenant_id": "t1", "token": furnished().keys["t1"]}))
            fixture.run_all()
            fixture.commit()
        for piece, action in Script(stream, run.steps).pieces():
            connection.receive(piece)
            connection.act(action)
        connection.finish()
        assert fixture.watched == 0, "somebody waits for records on behalf of a connection that is gone"
        if fixture.faulty:
            complaints.records.clear()
    for each in connection._all():
        frames(b"".join(each.sent))


def _corpus() -> list[bytes]:
    streams = [*talks.felix(), *felix_streams.streams()]
    steps = bytes(size << 5 | action for size, action in ((7, 0), (6, 21), (7, 29), (6, 28), (6, 12), (6, 13), (7, 31)))
    return [
        *scripts(streams, (MENDED, 0, MENDED | SECURED, MENDED | SECURED | GREETED)),
        *[Script(stream, steps, MENDED).encode() for stream in talks.felix()],
    ]


TARGETS: Final = (Target("streams.felix", felix, _corpus, quick=500),)
