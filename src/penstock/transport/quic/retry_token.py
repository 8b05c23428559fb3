"""What a server tells a client without remembering it: a token that proves the client's address (RFC 9000, 8.1.2), and
one by which the client knows that its connection is not known here any more (10.3)."""

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
    """When, the id that the client had chosen at first, and a tag over these, its address and the id we gave it."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def make(self, address: Address, original: bytes, given: bytes, now: float) -> bytes:
        said = _TIME.pack(now) + original
        return said + self._tag(said, address, given)

    def check(self, token: bytes, address: Address, given: bytes, now: float) -> bytes | None:
        """The original id, or None if the token is not ours, is old, or is for somebody else."""
        said, tag = token[:-TAG_BYTES], token[-TAG_BYTES:]
        if len(said) < _TIME.size or not hmac.compare_digest(tag, self._tag(said, address, given)):
            return None
        age = now - _TIME.unpack_from(said)[0]
        return said[_TIME.size :] if 0 <= age <= TOKEN_SECONDS else None

    def _tag(self, said: bytes, address: Address, given: bytes) -> bytes:
        where = f"{address[0]} {address[1]} {given.hex()} ".encode()
        return hmac.digest(self._key, where + said, hashlib.sha256)[:TAG_BYTES]


class ResetTokens:
    """From a secret that outlives the process: so a client learns at once that the server was started anew."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"penstock stateless reset", hashlib.sha256)

    def of(self, connection_id: bytes) -> bytes:
        return hmac.digest(self._key, connection_id, hashlib.sha256)[:TAG_BYTES]

    def packet(self, connection_id: bytes, received: int) -> bytes | None:
        """Looks like any packet. Shorter than what it answers, so that two sides that know nothing do not go on for
        ever."""
        size = min(received - 1, 2 * SMALLEST_RESET)
        if size < SMALLEST_RESET:
            return None
        noise = bytearray(os.urandom(size - TAG_BYTES))
        noise[0] = 0x40 | noise[0] & 0x3F
        return bytes(noise) + self.of(connection_id)
