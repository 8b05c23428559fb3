"""Administers a broker from the command line, whether it is running or not.

A request is sent to the running broker, through the socket in its data directory. If none runs there, this process
opens the log, under the directory's lock, to execute the same request. Commands define the requests.
"""

from __future__ import annotations

import http.client
import os
import socket
from typing import Final

import msgspec

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.admin.socket_path import SOCKET, socket_path
from penstock.broker.broker import Broker
from penstock.broker.errors import StateUnreadable
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ADMINISTRATOR
from penstock.cli.failure import fail
from penstock.config.broker import administration_settings, log_settings
from penstock.config.settings import Settings
from penstock.doors.http.errors import EXPECTED_ERRORS, ProblemBody, error_reply
from penstock.doors.http.login import Login
from penstock.doors.http.replies import JSON, HttpReply, PendingHttpReply
from penstock.doors.http.request import AcceptedRequest, RequestHead
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, GroupState
from penstock.log.errors import DirectoryLocked, LogError
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles
from penstock.log.kafka.checkpoint import refuse_cache
from penstock.log.lock import DirectoryLock
from penstock.typed_decoding import decode_json

TIMEOUT_SECONDS: Final = 20.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, directory: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._directory = directory

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with socket_path(self._directory) as path:
            self.sock.connect(path)


def request(settings: Settings, method: str, path: str, body: bytes = b"") -> bytes:
    """The body of the reply. Ends the command if the request is refused."""
    body_of_reply = request_running(settings, method, path, body)
    if body_of_reply is not None:
        return body_of_reply
    reply = _open_and_request(settings, method, path, body)
    return _accepted(reply.status, reply.body)


def request_running(
    settings: Settings, method: str, path: str, body: bytes = b"", timeout: float | None = None
) -> bytes | None:
    """The same from a running broker; None if there is none."""
    reply = exchange_running(settings, method, path, body, timeout)
    return None if reply is None else _accepted(*reply)


def exchange_running(
    settings: Settings, method: str, path: str, body: bytes = b"", timeout: float | None = None
) -> tuple[int, bytes] | None:
    """Status and body of the reply, also if it is an error."""
    connection = _Connection(settings.data_dir, TIMEOUT_SECONDS if timeout is None else timeout)
    try:
        connection.connect()
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        fail(f"{os.path.join(settings.data_dir, SOCKET)}: {error.strerror or error}")
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        fail(f"the broker did not answer ({why}); list what there is to see what it did")
    finally:
        connection.close()


def _accepted(status: int, body: bytes) -> bytes:
    if status >= 300:
        fail(_message(body))
    return body


def _message(body: bytes) -> str:
    try:
        return decode_json(body, ProblemBody).error.message
    except msgspec.MsgspecError:
        return body.decode(errors="replace").strip()


def _open_and_request(settings: Settings, method: str, path: str, body: bytes) -> HttpReply:
    """The same on the log of a stopped broker."""
    lock = DirectoryLock(settings.data_dir)
    try:
        lock.acquire()
    except DirectoryLocked as error:
        fail(f"{error}, which does not listen on {SOCKET}. If it is just starting, try again")
    except OSError as error:
        fail(f"{error.filename or settings.data_dir}: {error.strerror}")
    try:
        committer = InlineCommitter()
        # Synced at any configured level: nothing would sync it later.
        log = log_settings(settings, Durability.SYNCED)
        refuse_cache(OsFiles(settings.data_dir))
        engine = FileEngine(OsFiles(settings.data_dir), log, committer=committer, clock=wall_clock)
        try:
            broker = Broker(engine, administration_settings(settings))
            reply = _reply(broker, settings.security.mode == "on", method, path, body)
            if isinstance(reply, PendingHttpReply):
                committer.run()
                group, reply = reply
                if group.state is not GroupState.COMMITTED:
                    fail(group.error or "the log could not be written")
        finally:
            engine.close()
    except (LogError, StateUnreadable) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename or settings.data_dir}: {error.strerror}")
    finally:
        lock.release()
    return reply


def _reply(broker: Broker, enforced: bool, method: str, path: str, body: bytes) -> HttpReply | PendingHttpReply:
    route, _, query = path.partition("?")
    head = RequestHead(method, route, query, {"content-type": JSON}, Login(broker, ADMINISTRATOR, SOCKET))
    try:
        call = Api(broker, Environment(enforced=enforced)).open(head)
        assert isinstance(call, AcceptedRequest), "the administrator need not log in"
        outcome = call.run(body)
        while isinstance(outcome, Deferred):
            outcome.run()
            outcome = outcome.finish()
    except EXPECTED_ERRORS as error:
        return error_reply(error)
    assert isinstance(outcome, HttpReply | PendingHttpReply), "nothing that commands ask for comes in pieces"
    return outcome
