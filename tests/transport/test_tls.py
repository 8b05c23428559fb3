"""TLS and plain text on one port, with the standard library's TLS client on the other side."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.transport.certificates import Authority, Issued
from tests.transport.harness import HELLO, run, stage, until

from penstock.broker.security.access import Identity
from penstock.transport.tls import TlsStream, TlsUnusable, common_name, server_context

both_loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("server")


def client_context(authority: Authority, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.path)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def test_unless_it_is_allowed_tls_1_2_is_refused(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key)) as one:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await one.connect(client_context(authority, ssl.TLSVersion.TLSv1_2))
            _, writer = await one.connect(client_context(authority, ssl.TLSVersion.TLSv1_3))
            writer.close()

    run("asyncio", scene)


@both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_and_plain_text_share_a_port_and_both_are_sniffed(
    loop: str, version: ssl.TLSVersion, tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key, min_version="1.2")) as one:
            for tls, request, door in (
                (None, HELLO, "rustlog"),
                (client_context(authority, version), HELLO, "rustlog"),
                (client_context(authority, version), b"GET /", "http"),
            ):
                reader, writer = await one.connect(tls)
                writer.write(request)
                assert await reader.readexactly(5) == request
                assert one.opened[-1] == door
                writer.close()
            await until(lambda: len(one.tracker) == 0)
            assert all(session.events[-1] == "lost" for session in one.sessions)

    run(loop, scene)


@both_loops
def test_much_data_both_ways_arrives_whole(loop: str, tmp_path: Path, authority: Authority, issued: Issued) -> None:
    payload = HELLO + bytes(range(256)) * (1 << 15)

    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key)) as one:
            reader, writer = await one.connect(client_context(authority))
            writer.write(payload)
            assert await reader.readexactly(len(payload)) == payload
            writer.close()

    run(loop, scene)


@both_loops
def test_a_tls_client_gets_the_last_answer_and_a_clean_end(
    loop: str, tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key)) as one:
            reader, writer = await one.connect(client_context(authority))
            writer.write(HELLO + b"BYE")
            assert await reader.read() == b"bye"
            writer.close()

    run(loop, scene)


@both_loops
def test_a_handshake_that_does_not_come_is_not_waited_for(loop: str, tmp_path: Path, issued: Issued) -> None:
    async def scene() -> None:
        context = server_context(issued.cert, issued.key)
        async with stage(tmp_path, tls=context, handshake_seconds=0.2, idle_seconds=60.0) as one:
            reader, writer = await one.connect()
            writer.write(b"\x16\x03\x01")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert one.opened == []

    run(loop, scene)


@both_loops
def test_what_only_looks_like_tls_is_closed_without_harm(loop: str, tmp_path: Path, issued: Issued) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key)) as one:
            reader, writer = await one.connect()
            writer.write(b"\x16\x03\x01\x00\x05hello, this is no handshake")
            with contextlib.suppress(ConnectionError):
                alert = await reader.read()
                assert alert[:1] in (b"", b"\x15")
            writer.close()
            reader, writer = await one.connect()
            writer.write(HELLO)
            assert await reader.readexactly(5) == HELLO
            writer.close()

    run(loop, scene)


@both_loops
def test_with_a_client_authority_only_its_certificates_are_let_in(
    loop: str, tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    stranger = Authority(tmp_path, "somebody else").issue("stranger")
    friend = authority.issue("friend")

    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key, authority.path)) as one:
            one.identity = Identity("cert:friend")
            for certificate, welcome in ((None, False), (stranger, False), (friend, True)):
                context = client_context(authority)
                if certificate is not None:
                    context.load_cert_chain(certificate.cert, certificate.key)
                answer = b""
                with contextlib.suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
                    reader, writer = await one.connect(context)
                    writer.write(HELLO)
                    answer = await reader.readexactly(5)
                    writer.close()
                assert answer == (HELLO if welcome else b"")
            assert len(one.opened) == 1

    run(loop, scene)


@both_loops
def test_where_tls_is_required_plain_text_is_refused(
    loop: str, tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key), tls_required=True) as one:
            reader, writer = await one.connect()
            writer.write(HELLO)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert one.broker.metrics.connections_refused == 1
            reader, writer = await one.connect(client_context(authority))
            writer.write(HELLO)
            assert await reader.readexactly(5) == HELLO
            writer.close()

    run(loop, scene)


@both_loops
def test_a_pinned_port_takes_tls_too(loop: str, tmp_path: Path, authority: Authority, issued: Issued) -> None:
    async def scene() -> None:
        async with stage(tmp_path, tls=server_context(issued.cert, issued.key), pinned=True) as one:
            for tls in (None, client_context(authority)):
                reader, writer = await one.connect(tls)
                writer.write(b"GET /")
                assert await reader.readexactly(5) == b"GET /"
                writer.close()
            assert one.opened == ["rustlog", "rustlog"]

    run(loop, scene)


def test_a_stream_takes_its_input_in_any_split(authority: Authority, issued: Issued) -> None:
    """Client and server machine joined in memory, one byte at a time."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    server = TlsStream(server_context(issued.cert, issued.key))
    received = b""

    def exchange() -> None:
        nonlocal received
        for byte in outgoing.read():
            received += server.receive(bytes([byte]))
        incoming.write(server.outgoing())

    for _ in range(4):
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        exchange()
    client.write(b"one")
    client.write(b"two" * 10_000)
    exchange()
    assert server.established
    assert received == b"one" + b"two" * 10_000
    with contextlib.suppress(ssl.SSLWantReadError):
        client.unwrap()
    exchange()
    assert server.ended


