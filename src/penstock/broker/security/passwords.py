"""Passwords: how one is hashed, and whether one is right. Whose it is, and what that means, is decided elsewhere.

Both functions take tens of milliseconds and much memory, and are not for the event loop.
"""

from __future__ import annotations

import base64
import os
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from penstock.broker.errors import InvalidArgument

MAX_PASSWORD: Final = 1024  # bytes

# Argon2id, as OWASP's password cheat sheet has it at the least: 20 to 50 ms on a machine of today. The memory is what
# makes guessing on graphics cards expensive. Every hash names its own cost, so these may rise.
TIME_COST: Final = 2  # passes
MEMORY_KIB: Final = 19 << 10
PARALLELISM: Final = 1
HASH_BYTES: Final = 32
SALT_BYTES: Final = 16

_hasher: Final = PasswordHasher(TIME_COST, MEMORY_KIB, PARALLELISM, HASH_BYTES, SALT_BYTES)


def _text(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode()


# What the password of a user who does not exist is compared with, so that it takes as long. Nobody knows a password
# that has this hash.
_NOBODYS: Final = (
    f"$argon2id$v=19$m={MEMORY_KIB},t={TIME_COST},p={PARALLELISM}"
    f"${_text(os.urandom(SALT_BYTES))}${_text(os.urandom(HASH_BYTES))}"
)


def check(password: str) -> None:
    """Raises InvalidArgument for one that no user may have."""
    if not 1 <= len(encoded(password)) <= MAX_PASSWORD:
        raise InvalidArgument(f"A password has 1 to {MAX_PASSWORD} bytes")


def hashed(password: str) -> str:
    """With the salt and the cost in it."""
    return _hasher.hash(encoded(password))


def is_right(password: str, stored: str | None) -> bool:
    """Whether `stored` is a hash of this password. None, for a user who does not exist, takes as long."""
    try:
        return _hasher.verify(_NOBODYS if stored is None else stored, encoded(password))
    except VerifyMismatchError:
        return False


def encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
