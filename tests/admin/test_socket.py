"""The admin socket: who can open it, what it answers, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.transport.harness import LOOPS, run

from penstock.admin.environment import Environment
from penstock.admin.socket import AdminSocket
from penstock.admin.socket_path import SOCKET, socket_path
from penstock.broker.broker import Broker
from penstock.broker.errors import LimitReached, ShuttingDown
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Identity
from penstock.broker.settings import BrokerSettings
from penstock.log.committer import InlineCommitter
from penstock.log.errors import LogError
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

SMALL = LogSettings(file_bytes=256 << 10)
BOTH = pytest.mark.parametrize("loop", LOOPS)


class Stage:
    """A broker whose commits the test starts, behind an admin socket."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.committer = InlineCommitter()
        self.now = 1_700_000_000_000_000
        engine = FileEngine(OsFiles(self.path), SMALL, committer=self.committer, clock=lambda: self.now)
        self.broker = Broker(
            engine, BrokerSettings(access=AccessPolicy(True, [ADMINISTRATION])), clock=lambda: self.now
        )
        self.socket = AdminSocket(self.path, self.broker, Environment())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with socket_path(self.path) as path:
            return await asyncio.open_unix_connection(path)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Commits whatever the request brought about."""
        reader, writer = await self.connect()
        writer.write(request(method, path, body))
        while not (await self.settled(reader)):
            self.committer.run()
        status, answer = await response(reader)
        writer.close()
        await writer.wait_closed()
        return status, answer

    async def begun(self) -> None:
        """Until a request has changed something."""
        while self.broker.pending_commit is None:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.001)

    async def settled(self, reader: asyncio.StreamReader) -> bool:
        await asyncio.sleep(0.001)
        return bool(reader._buffer)  # type: ignore[attr-defined]


def request(method: str, path: str, body: object = None, *headers: str) -> bytes:
    text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    kind = "Content-Type: application/json"
    head = [f"{method} {path} HTTP/1.1", "Host: x", kind, f"Content-Length: {len(text)}", *headers, "", ""]
    return "\r\n".join(head).encode() + text


async def response(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    body = await reader.readexactly(length)
    answer: Any = json.loads(body) if b"application/json" in head else body.decode()
    status = int(head.split()[1])
    if status >= 400 and "error" in answer:
        return status, answer["error"]["message"]
    return status, answer["items"] if set(answer) == {"items", "next"} else answer


@asynccontextmanager
async def open_stage(path: Path) -> AsyncIterator[Stage]:
    stage = Stage(path)
    await stage.socket.start()
    try:
        yield stage
    finally:
        await stage.socket.stop(1)
        stage.broker.close()
        await asyncio.sleep(0.001)  # let the transports go


WISH = {"name": "billing", "permissions": ["read", "write"], "topics": ["orders.*"]}


@BOTH
def test_keys_are_added_listed_and_revoked(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            status, created = await stage.ask("POST", "/api/v1/keys", WISH | {"expires": stage.now + 1})
            assert status == 201 and created["enforced"] is True
            assert created["key"] == {
                "id": 1, "name": "billing", "tenant": "default", "namespace": "*", "permissions": ["read", "write"],
                "topics": ["orders.*"], "created": stage.now, "expires": stage.now + 1, "revoked": None,
                "state": "active", "roles": [],
            }  # fmt: skip
            assert stage.broker.keys.authenticate(created["secret"], "h:1") == Identity("key:1", "default", "h:1")
            status, created = await stage.ask("POST", "/api/v1/keys", WISH | {"key": "chosen by somebody"})
            assert status == 201 and created["secret"] is None
            assert await stage.ask("DELETE", "/api/v1/keys/2") == (200, {})
            assert await stage.ask("DELETE", "/api/v1/keys/2") == (200, {})
            stage.now += 1
            status, listed = await stage.ask("GET", "/api/v1/keys")
            assert status == 200
            assert [(key["id"], key["state"]) for key in listed] == [(1, "expired"), (2, "revoked")]
            assert not {"hash", "salt", "secret", "key"} & set(listed[0])

    run(loop, scene)


@BOTH
def test_an_answer_waits_for_its_commit_and_what_comes_after_waits_too(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            reader, writer = await stage.connect()
            writer.write(request("POST", "/api/v1/keys", WISH) + request("GET", "/api/v1/keys"))
            for _ in range(20):
                assert not await stage.settled(reader)
            assert stage.committer.run()
            assert (await response(reader))[0] == 201
            status, listed = await response(reader)
            assert status == 200 and len(listed) == 1
            writer.write(request("DELETE", "/api/v1/keys/1"))
            writer.write_eof()  # the answer is still owed
            for _ in range(20):
                assert not await stage.settled(reader)
            stage.committer.run()
            assert await response(reader) == (200, {})
            assert await reader.read() == b""
            writer.close()

    run(loop, scene)


def test_a_stop_answers_what_was_accepted_and_removes_the_socket(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            reader, writer = await stage.connect()
            writer.write(request("POST", "/api/v1/keys", WISH))
            await stage.begun()
            asyncio.get_running_loop().call_later(0.02, stage.committer.run)
            await stage.socket.stop(5)
            assert (await response(reader))[0] == 201
            assert await reader.read() == b""
            assert not (tmp_path / SOCKET).exists()
            writer.close()

    run("asyncio", scene)


def test_a_stop_does_not_wait_for_a_silent_client_or_a_commit_that_never_comes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            _, silent = await stage.connect()
            reader, waiting = await stage.connect()
            waiting.write(request("POST", "/api/v1/keys", WISH))
            await stage.begun()
            await stage.socket.stop(0.02)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            silent.close()
            waiting.close()

    run("asyncio", scene)


def test_a_commit_that_fails_is_reported(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:

            def run_and_fail() -> bool:
                log = stage.committer._log
                assert log is not None
                group = log.seal()
                if group is not None:
                    log.complete(group, OSError(5, "the disk is gone"))
                return group is not None

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stage.committer, "run", run_and_fail)
                status, text = await stage.ask("POST", "/api/v1/keys", WISH)
            assert status == 503 and "the disk is gone" in text
            assert stage.broker.keys.list(ADMINISTRATOR) == []

    run("asyncio", scene)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/api/v1/keys", b"", 400, ""),
        ("POST", "/api/v1/keys", b"{", 400, ""),
        ("POST", "/api/v1/keys", b'{"\xff": 1}', 400, "utf-8"),
        ("POST", "/api/v1/keys", {"name": "x"}, 400, "permissions"),
        ("POST", "/api/v1/keys", WISH | {"hat": 1}, 400, "hat"),
        ("POST", "/api/v1/keys", WISH | {"permissions": ["fly"]}, 400, "fly"),
        ("POST", "/api/v1/keys", WISH | {"permissions": []}, 400, "at least one permission"),
        ("POST", "/api/v1/keys", WISH | {"tenant": "*"}, 400, "Tenant name"),
        ("POST", "/api/v1/keys", WISH | {"key": "short"}, 400, "16 to"),
        ("POST", "/api/v1/keys", WISH | {"expires": 1}, 400, "future"),
        ("DELETE", "/api/v1/keys/7", None, 404, "no key 7"),
        ("DELETE", "/api/v1/keys/x", None, 404, "no key x"),
        ("DELETE", "/api/v1/keys/", None, 404, "nothing at this path"),
        ("DELETE", "/api/v1/keys/" + "9" * 400, None, 404, "no key"),
        ("PUT", "/api/v1/keys", None, 405, "only GET and POST"),
        ("GET", "/api/v1/keys/1", None, 405, "DELETE"),
        ("GET", "/locks", None, 404, "there are"),
        ("GET", "/api/v1/locks", None, 404, "nothing at this path"),
    ],
)
def test_what_cannot_be_done_is_reported(
    tmp_path: Path, method: str, path: str, body: object, status: int, said: str
) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            answered, text = await stage.ask(method, path, body)
            assert answered == status and said in text and "Traceback" not in text
            assert stage.broker.keys.list(ADMINISTRATOR) == []
            assert (await stage.ask("GET", "/health"))[0] == 200

    run("asyncio", scene)


@pytest.mark.parametrize(
    ("error", "status"), [(LimitReached("full"), 409), (ShuttingDown("bye"), 503), (LogError("sick"), 503)]
)
def test_each_error_has_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:

            def refuse(*_: object) -> None:
                raise error

            monkeypatch.setattr(stage.broker.keys, "add", refuse)
            assert await stage.ask("POST", "/api/v1/keys", WISH) == (status, str(error))

    run("asyncio", scene)


def test_without_the_grant_the_socket_is_denied_like_anybody(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            stage.broker.access.enforced = True
            stage.broker.access._by_principal.clear()
            for method, path, body in (
                ("GET", "/api/v1/keys", None),
                ("POST", "/api/v1/keys", WISH),
                ("DELETE", "/api/v1/keys/1", None),
            ):
                assert (await stage.ask(method, path, body))[0] == 403

    run("asyncio", scene)


# -- the file


def test_only_the_owner_can_open_it(tmp_path: Path) -> None:
    async def scene() -> None:
        previous = os.umask(0)
        try:
            async with open_stage(tmp_path):
                mode = (tmp_path / SOCKET).stat().st_mode
                assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
        finally:
            os.umask(previous)
        assert not (tmp_path / SOCKET).exists()

    run("asyncio", scene)


def test_what_a_killed_broker_left_is_replaced_and_what_is_no_socket_is_not_touched(tmp_path: Path) -> None:
    async def scene() -> None:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / SOCKET))
        async with open_stage(tmp_path) as stage:
            assert (await stage.ask("GET", "/api/v1/keys")) == (200, [])
        (tmp_path / SOCKET).write_text("mine")
        stage = Stage(tmp_path)
        with pytest.raises(OSError, match="not a socket"):
            await stage.socket.start()
        await stage.socket.stop(1)
        stage.broker.close()
        assert (tmp_path / SOCKET).read_text() == "mine"

    run("asyncio", scene)


@BOTH
def test_a_directory_with_a_long_name_has_its_socket_too(loop: str, tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120)
    path.mkdir()

    async def scene() -> None:
        async with open_stage(path) as stage:
            assert stat.S_IMODE((path / SOCKET).stat().st_mode) == 0o600
            assert (await stage.ask("GET", "/api/v1/keys")) == (200, [])
        assert not (path / SOCKET).exists()

    run(loop, scene)


def test_an_error_in_the_broker_closes_the_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:

            def defect(*_: object) -> None:
                raise RuntimeError("planted")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stage.broker.keys, "list", defect)
                reader, writer = await stage.connect()
                writer.write(request("GET", "/api/v1/keys"))
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            assert (await stage.ask("GET", "/api/v1/keys")) == (200, [])

    run("asyncio", scene)
    assert "planted" in caplog.text


def test_the_number_of_connections_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.admin.socket.MAX_CONNECTIONS", 2)

    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            open_ones = [await stage.connect() for _ in range(2)]
            await asyncio.sleep(0.005)
            reader, third = await stage.connect()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            third.close()
            for _, writer in open_ones:
                writer.close()
            await asyncio.sleep(0.005)
            assert (await stage.ask("GET", "/api/v1/keys")) == (200, [])

    run("asyncio", scene)
