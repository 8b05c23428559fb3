"""Workers that are forked from a process which has imported what they import, for the brokers of `preloaded.py`. Of
each kind of worker there is one such process, its origin, from the first time that a broker wants one.

A broker sees when a worker ends, and kills it, through a descriptor of the process; how it ended, nobody asks. With
`STARTED_WORKERS` in its environment it starts them as always: for tests that look for its children, or at their
memory."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from penstock.workers.import_guard import without_pandas
from penstock.workers.sql.memory import return_freed_memory

LARGEST_MESSAGE: Final = 1 << 17
KINDS: Final = tuple(f"penstock.workers.{kind}.main" for kind in ("flight", "sql", "tables"))
WITH_ALL: Final = ("penstock.flight.reading", "penstock.log.tailer", "penstock.workers.table_damage")
HARMLESS_THREADS: Final = {"jemalloc_bg_thd"}  # it sees to forks itself


def run_as(work: Callable[[], None], environment: Mapping[str, str], folder: str, stdout: int, stderr: int) -> NoReturn:
    """Do the work of a program that has this environment, folder and output, in a process that was forked for it."""
    code: object = 1
    try:
        for here, there in ((stdout, 1), (stderr, 2)):
            os.dup2(here, there)
            os.close(here)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        work()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - a copy must not go on where its original does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


# -- in the broker


class ForkedWorker:
    """The part of `asyncio.subprocess.Process` that `penstock.workers.supervisor` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._end)

    def _end(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = 0
        self._ended.set()

    async def wait(self) -> None:
        await self._ended.wait()

    def kill(self) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


def fork_workers_from(address: str) -> None:
    """From now on, this process does not start workers, but has them forked."""
    start = asyncio.create_subprocess_exec

    async def create(*command: str, **options: Any) -> Any:
        _, _, module, descriptor = command if len(command) == 4 else ("",) * 4
        if module not in KINDS:
            return await start(*command, **options)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        message = json.dumps([module, dict(os.environ), os.getcwd(), files]).encode()
        ours, theirs = socket.socketpair()
        with ours, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
            with theirs:
                requests.connect(address)
                socket.send_fds(requests, [message], [theirs.fileno(), int(descriptor), 1, 2])
            ours.setblocking(False)
            if pid := await asyncio.get_running_loop().sock_recv(ours, 100):
                return ForkedWorker(int(pid))
        raise OSError(f"the process that {module} is forked from has ended")

    asyncio.create_subprocess_exec = create  # type: ignore[assignment]


# -- in the process that brokers are forked from


class Origins:
    """The processes that workers are forked from, by their modules."""

    def __init__(self) -> None:
        self.requests = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = f"\0penstock-tests-{os.getpid()}"
        self.requests.bind(self.address)
        self._channels: dict[str, socket.socket] = {}

    def pass_on(self) -> None:
        """Pass a request on to the origin of its module."""
        message, descriptors, _, _ = socket.recv_fds(self.requests, LARGEST_MESSAGE, 4)
        module = json.loads(message)[0]
        if module not in self._channels:
            self._channels[module] = self._start(module, descriptors)
        try:
            socket.send_fds(self._channels[module], [message], descriptors)
        except OSError:  # it has ended, and said why
            self._channels.pop(module).close()
        for each in descriptors:
            os.close(each)

    def _start(self, module: str, descriptors: list[int]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                ours.close()
                self.close()
                for each in descriptors:
                    os.close(each)
                _serve(module, theirs)
            except BaseException:  # noqa: BLE001 - a copy must not go on where its original does
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()
        return ours

    def close(self) -> None:
        """In a process that was forked from this one."""
        self.requests.close()
        for channel in self._channels.values():
            channel.close()


# -- in an origin


def _serve(module: str, channel: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    main = _import_all(module)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, LARGEST_MESSAGE, 4)
        if not message:
            return
        reply, descriptor, stdout, stderr = descriptors
        if pid := os.fork():
            os.write(reply, b"%d" % pid)
            for each in descriptors:
                os.close(each)
            continue
        channel.close()
        os.close(reply)
        os.setsid()
        for number, handler in ((signal.SIGCHLD, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            signal.signal(number, handler)
        _, environment, folder, files = json.loads(message)
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(files))
        run_as(lambda: main(str(descriptor)), environment, folder, stdout, stderr)  # noqa: B023 - it is called at once


def _import_all(module: str) -> Callable[[str], None]:
    os.environ |= {"GRPC_VERBOSITY": "NONE", "OPENBLAS_NUM_THREADS": "1"}
    without_pandas()
    if ".sql." in module:
        return_freed_memory()
    for name in (module.rpartition(".")[0], "penstock.log.tables"):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(found.name)
    for name in WITH_ALL:
        importlib.import_module(name)
    if ".sql." in module:
        importlib.import_module("penstock.sql.grammar").warm()
    worker = importlib.import_module(module)
    if ".tables." in module:  # else it waits as long as tests use all processors
        assert worker.idle_priority
        vars(worker).update(idle_priority=_keep_priority)
    end = time.monotonic() + 60
    while threads := _threads() - HARMLESS_THREADS:  # a thread has its name when it has had a processor
        assert time.monotonic() < end, f"threads are not forked: {threads}"
        time.sleep(0.01)
    gc.collect()
    gc.freeze()
    main: Callable[[str], None] = worker.main
    return main


def _keep_priority() -> None:
    pass


def _threads() -> set[str]:
    """The names of all threads but this one."""
    found = set()
    for thread in set(os.listdir("/proc/self/task")) - {str(os.getpid())}:
        with open(f"/proc/self/task/{thread}/comm") as file:
            found.add(file.read().strip())
    return found
