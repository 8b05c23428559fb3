"""Supervision of the worker processes: work that would block the event loop, each kind in its own process.

A worker is started with one argument, the descriptor of its socket to the broker (see `rpc`). It requests its settings
there, reports when it is ready, and exits when the socket is closed, also if the broker is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from penstock.retry import RestartBackoff
from penstock.typed_decoding import decode_msgpack
from penstock.workers.rpc import Handler, RpcClient, RpcServer, typed

logger = logging.getLogger(__name__)

FIRST_RESTART_DELAY: Final = 0.5  # seconds before a worker that exited is restarted; doubles each time
LONGEST_RESTART_DELAY: Final = 30.0
HEALTHY_SECONDS: Final = 60.0  # after which the restart delay is reset
STOP_SECONDS: Final = 5.0  # for a worker to exit by itself

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


class Empty(msgspec.Struct):
    """A request or a reply without fields."""


class WorkerSettings(msgspec.Struct):
    """The settings of a worker as passed to `WorkerProcess`, in MessagePack."""

    body: bytes


class Ready(msgspec.Struct):
    """A worker is ready; `detail` is information for the broker, such as the port it listens on."""

    detail: str = ""


def fetch_settings(client: RpcClient, kind: type[SettingsT]) -> SettingsT:
    """Fetch the settings; called in a worker."""
    return decode_msgpack(client.call("worker.settings", Empty(), WorkerSettings).body, kind)


def report_ready(client: RpcClient, detail: str = "") -> None:
    """Report that the worker is ready; called in a worker."""
    client.call("worker.ready", Ready(detail), Empty)


def prefer_as_oom_victim() -> None:
    """Make the kernel kill this process instead of the broker if memory runs out; called in a worker, which the broker
    restarts."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


def leave_process_group() -> None:
    """Leave the broker's process group: Ctrl-C is for the broker, which stops its workers gracefully. And go on when
    writing to a terminal that stops the processes of other groups for that (`stty tostop`). Called first in a worker
    that may be in the broker's session."""
    with contextlib.suppress(PermissionError):  # it has a session of its own
        os.setpgrp()
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)


class WorkerProcess:
    """One worker process, restarted when it exits. Used on the event loop."""

    def __init__(
        self,
        name: str,
        module: str,
        handlers: Mapping[str, Handler],
        settings: msgspec.Struct,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        """`on_exit` is called each time the process has exited."""
        self.name = name
        self.detail = ""  # from the `Ready` of the running process
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0
        self.own_session = True  # of the next process: see `priority`; without, it calls `leave_process_group`
        self._module = module
        self._on_exit = on_exit
        self._settings = WorkerSettings(msgspec.msgpack.encode(settings))
        self._handlers = {
            **handlers,
            "worker.settings": typed(Empty, self._handle_settings),
            "worker.ready": typed(Ready, self._handle_ready),
        }
        self._ready = asyncio.Event()
        self._supervision: asyncio.Task[None] | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._killed = False  # by `kill`

    def start(self) -> None:
        """Start the process, and keep it running; idempotent."""
        if self._supervision is None:
            self._supervision = asyncio.get_running_loop().create_task(self._supervise(), name=f"worker {self.name}")

    async def ready(self, seconds: float) -> bool:
        """Wait until the worker is ready; False after this many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)
        return self._ready.is_set()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def stop(self) -> None:
        if self._supervision is None:
            return
        self._supervision.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._supervision
        self._supervision = None

    def kill(self) -> None:
        """Kill the process; the next one starts without a delay, since the process did not fail by itself."""
        if self.process is not None:
            self._killed = True
            self._ready.clear()
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _supervise(self) -> None:
        backoff = RestartBackoff(FIRST_RESTART_DELAY, LONGEST_RESTART_DELAY, HEALTHY_SECONDS)
        while True:
            began = time.monotonic()
            try:
                await self._run()
            except OSError as error:
                logger.warning("the %s process cannot be started: %s", self.name, error, extra={"worker": self.name})
            if self._killed:
                self._killed = False
                continue
            delay = backoff.delay(time.monotonic() - began)
            logger.warning(
                "the %s process ended; it is started again in %g s", self.name, delay, extra={"worker": self.name}
            )
            await asyncio.sleep(delay)

    async def _run(self) -> None:
        """Start the process and wait for its exit; end it when cancelled."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            self._transport, _ = await loop.create_connection(lambda: RpcServer(self._handlers), sock=ours)
            descriptor = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module, str(descriptor)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(descriptor,),
                start_new_session=self.own_session,  # Ctrl-C is for the broker, which stops its workers gracefully
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
            if self._on_exit is not None:
                self._on_exit()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the process, whose socket is closed, to exit; kill it if it does not: workers may be killed at any
        time."""
        if process.returncode is not None:
            return
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _handle_settings(self, _: Empty) -> WorkerSettings:
        return self._settings

    async def _handle_ready(self, ready: Ready) -> Empty:
        self.detail = ready.detail
        self._ready.set()
        return Empty()
