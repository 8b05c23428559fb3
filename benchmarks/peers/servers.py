"""Servers that are measured: how each is started with which durability, and asked what it has.

`written`: a reply says that the operating system has the record, which is synced within a second. `synced`: a reply
says that the record was synced. `CONFIGURATIONS` says by which settings each server keeps to that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from benchmarks.broker import BrokerProcess, cpu_seconds, free_port, memory
from benchmarks.peers import conversations
from benchmarks.peers.conversations import TENANT, Conversation, topic

from penstock.clients.kimberlite import KimberliteClient
from penstock.wire.kimberlite.messages import DataClass

WRITTEN, SYNCED = "written", "synced"
LEVELS: Final = (WRITTEN, SYNCED)
START_SECONDS: Final = 60.0
MANY: Final = 15_000  # connections and topics that every server is told to allow

CONFIGURATIONS: Final = {
    ("Penstock", WRITTEN): "durability written: pwrite, fdatasync each second",
    ("Penstock", SYNCED): "durability synced: fdatasync of each commit group",
    ("Redis", WRITTEN): "appendonly yes, appendfsync everysec, save ''",
    ("Redis", SYNCED): "appendonly yes, appendfsync always, save ''",
    ("NATS", WRITTEN): "JetStream, file storage, one replica, sync_interval 1s",
    ("NATS", SYNCED): "JetStream, file storage, one replica, sync_interval always",
}

HOW_TO_GET: Final = {
    "redis-server": "Debian, Ubuntu: sudo apt install redis-server; macOS: brew install redis",
    "nats-server": "go install github.com/nats-io/nats-server/v2@latest (needs $(go env GOPATH)/bin on PATH); "
    "macOS: brew install nats-server",
}


class Server(ABC):
    """One server on an empty directory."""

    name: str
    doors: tuple[str, ...] = ("",)  # the protocols that it can be asked by

    def __init__(self, directory: str, level: str) -> None:
        self.level = level
        self.directory = os.path.join(directory, f"{type(self).__name__}-{self.name}-{level}".replace(" ", "-").lower())
        os.makedirs(self.directory, exist_ok=True)

    @property
    def configuration(self) -> str:
        return CONFIGURATIONS[self.name.split()[0], self.level]

    @abstractmethod
    def start(self) -> float:
        """Seconds until it answered."""

    @abstractmethod
    def stop(self, *, kill: bool = False) -> None: ...

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def port(self, door: str) -> int: ...

    @abstractmethod
    def conversation(self, door: str, size: int, topics: int = 1) -> Conversation: ...

    @abstractmethod
    def stored(self, door: str) -> int:
        """The number of records of the first topic."""

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def memory(self) -> int:
        """Resident bytes."""
        return memory(self.pid)[1]

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Penstock(Server):
    doors = ("RustLog", "FlyMQ", "BlipMQ", "Kimberlite")

    def __init__(self, directory: str, level: str, packages: str | None = None, name: str = "Penstock") -> None:
        """`packages`: where the package is, if not here."""
        self.name = name
        super().__init__(directory, level)
        settings = {
            "SQL__START": "statement",  # its process would be starting while others are measured
            "LIMITS__CONNECTIONS": str(MANY),
            "LIMITS__TENANT_CONNECTIONS": "0",
            "LIMITS__TENANT_SHARE": "1",  # there is only one tenant
            "LIMITS__TOPICS": str(MANY),
        }
        self.broker = BrokerProcess(os.path.join(self.directory, "data"), level, settings, packages=packages)
        self._streams: list[int] = []

    def start(self) -> float:
        return self.broker.start()

    def stop(self, *, kill: bool = False) -> None:
        if kill:
            self.broker.kill()
        else:
            self.broker.stop()

    @property
    def pid(self) -> int:
        return self.broker.pid

    def port(self, door: str) -> int:
        broker = self.broker
        ports = {"RustLog": broker.port, "FlyMQ": broker.flymq_port, "BlipMQ": broker.blipmq_port}
        return ports.get(door, broker.kimberlite_port)

    def conversation(self, door: str, size: int, topics: int = 1) -> Conversation:
        if door == "Kimberlite":
            return conversations.kimberlite(size, self._kimberlite_streams(topics))
        if door == "RustLog":
            for number in range(topics):
                self.create_topic(topic(door, number))
        make: dict[str, Callable[[int, int], Conversation]] = {
            "RustLog": conversations.rustlog, "FlyMQ": conversations.flymq, "BlipMQ": conversations.blipmq,
        }  # fmt: skip
        return make[door](size, topics)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        with contextlib.suppress(RuntimeError):  # it is there
            self.broker.create_topic(name, partitions)

    def _kimberlite_streams(self, count: int) -> list[int]:
        with KimberliteClient(f"127.0.0.1:{self.port('Kimberlite')}", tenant=TENANT) as client:
            for number in range(len(self._streams), count):
                self._streams.append(client.create_stream(topic("Kimberlite", number), DataClass.PUBLIC))
        return self._streams[:count]

    def stored(self, door: str) -> int:
        if door == "Kimberlite":
            with KimberliteClient(f"127.0.0.1:{self.port(door)}", tenant=TENANT) as client:
                return int(client.stream_info(self._streams[0]))
        return self.broker.high_watermark(topic(door, 0))


class Program(Server):
    """A server that is another program."""

    program: str
    oldest: tuple[int, int] = (0, 0)  # version that has all the settings

    @classmethod
    def obstacle(cls) -> str | None:
        """Why it cannot be measured here, and how to change that."""
        if shutil.which(cls.program) is None:
            return f"{cls.program} is not on PATH and is left out. {HOW_TO_GET[cls.program]}"
        told = subprocess.run([cls.program, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"(\d+)\.(\d+)", told)
        if version is not None and (int(version[1]), int(version[2])) < cls.oldest:
            wanted = ".".join(map(str, cls.oldest))
            return f"{cls.program} {version[0]} is older than {wanted} and is left out. {HOW_TO_GET[cls.program]}"
        return None

    def __init__(self, directory: str, level: str) -> None:
        super().__init__(directory, level)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()

    def start(self) -> float:
        began = time.perf_counter()
        with open(os.path.join(self.directory, "output"), "ab") as output:
            self._process = subprocess.Popen(self._command(), stdout=output, stderr=output)
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                raise RuntimeError(f"{self.name} does not start: see {self.directory}/output")
            time.sleep(0.005)
        return time.perf_counter() - began

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _ask(self, data: bytes) -> bytes:
        """One piece of a reply; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=START_SECONDS) as peer:
                peer.sendall(data)
                return peer.recv(1 << 16)
        except OSError:
            return b""

    def stop(self, *, kill: bool = False) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self._process.wait(START_SECONDS)
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def port(self, door: str) -> int:  # noqa: ARG002 - there is one
        return self._port


