"""Password hashing and verification.

Both take tens of milliseconds and much memory, and must not run on the event loop.
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
    """The cost of one hash: argon2id, by default with the minimum parameters of OWASP's password cheat sheet, 20 to 50
    ms on current machines. The memory makes guessing on GPUs expensive. Every hash contains its cost, so that existing
    ones stay valid when it changes.
    """

    passes: int = 2
    memory_kib: int = 19 << 10
    parallelism: int = 1


class PasswordHashing:
    def __init__(self, cost: PasswordCost) -> None:
        self._hasher = PasswordHasher(*cost, HASH_BYTES, SALT_BYTES)
        # A random hash to verify against for a user who does not exist, so that the timing is the same. No known
        # password has this hash.
        self._nobodys = (
            f"$argon2id$v=19$m={cost.memory_kib},t={cost.passes},p={cost.parallelism}"
            f"${_base64(os.urandom(SALT_BYTES))}${_base64(os.urandom(HASH_BYTES))}"
        )

    def hashed(self, password: str) -> str:
        """The hash, including salt and cost."""
        return self._hasher.hash(encoded(password))

    def is_right(self, password: str, stored: str | None) -> bool:
        """Whether `stored` is a hash of this password. None, for a user who does not exist, takes equally long."""
        try:
            return self._hasher.verify(self._nobodys if stored is None else stored, encoded(password))
        except VerifyMismatchError:
            return False


def check(password: str) -> None:
    """Raises InvalidArgument for a password that is empty or too long."""
    if not 1 <= len(encoded(password)) <= MAX_PASSWORD:
        raise InvalidArgument(f"A password has 1 to {MAX_PASSWORD} bytes")


def encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode()
