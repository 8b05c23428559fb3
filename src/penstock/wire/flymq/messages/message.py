"""The base class of requests and replies, and constants that both use."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

ANY_PARTITION: Final = -1
NO_KEY: Final = -1  # the key size of a record without a key


class Message(Struct, frozen=True, gc=False):
    """A request, a reply, or a part of one."""
