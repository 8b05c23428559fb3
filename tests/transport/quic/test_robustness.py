"""Whatever strangers send, and whatever goes wrong in one connection, the others go on."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.transport.certificates import Authority
from tests.transport.harness import LOOPS, run
from tests.transport.quic import peers
from tests.transport.quic.peers import QuicFixture, RecordingReceiver, aioquic, certificate, quic_fixture, until

from penstock.transport.quic import certificate as certificates
from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import INTERNAL_ERROR
from penstock.transport.quic.errors import CertificateRefused, ConnectFailed
from penstock.transport.quic.retry_token import ResetTokens, RetryTokens
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import long_header

HERE = ("127.0.0.1", 40_000)


@contextmanager
def outsider(there: QuicFixture) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect(("127.0.0.1", there.port))
        own.setblocking(False)
        yield own


async def answers(own: socket.socket, seconds: float = 0.1) -> list[bytes]:
    await asyncio.sleep(seconds)
    found = []
    while True:
        try:
            found.append(own.recv(65536))
        except BlockingIOError:
            return found


def hello() -> bytes:
    """The first datagram of somebody who wants to connect."""
    configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, server_name="localhost")
    connection = QuicConnection(configuration=configuration)
    connection.connect(("127.0.0.1", 1), 0.0)
    return bytes(connection.datagrams_to_send(0.0)[0][0])


async def works(there: QuicFixture) -> None:
    """Somebody can connect, and gets an answer."""
    async with aioquic(there.port) as peer:
        number = peer.send(b"hello", end=True)
        await until(lambda: number in peer.ends)


@pytest.mark.parametrize("loop", LOOPS)
def test_rubbish_is_ignored(loop: str) -> None:
    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            with outsider(there) as own:
                first = hello()
                for rubbish in (
                    b"", b"x", b"\x40", b"\xc0" * 9, bytes(1200), os.urandom(1200), b"\xff" * 65_000, first[:100],
                    first[:1199], first[:30] + os.urandom(1170), b"\xc3" + first[1:], first[:5] + b"\xff" + first[6:],
                ):  # fmt: skip
                    own.send(rubbish)
                await works(there)
            assert len(there.handlers) == 1

    run(loop, scene)


def test_an_unknown_version_is_answered_with_those_that_there_are() -> None:
    async def scene() -> None:
        async with quic_fixture() as there:
            with outsider(there) as own:
                unknown = hello()[:1] + b"\x1a\x2a\x3a\x4a" + hello()[5:]
                own.send(unknown)
                own.send(unknown[:600])  # too short to be answered: it could be somebody else's address
                (answer,) = await answers(own)
                assert answer[1:5] == bytes(4) and answer.endswith(b"\x00\x00\x00\x01")
            assert not there.server.endpoint.connections

    run("uvloop", scene)


def test_packets_of_connections_that_are_not_known_are_answered_with_a_reset_that_is_shorter() -> None:
    async def scene() -> None:
        async with quic_fixture() as there:
            with outsider(there) as own:
                cid = b"12345678"
                own.send(b"\x41" + cid + bytes(100))
                own.send(b"\x41" + cid + bytes(20))
                own.send(b"\x41" + cid + bytes(10))  # too short for anything that is shorter
                answer, shorter = await answers(own)
                assert len(answer) == 42 and len(shorter) == 28
                assert answer[-16:] == shorter[-16:] == ResetTokens(certificate().key).of(cid)

    run("uvloop", scene)


def test_a_client_learns_at_once_that_the_server_was_started_anew() -> None:
    async def scene() -> None:
        async with quic_fixture() as before:
            port = before.port
            connection, handler = await before.call()
            before.server.endpoint.connections.clear()  # as if killed: nobody is told anything
            before.server.close()
        async with quic_fixture(port=port):
            connection.open(RecordingReceiver(), bidirectional=True).send(b"x" * 100)
            await until(lambda: handler.endings, 2)
            assert connection.closed

    run("uvloop", scene)


def test_strangers_have_to_prove_their_address_when_there_are_many_and_more_than_that_are_not_let_in() -> None:
    async def scene() -> None:
        settings = QuicSettings(half_open=4, retry_above=2, handshake_seconds=3.0)
        async with quic_fixture(settings, echo=True) as there:
            endpoint = there.server.endpoint
            for _ in range(2):
                with outsider(there) as own:
                    own.send(hello())
                    assert len((await answers(own))[0]) >= 1200  # its handshake
            with outsider(there) as own:
                own.send(hello())
                (retry,) = await answers(own)
                header = long_header(retry)
                assert header is not None and len(retry) < 200 and endpoint.half_open == 2
            await works(there)  # by way of a retry
            assert endpoint.half_open <= 2  # the strangers, if this took no longer than they have
            await until(lambda: endpoint.half_open == 0)  # they had their time
            await until(lambda: not [connection for connection in endpoint.connections if not connection.closed])

    run("uvloop", scene)


def test_more_handshakes_than_allowed_are_not_begun() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(half_open=3)) as there:
            for _ in range(3):
                with outsider(there) as own:
                    own.send(hello())
            await asyncio.sleep(0.05)
            with outsider(there) as own:
                own.send(hello())
                assert await answers(own) == []
            assert there.server.endpoint.half_open == len(there.server.endpoint.connections) == 3

    run("uvloop", scene)


def test_a_retry_token_is_good_for_its_address_and_for_a_while() -> None:
    tokens = RetryTokens()
    token = tokens.make(HERE, b"original", b"given", 100.0)
    assert tokens.check(token, HERE, b"given", 101.0) == b"original"
    assert tokens.check(token, ("127.0.0.1", 40_001), b"given", 101.0) is None
    assert tokens.check(token, HERE, b"other", 101.0) is None
    assert tokens.check(token, HERE, b"given", 200.0) is None
    assert tokens.check(token[:-1] + bytes((token[-1] ^ 1,)), HERE, b"given", 101.0) is None
    assert RetryTokens().check(token, HERE, b"given", 101.0) is None
    assert tokens.check(b"", HERE, b"given", 101.0) is None


def test_an_error_in_a_reader_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingReceiver):
        def received(self, data: bytes, end: bool) -> None:  # noqa: ARG002
            raise RuntimeError("planted")

    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            connection, handler = await there.call()
            bystander, _ = await there.call()
            stream = connection.open(RecordingReceiver(), bidirectional=True)
            stream.send(b"x")
            await until(lambda: there.handlers[0].receivers)
            theirs = there.handlers[0].receivers[0].stream
            assert theirs is not None
            theirs.attach(Broken())
            stream.send(b"y")
            await until(lambda: handler.endings and there.handlers[0].endings)
            assert handler.endings == [(INTERNAL_ERROR, "internal error")]
            receiver = RecordingReceiver()
            other = bystander.open(receiver, bidirectional=True)
            other.send(b"still here")
            other.finish()
            await receiver.ended.wait()
            bystander.close()

    run("uvloop", scene)
    assert "planted" in caplog.text and caplog.text.count("closed because of an error") == 1


def test_a_connection_that_was_closed_here_is_forgotten_after_a_while() -> None:
    async def scene() -> None:
        async with quic_fixture() as there:
            _, handler = await there.call()
            endpoint = there.server.endpoint
            await until(lambda: there.handlers)  # the client knows first that the handshake is done
            there.connection.close(5, "go")
            await until(lambda: handler.endings)
            assert handler.endings == there.only.endings == [(5, "go")]
            await until(lambda: not endpoint.connections and not endpoint._routes, 3)

    run("uvloop", scene)


def test_a_machine_that_breaks_ends_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does then, in whatever call."""

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            for number, method in enumerate(("receive_many_datagrams", "datagrams", "take_events", "get_timer")):
                connection, _ = await there.call()
                await until(lambda at=number: len(there.handlers) == at + 1)  # type: ignore[misc]
                theirs = there.handlers[number].connection
                assert theirs is not None
                for name in (method, "close"):
                    monkeypatch.setattr(theirs.machine, name, broken)
                connection.open(RecordingReceiver(), bidirectional=True).send(b"x")
                await until(lambda at=number: there.handlers[at].endings)  # type: ignore[misc]
                connection.close()
            await works(there)
            assert there.server.endpoint.half_open == 0

    run("uvloop", scene)