class Redis(Program):
    name = "Redis"
    program = "redis-server"

    def _command(self) -> list[str]:
        sync = "always" if self.level == SYNCED else "everysec"
        return [
            self.program, "--port", str(self._port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", "",
            "--appendonly", "yes", "--appendfsync", sync, "--maxclients", str(MANY),
        ]  # fmt: skip

    def _answers(self) -> bool:
        return self._ask(b"PING\r\n") == b"+PONG\r\n"

    def conversation(self, door: str, size: int, topics: int = 1) -> Conversation:  # noqa: ARG002
        return conversations.redis(size, topics)

    def stored(self, door: str) -> int:  # noqa: ARG002
        return int(self._ask(conversations.redis_call(b"XLEN", topic("", 0).encode()))[1:])


class Nats(Program):
    name = "NATS"
    program = "nats-server"
    oldest = (2, 10)  # the first with `sync_interval`

    def _command(self) -> list[str]:
        settings = os.path.join(self.directory, "nats.conf")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(
                f'listen: "127.0.0.1:{self._port}"\nmax_payload: 2MB\nmax_connections: {MANY}\n'
                f'jetstream {{ store_dir: "{self.directory}/store", '
                f"sync_interval: {'always' if self.level == SYNCED else '1s'} }}\n"
            )
        return [self.program, "-c", settings]

    def _answers(self) -> bool:
        if b"INFO" not in self._ask(b""):
            return False
        subjects = [f"{conversations.SUBJECTS}.>"]
        stream = {"name": "BENCH", "subjects": subjects, "storage": "file", "num_replicas": 1, "retention": "limits"}
        return "error" not in self._request("$JS.API.STREAM.CREATE.BENCH", stream)

    def _request(self, subject: str, message: dict[str, object]) -> dict[str, object]:
        """One request of JetStream's API, and its reply."""
        body = json.dumps(message).encode()
        request = b"PUB %s _INBOX.api %d\r\n%s\r\n" % (subject.encode(), len(body), body)
        with socket.create_connection(("127.0.0.1", self._port), timeout=START_SECONDS) as peer:
            peer.sendall(conversations.NATS_CONNECT + b"SUB _INBOX.api 1\r\n" + request)
            with peer.makefile("rb") as replies:
                for line in replies:
                    if line.startswith(b"MSG "):
                        found: dict[str, object] = json.loads(replies.read(int(line.split()[-1])))
                        return found
        return {"error": "no reply"}

    def conversation(self, door: str, size: int, topics: int = 1) -> Conversation:  # noqa: ARG002
        return conversations.nats(size, topics)

    def stored(self, door: str) -> int:  # noqa: ARG002
        subject = f"{conversations.SUBJECTS}.{topic('', 0)}"
        state = self._request("$JS.API.STREAM.INFO.BENCH", {"subjects_filter": subject})["state"]
        assert isinstance(state, dict)
        return int(state["subjects"][subject])


PROGRAMS: Final[tuple[type[Program], ...]] = (Redis, Nats)


def left_out() -> list[str]:
    """Why programs are not among the servers, a line each."""
    return [obstacle for kind in PROGRAMS if (obstacle := kind.obstacle()) is not None]


def all_of(
    directory: str, level: str, compiled: str | None, only: list[str] | None = None, against: str | None = None
) -> list[Server]:
    """Every server that is there, not started. `compiled`: where that package is, if it was built; `against`: where
    another revision's is."""
    servers: list[Server] = [Penstock(directory, level)]
    if compiled:
        servers.append(Penstock(directory, level, compiled, "Penstock compiled"))
    if against:
        servers.append(Penstock(directory, level, os.path.abspath(against), "Penstock before"))
    servers += [kind(directory, level) for kind in PROGRAMS if kind.obstacle() is None]
    return [server for server in servers if only is None or server.name.split()[0].lower() in only]
