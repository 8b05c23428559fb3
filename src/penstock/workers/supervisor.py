"""Worker processes of the broker: work that would hold up the event loop, each in a process of its own.

A child is started with one argument, the descriptor of its line to the broker (see `rpc`), asks there for its settings,
says when it is ready, and ends when the line does: also when the broker is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from penstock.workers.rpc import Handler, RpcClient, RpcServer, typed

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5  # seconds before a child that ended is started again; doubled each time
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0  # seconds after which a child counts as healthy
PATIENCE: Final = 5.0  # seconds that a child gets to end by itself


class Nothing(msgspec.Struct):
    """A request or an answer that says nothing."""


class Settings(msgspec.Struct):
    """What a child is to do, as it was given to `WorkerProcess`."""

    body: bytes


class Ready(msgspec.Struct):
    """A child is ready; `told` is what it wants known, such as the port it listens on."""

    told: str = ""


def settings_of(client: RpcClient, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """For a child: its settings."""
    return msgspec.msgpack.decode(client.call("child.settings", Nothing(), Settings).body, type=kind)


def first_to_go() -> None:
    """For a child: if memory runs out, the system should end it and not the broker, which starts it again."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


class WorkerProcess:
    """One child process, started again when it ends. Used on the event loop."""

    def __init__(
        self,
        name: str,
        module: str,
        handlers: Mapping[str, Handler],
        settings: msgspec.Struct,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """`on_end` is called each time that the process has ended."""
        self.name = name
        self.told = ""  # by the child that runs, when it was ready
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0
        self._module = module
        self._on_end = on_end
        self._settings = Settings(msgspec.msgpack.encode(settings))
        self._handlers = {
            **handlers,
            "child.settings": typed(Nothing, self._tell_settings),
            "child.ready": typed(Ready, self._hear_ready),
        }
        self._ready = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._killed = False  # by `kill`

    def start(self) -> None:
        """Start it, and keep it running; again is fine."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"child {self.name}")

    async def ready(self, seconds: float) -> bool:
        """Wait until the child is ready; False if it is not within this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)
        return self._ready.is_set()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def stop(self) -> None:
        if self._keeper is None:
            return
        self._keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeper
        self._keeper = None

    def kill(self) -> None:
        """End the process at once; another one takes its place, without a pause, for it was no fault of the process."""
        if self.process is not None:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._run()
            except OSError as error:
                logger.warning("the %s process cannot be started: %s", self.name, error)
            if self._killed:
                self._killed = False
                continue
            if time.monotonic() - began > STEADY:
                pause = FIRST_PAUSE
            logger.warning("the %s process ended; it is started again in %g s", self.name, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run(self) -> None:
        """Start the child and wait for its end; end it when cancelled."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            gone = asyncio.Event()
            self._transport, _ = await loop.create_connection(lambda: RpcServer(self._handlers, gone.set), sock=ours)
            descriptor = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module, str(descriptor)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(descriptor,),
                start_new_session=True,  # a Ctrl-C is for the broker, which ends its children in order
            )
        finally:
            theirs.close()
        self.process = process
        self.starts += 1
        try:
            await process.wait()
        finally:
            self._ready.clear()
            self._transport.close()
            await self._end(process)
            self.process = None
            if self._on_end is not None:
                self._on_end()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Its line is closed, so it ends by itself; if not, it is killed: children are built for that."""
        if process.returncode is not None:
            return
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _tell_settings(self, _: Nothing) -> Settings:
        return self._settings

    async def _hear_ready(self, ready: Ready) -> Nothing:
        self.told = ready.told
        self._ready.set()
        return Nothing()
