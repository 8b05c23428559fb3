"""The client side: one connection on its own socket."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import time
from typing import Final

from penstock.transport.quic.certificate import CertificateUnusable, is_authority, show
from penstock.transport.quic.connection import ConnectionHandler, QuicConnection
from penstock.transport.quic.endpoint import QuicEndpoint
from penstock.transport.quic.errors import CertificateRefused, ConnectFailed
from penstock.transport.quic.settings import QuicSettings, datagram_bytes
from penstock.transport.quic.state_machine import Address, Ending, Header, client_machine

TLS_FAILED: Final = range(0x100, 0x200)  # QUIC's codes for a failed handshake: 0x100 plus TLS's own code


class _SingleConnectionEndpoint(QuicEndpoint):
    """An endpoint that closes together with its only connection."""

    def ended(self, connection: QuicConnection) -> None:
        super().ended(connection)
        self.close()


async def connect(host: str, port: int, settings: QuicSettings, handler: ConnectionHandler) -> QuicConnection:
    """An established connection; `handler.connected` was called. Raises ConnectFailed."""
    loop = asyncio.get_running_loop()
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    settings = _trust(settings)
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ConnectFailed(f"{where}: the host is not known: {error.strerror}") from None
    failure = ConnectFailed(f"{where}: the host has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = ConnectFailed(f"{where}: {error.strerror}")
            continue
        try:
            return await _handshake(sock, address, where, settings.server_name or host, settings, handler)
        except ConnectFailed as error:
            failure = error
    raise failure


async def _handshake(
    sock: socket.socket,
    address: tuple[object, ...],
    where: str,
    name: str,
    settings: QuicSettings,
    handler: ConnectionHandler,
) -> QuicConnection:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Ending | None] = loop.create_future()

    def made(_: QuicConnection) -> ConnectionHandler:
        if not outcome.done():
            outcome.set_result(None)
        return handler

    def failed(ending: Ending) -> None:
        if not outcome.done():
            outcome.set_result(ending)

    def met(_datagram: bytes, header: Header | None, _address: Address) -> QuicConnection | None:
        """A stateless reset of a server that lost the connection carries none of its ids."""
        return connection if header is None else None

    # The timeout is enforced here, where the error message is known, so the endpoint's is longer.
    patient = dataclasses.replace(settings, handshake_seconds=2 * settings.handshake_seconds)
    endpoint = _SingleConnectionEndpoint(sock, patient, loop, met)
    now = time.monotonic()
    machine = client_machine(settings, datagram_bytes(settings, str(address[0])), name)
    connection = QuicConnection(machine, endpoint, address, made, failed, now)
    try:
        endpoint.add(connection, machine.host_cid)
        machine.connect(address, now)
        endpoint.touch(connection)
        ending = await asyncio.wait_for(outcome, settings.handshake_seconds)
    except TimeoutError:
        endpoint.close()
        raise ConnectFailed(
            f"{where}: no answer within {settings.handshake_seconds:g} s. Is this the UDP port of a QUIC server?"
        ) from None
    except BaseException:
        endpoint.close()
        raise
    if ending is not None:
        refused = connection.machine.refused_by_tls and ending.code in TLS_FAILED
        raise (CertificateRefused if refused else ConnectFailed)(f"{where}: {_why(ending, connection)}")
    return connection


def _why(ending: Ending, connection: QuicConnection) -> str:
    if connection.machine.refused_by_tls and ending.code in TLS_FAILED:
        return (
            f"the server's certificate is not accepted: {ending.reason}. Give its fingerprint (penstock cert show), or "
            "the file of a certificate to trust, or say that any is taken"
        )
    if ending.code in TLS_FAILED:
        return f"the server ended the handshake: {ending.reason or hex(ending.code)}"
    return ending.reason or f"closed with code {ending.code}"


def _trust(settings: QuicSettings) -> QuicSettings:
    """If `ca_file` contains the server's own certificate instead of an authority, trust its fingerprint. Raises
    ConnectFailed."""
    if settings.fingerprint:
        plain = settings.fingerprint.lower().removeprefix("sha256:").replace(":", "")
        return dataclasses.replace(settings, fingerprint=plain)
    if not settings.ca_file or not settings.verify:
        return settings
    try:
        with open(settings.ca_file, "rb") as file:
            chain = file.read()
        if is_authority(chain):
            return settings
        return dataclasses.replace(settings, fingerprint=show(chain, settings.ca_file).fingerprint)
    except OSError as error:
        raise ConnectFailed(f"{settings.ca_file} cannot be read: {error.strerror}") from None
    except CertificateUnusable as error:
        raise ConnectFailed(f"{settings.ca_file}: {error}") from None