def test_a_client_without_a_word_stays_as_long_as_it_answers_pings() -> None:
    async def scene() -> None:
        settings = QuicSettings(idle_seconds=1, keep_alive_seconds=0.25)
        async with quic_fixture(settings, echo=True) as there, aioquic(there.port, idle_timeout=1.0) as peer:
            await asyncio.sleep(2.2)
            assert not there.only.endings
            number = peer.send(b"hello", end=True)
            await until(lambda: number in peer.ends)

    run("uvloop", scene)


def test_a_silent_client_is_kept_alive_by_its_own_idle_timeout_if_that_is_shorter() -> None:
    async def scene() -> None:
        settings = QuicSettings(keep_alive_seconds=10, handshake_seconds=0.8)  # which it looks at four times
        async with quic_fixture(settings, echo=True) as there, aioquic(there.port, idle_timeout=1.0) as peer:
            await asyncio.sleep(2)
            stream = peer.send(b"still there", end=True)
            await until(lambda: stream in peer.ends)
            assert peer.data[stream] == b"still there"

    run("uvloop", scene)


def test_without_pings_a_silent_connection_ends_after_its_time() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(idle_seconds=1, keep_alive_seconds=0)) as there:
            connection, handler = await there.call(keep_alive_seconds=0)
            began = time.monotonic()
            await until(lambda: there.handlers and there.only.endings and handler.endings)
            assert time.monotonic() - began > 0.9
            assert connection.closed and not there.server.endpoint.connections

    run("uvloop", scene)


