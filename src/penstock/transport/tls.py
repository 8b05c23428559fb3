"""TLS: the server's context from PEM files, and one TLS stream as a state machine without a socket.

A connection detects TLS only after it has read the first bytes. So TLS is not left to the transport: `TlsStream`
converts bytes that were read and bytes to write, on any event loop.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

READ_SIZE: Final = 256 * 1024
MAX_COMMON_NAME: Final = 200  # characters

MIN_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsUnusable(Exception):
    """The certificate, the key or the CA file cannot be used. The text names the file and the reason."""


def server_context(cert: str, key: str, client_ca: str = "", *, min_version: str = "1.3") -> ssl.SSLContext:
    """A server's TLS context. `min_version` is one of `MIN_VERSIONS`. Raises TlsUnusable."""
    named = {"tls.cert": cert, "tls.key": key} | ({"tls.client_ca": client_ca} if client_ca else {})
    for setting, path in named.items():
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise TlsUnusable(f"`{setting}`: {os.path.abspath(path)} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MIN_VERSIONS[min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # OpenSSL must not ask for a pass phrase at the terminal.
        context.load_cert_chain(cert, key, password=_refuse_password)
    except _EncryptedKey:
        raise TlsUnusable(f"`tls.key`: {key} is encrypted; Penstock needs a key without a pass phrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsUnusable(f"`tls.key`: {key} is not the key of the certificate in {cert}") from None
        raise TlsUnusable(f"`tls.cert`, `tls.key`: {cert} and {key} are no PEM certificate and key: {error}") from None
    if client_ca:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise TlsUnusable(f"`tls.client_ca`: {client_ca} holds no PEM certificate: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _EncryptedKey(Exception):
    pass


def _refuse_password() -> str:
    raise _EncryptedKey


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The only common name in the subject of a verified certificate, in the form that `ssl` returns; None if there is
    none or more than one, or if it is too long or not printable."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for name, value in part if name == "commonName"]
    if len(names) != 1 or not 1 <= len(names[0]) <= MAX_COMMON_NAME or not names[0].isprintable():
        return None
    return str(names[0])


class TlsStream:
    """The server side of one TLS connection. Bytes in, bytes out; read `outgoing` after every call that may produce
    some."""

    __slots__ = ("_input", "_object", "_output", "ended", "established", "subject")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._input = ssl.MemoryBIO()
        self._output = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._input, self._output, server_side=True)
        self.established = False
        self.ended = False  # the peer sent close_notify
        self.subject: str | None = None  # the common name in the peer's certificate, if it sent a valid one

    def receive(self, data: bytes) -> bytes:
        """Decrypt bytes from the network. Raises ssl.SSLError, with an alert in `outgoing`."""
        self._input.write(data)
        if not self.established:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.established = True
            self.subject = common_name(self._object.getpeercert())
        parts: list[bytes] = []
        try:
            while not self.ended:
                part = self._object.read(READ_SIZE)
                parts.append(part)
                self.ended = not part
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes) -> None:
        """Encrypt `data` into `outgoing`."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]

    def close(self) -> None:
        """Put close_notify into `outgoing`."""
        if self.established:
            with contextlib.suppress(ssl.SSLError):  # it would also wait for the peer's close_notify
                self._object.unwrap()

    def outgoing(self) -> bytes:
        return self._output.read()