def test_files_that_cannot_be_used_are_named_with_the_reason(
    tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    other = authority.issue("other")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    for cert, key, client_ca, said in (
        (str(tmp_path / "missing.crt"), issued.key, "", r"`tls.cert`: .*missing.crt cannot be read: No such file"),
        (issued.cert, str(tmp_path / "missing.key"), "", r"`tls.key`: .*missing.key cannot be read"),
        (issued.cert, issued.key, str(tmp_path / "ca"), r"`tls.client_ca`: .*cannot be read"),
        (issued.cert, other.key, "", r"`tls.key`: .*other.key is not the key of the certificate"),
        (str(junk), issued.key, "", r"junk.pem and .* are no PEM certificate and key"),
        (issued.cert, str(encrypted), "", r"`tls.key`: .*encrypted.key is encrypted"),
        (issued.cert, issued.key, str(junk), r"`tls.client_ca`: .*holds no PEM certificate"),
    ):
        with pytest.raises(TlsUnusable, match=said):
            server_context(cert, key, client_ca)


# -- who a client is


@both_loops
def test_a_client_is_the_subject_of_its_certificate(
    loop: str, tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    """At every door of the port: before the listener's own principal, and only if the certificate was asked for."""
    client = authority.issue("billing")

    async def scene() -> None:
        for asked, name in ((authority.path, "cert:billing"), ("", "ingest")):
            tls, identities = server_context(issued.cert, issued.key, asked), {"rustlog": Identity("ingest")}
            async with stage(tmp_path / name.partition(":")[0], tls=tls, identities=identities) as one:
                one.identity = Identity(name)
                context = client_context(authority)
                context.load_cert_chain(client.cert, client.key)
                reader, writer = await one.connect(context)
                writer.write(HELLO)
                assert await reader.readexactly(len(HELLO)) == HELLO
                writer.close()

    run(loop, scene)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((), None),
        (((("organizationName", "acme"),),), None),
        (((("organizationName", "acme"),), (("commonName", "billing"),)), "billing"),
        (((("commonName", "a"),), (("commonName", "b"),)), None),
        (((("commonName", "a\nb"),),), None),
        (((("commonName", ""),),), None),
        (((("commonName", "x" * 201),),), None),
    ],
)
def test_one_common_name_that_can_be_written_down_is_a_subject(subject: object, name: str | None) -> None:
    assert common_name({"subject": subject}) == name
    assert common_name(None) is common_name({}) is None