def test_a_peer_that_is_gone_is_noticed_although_it_is_pinged() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(idle_seconds=1, keep_alive_seconds=0.2)) as there:
            connection, _ = await there.call()
            connection._driver.connections.clear()  # type: ignore[attr-defined]  # as if killed
            connection._driver.close()  # type: ignore[attr-defined]
            await until(lambda: there.handlers and there.only.endings, 5)
            assert not there.server.endpoint.connections

    run("uvloop", scene)


# -- clients that are refused


def _refused(**given: object) -> str:
    said = ""

    async def scene() -> None:
        nonlocal said
        async with quic_fixture() as there:
            with pytest.raises(ConnectFailed) as failure:
                await there.call(**({"fingerprint": ""} | given))
            said = str(failure.value)

    run("uvloop", scene)
    return said


def test_a_certificate_that_is_not_trusted_is_refused_with_a_way_out() -> None:
    assert "penstock cert show" in _refused()
    assert "Fingerprints did not match" in _refused(fingerprint="00" * 32)


def test_a_certificate_is_trusted_by_fingerprint_file_or_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker")

    async def scene() -> None:
        async with quic_fixture() as there:
            for given in (
                {
                    "fingerprint": "SHA256:"
                    + ":".join(f"{byte:02X}" for byte in bytes.fromhex(certificate().fingerprint))
                },
                {"fingerprint": "", "ca_file": certificate().path},
                {"fingerprint": "", "verify": False},
            ):
                connection, _ = await there.call(**given)
                connection.close()
            with pytest.raises(CertificateRefused):
                await there.call(fingerprint="", ca_file=authority.path)
        monkeypatch.setattr(peers, "certificate", lambda: signed)
        async with quic_fixture() as there:
            connection, _ = await there.call(fingerprint="", ca_file=authority.path)
            connection.close()
            with pytest.raises(CertificateRefused):
                await there.call(fingerprint="", ca_file=authority.path, server_name="elsewhere.example")

    signed = certificates.load(issued.cert, issued.key, datetime.datetime.now(datetime.UTC))
    run("uvloop", scene)


@pytest.mark.parametrize("kind", ["rsa", "p384", "ed25519"])
def test_a_certificate_may_have_a_key_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    makers: dict[str, Callable[[], Any]] = {
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate,
    }
    now = datetime.datetime.now(datetime.UTC)
    key = makers[kind]()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), 1, now - datetime.timedelta(1), now + datetime.timedelta(1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, None if kind == "ed25519" else hashes.SHA256())
    )
    (tmp_path / "c").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8 if kind == "ed25519" else serialization.PrivateFormat.TraditionalOpenSSL
    (tmp_path / "k").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    loaded = certificates.load(str(tmp_path / "c"), str(tmp_path / "k"), now)
    monkeypatch.setattr(peers, "certificate", lambda: loaded)

    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            connection, _ = await there.call()
            connection.close()
            await works(there)

    run("uvloop", scene)


def test_who_does_not_answer_or_is_not_there_is_reported() -> None:
    async def scene() -> None:
        settings = QuicSettings(handshake_seconds=0.3, verify=False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
            deaf.bind(("127.0.0.1", 0))
            port = deaf.getsockname()[1]
            with pytest.raises(ConnectFailed, match=r"no answer within 0\.3 s"):
                await connect("127.0.0.1", port, settings, peers.RecordingHandler())
        with pytest.raises(ConnectFailed, match="nobody listens there"):
            await connect("127.0.0.1", port, settings, peers.RecordingHandler())
        with pytest.raises(ConnectFailed, match="host is not known"):
            await connect("no.such.host.invalid", 1, settings, peers.RecordingHandler())
        with pytest.raises(ConnectFailed, match="cannot be read"):
            await connect("127.0.0.1", port, QuicSettings(ca_file="/nowhere"), peers.RecordingHandler())

    run("asyncio", scene)


def test_ipv6() -> None:
    async def scene() -> None:
        async with quic_fixture(echo=True, host="::1") as there:
            connection, _ = await there.call()
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            stream.send(b"hello")
            stream.finish()
            await receiver.ended.wait()
            assert there.connection.peer.startswith("[::1]:")
            connection.close()

    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    run("uvloop", scene)
