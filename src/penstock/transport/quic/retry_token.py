"""Stateless tokens of a server: retry tokens, which prove a client's address (RFC 9000, 8.1.2), and stateless reset
tokens, which tell a client that its connection is no longer known (10.3)."""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import Final

from penstock.transport.quic.state_machine import Address

TOKEN_SECONDS: Final = 15.0
TAG_BYTES: Final = 16
_TIME = struct.Struct(">d")
SMALLEST_RESET: Final = 21


class RetryTokens:
    """Retry tokens: the time, the destination id that the client first chose, and a MAC over these, its address and the
    id that we assigned."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def make(self, address: Address, original: bytes, source_id: bytes, now: float) -> bytes:
        content = _TIME.pack(now) + original
        return content + self._tag(content, address, source_id)

    def check(self, token: bytes, address: Address, source_id: bytes, now: float) -> bytes | None:
        """The original id, or None if the token is forged, expired, or for another client."""
        content, tag = token[:-TAG_BYTES], token[-TAG_BYTES:]
        if len(content) < _TIME.size or not hmac.compare_digest(tag, self._tag(content, address, source_id)):
            return None
        age = now - _TIME.unpack_from(content)[0]
        return content[_TIME.size :] if 0 <= age <= TOKEN_SECONDS else None

    def _tag(self, content: bytes, address: Address, source_id: bytes) -> bytes:
        where = f"{address[0]} {address[1]} {source_id.hex()} ".encode()
        return hmac.digest(self._key, where + content, hashlib.sha256)[:TAG_BYTES]


class ResetTokens:
    """Stateless reset tokens, derived from a secret that survives restarts: clients notice at once that the server was
    restarted."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"penstock stateless reset", hashlib.sha256)

    def of(self, connection_id: bytes) -> bytes:
        return hmac.digest(self._key, connection_id, hashlib.sha256)[:TAG_BYTES]

    def packet(self, connection_id: bytes, received: int) -> bytes | None:
        """A stateless reset, which looks like any packet; None if the received packet is too short. It is shorter than
        the packet it answers, so that two endpoints without state cannot loop."""
        size = min(received - 1, 2 * SMALLEST_RESET)
        if size < SMALLEST_RESET:
            return None
        noise = bytearray(os.urandom(size - TAG_BYTES))
        noise[0] = 0x40 | noise[0] & 0x3F
        return bytes(noise) + self.of(connection_id)
