"""Passwords: how one is hashed, and whether one is right. Whose it is, and what that means, is decided elsewhere.

Both take tens of milliseconds and much memory, and are not for the event loop.
"""

from __future__ import annotations

import base64
import os
from typing import Final, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from penstock.broker.errors import InvalidArgument

MAX_PASSWORD: Final = 1024  # bytes
HASH_BYTES: Final = 32
SALT_BYTES: Final = 16


class PasswordCost(NamedTuple):
    """The cost of one hash: argon2id, by default as OWASP's password cheat sheet has it at the least, 20 to 50 ms on a
    machine of today. The memory is what makes guessing on graphics cards expensive. Every hash names its own cost, so
    that older ones stay valid when it changes."""

    passes: int = 2
    memory_kib: int = 19 << 10
    parallelism: int = 1


class PasswordHashing:
    def __init__(self, cost: PasswordCost) -> None:
        self._hasher = PasswordHasher(*cost, HASH_BYTES, SALT_BYTES)
        # The hash that the password of a user who does not exist is compared with, so that it takes as long. Nobody
        # knows a password that has this hash.
        self._nobodys = (
            f"$argon2id$v=19$m={cost.memory_kib},t={cost.passes},p={cost.parallelism}"
            f"${_base64(os.urandom(SALT_BYTES))}${_base64(os.urandom(HASH_BYTES))}"
        )

    def hashed(self, password: str) -> str:
        """The hash, with the salt and the cost in it."""
        return self._hasher.hash(encoded(password))

    def is_right(self, password: str, stored: str | None) -> bool:
        """True if `stored` is a hash of this password. None, for a user who does not exist, takes as long."""
        try:
            return self._hasher.verify(self._nobodys if stored is None else stored, encoded(password))
        except VerifyMismatchError:
            return False


def check(password: str) -> None:
    """Raises InvalidArgument for one that no user may have."""
    if not 1 <= len(encoded(password)) <= MAX_PASSWORD:
        raise InvalidArgument(f"A password has 1 to {MAX_PASSWORD} bytes")


def encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode()
