"""A broker in a process of its own, for the time of a benchmark: start, look at, kill, start again."""

from __future__ import annotations

import contextlib
import os
import pstats
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple

from penstock.log.files import OsFiles
from penstock.log.group_format import HEADER_SIZE, GroupDamaged, decode_header
from penstock.log.segment import FIRST_GROUP_AT, Segment, sequences

_PING = b"\0\0\0\1\xff"
START_SECONDS = 60.0


class BrokerFailed(RuntimeError):
    """It did not start, or did not stop. The text holds what it printed."""


class BrokerProcess:
    flight = False  # whether its Flight endpoint is open
    felix = False  # the same of its QUIC port

    def __init__(
        self,
        data_dir: str,
        durability: str,
        settings: Mapping[str, str] | None = None,
        profile: str | None = None,
        packages: str | None = None,
    ) -> None:
        """`settings` are environment variables without `PENSTOCK_`; `profile` is a file for cProfile's figures;
        `packages` is where the package is, if not here."""
        self.data_dir = data_dir
        self.durability = durability
        self._settings = settings or {}
        self._profile = profile
        self._packages = packages
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.blipmq_port = 0
        self.flymq_port = 0
        self.kimberlite_port = 0
        self.flight_port = 0
        self.felix_port = 0
        self._output = f"{data_dir}.out"

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> float:
        """Returns the seconds from the start of the process to its first answer."""
        self.port, self.blipmq_port, self.flymq_port = free_port(), free_port(), free_port()
        self.kimberlite_port = free_port()
        command = [sys.executable, "-m", "penstock.cli.main"]
        if self._profile:
            command = [sys.executable, "-m", "benchmarks.profiled", self._profile]
        command += ["serve", "--data-dir", self.data_dir, "--durability", self.durability, "--log-level", "warning"]
        self.flight_port = free_port() if self.flight else 0
        command += ["--listen", f"flight=127.0.0.1:{self.flight_port}" if self.flight else "flight=off"]
        self.felix_port = free_port() if self.felix else 0
        command += ["--listen", f"felix=127.0.0.1:{self.felix_port}" if self.felix else "felix=off"]
        command += ["--listen", "http=off", "--listen", "flymq_admin=off"]
        command += ["--listen", f"rustlog=127.0.0.1:{self.port}"]
        command += ["--listen", f"blipmq=127.0.0.1:{self.blipmq_port}"]
        command += ["--listen", f"flymq=127.0.0.1:{self.flymq_port}"]
        command += ["--listen", f"kimberlite=127.0.0.1:{self.kimberlite_port}"]
        environment = {**os.environ, **{f"PENSTOCK_{name}": value for name, value in self._settings.items()}}
        if self._packages is not None:
            environment["PYTHONPATH"] = self._packages
        began = time.perf_counter()
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                raise BrokerFailed(self._said())
            time.sleep(0.005)
        return time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS) as peer:
                peer.sendall(_PING)
                return peer.recv(5) == _PING
        except OSError:
            return False

    def _said(self) -> str:
        with open(self._output, encoding="utf-8", errors="replace") as output:
            return "the broker did not do what it was told:\n" + output.read()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(self._said()) from None
        self._process = None
        if code:
            raise BrokerFailed(self._said())

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def memory(self) -> tuple[int, int]:
        """Resident bytes: the most there ever were, and now."""
        return memory(self.pid)

    def child_memory(self, module: str) -> tuple[int, int]:
        """The same of the child process that runs this module."""
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as file:
            for child in map(int, file.read().split()):
                with open(f"/proc/{child}/cmdline", "rb") as command:
                    if module.encode() in command.read():
                        return memory(child)
        raise BrokerFailed(f"there is no process of {module}")

    def cpu_seconds(self) -> float:
        """Processor time that the process has used, in user and kernel mode."""
        assert self._process is not None
        return cpu_seconds(self._process.pid)

    def call(self, payload: bytes) -> bytes:
        """One request of the binary dialect on a connection of its own: the reply's payload."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS) as peer:
            peer.sendall(struct.pack(">I", len(payload)) + payload)
            with peer.makefile("rb") as replies:
                (length,) = struct.unpack(">I", replies.read(4))
                reply = replies.read(length)
        if reply[0] == 0xFE:
            raise BrokerFailed(reply[5:].decode())
        return reply

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.call(b"\x05" + _text(name) + struct.pack(">I", partitions))

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        reply = self.call(b"\x08" + _text(topic) + struct.pack(">I", partition))
        return int.from_bytes(reply[-8:])

    def expect(self, topic: str, records: int) -> None:
        """Raises unless partition 0 holds exactly as many records as were acknowledged."""
        found = self.high_watermark(topic)
        if found != records:
            raise BrokerFailed(f"{records} records were acknowledged, and the log has {found}")

    # -- the journal it has written

    def journal(self) -> Journal:
        return read_journal(self.data_dir)


def memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: the most there ever were, and now."""
    found = {}
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            name, _, rest = line.partition(":")
            if name in ("VmHWM", "VmRSS"):
                found[name] = int(rest.split()[0]) * 1024
    return found["VmHWM"], found["VmRSS"]


class Journal(NamedTuple):
    """What a data directory's journal holds."""

    groups: int
    bytes: int  # of all groups
    files: dict[str, int]  # full path → how far it is written


def read_journal(data_dir: str) -> Journal:
    """Goes from group to group, by their headers."""
    files = OsFiles(data_dir)
    count = size = 0
    written = {}
    for number in sequences(files):
        journal = Segment.open(files, number, writable=False)
        at = FIRST_GROUP_AT
        while len(head := journal.file.read(at, HEADER_SIZE)) == HEADER_SIZE:
            try:
                header = decode_header(head, 0, journal.salt)
            except GroupDamaged:
                break  # the zeros behind the last group
            if header.entries:
                count += 1
                size += header.length
            at += header.length
        journal.file.close()
        written[os.path.join(data_dir, journal.path)] = at
    return Journal(count, size, written)


def _text(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">H", len(data)) + data


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def profile_table(path: str, lines: int = 25) -> str:
    """The functions of a profile that took longest by themselves."""
    stats: list[str] = []

    class _Text:
        def write(self, text: str) -> None:
            stats.append(text)

    pstats.Stats(path, stream=_Text()).strip_dirs().sort_stats("tottime").print_stats(lines)  # type: ignore[arg-type]
    return "".join(stats)


def cpu_seconds(pid: int) -> float:
    """Processor time that the threads of a process have used, in user and kernel mode. In ns, where the kernel counts
    ticks of 10 ms for the process as a whole; threads that have ended do not count."""
    used = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        path = f"/proc/{pid}/task/{thread}/schedstat"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, encoding="ascii") as file:
            used += int(file.read().split()[0])
    return used / 1e9
