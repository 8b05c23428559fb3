"""The two ways in which Felix is spoken, and how each writes what the server says.

A stream whose first frame is `auth` speaks as the original's clients do, any other as the document says. Requests are
read by `messages`; here are the replies and the events, as whole frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

RequestId: TypeAlias = int | str | None


class Dialect(Protocol):
    name: str  # "document" or "original"

    def authenticated(self, client_flags: int | None) -> bytes: ...

    def published(self, request_id: RequestId, *, binary: bool) -> bytes:
        """`binary`: the request was (0x0009), so the acknowledgement is."""

    def publish_failed(self, request_id: RequestId, message: str, *, binary: bool) -> bytes: ...

    def subscribed(self, subscription_id: int) -> bytes: ...

    def cursor_error(self, reason: str, requested: int, available: int) -> bytes: ...

    def hello(self, subscription_id: int) -> bytes:
        """The first frame of an event stream."""

    def cache_stored(self, request_id: RequestId, **more: object) -> bytes: ...

    def cache_value(self, request: object, value: bytes | None) -> bytes:
        """Echoes key and id of the request (a message), and its scope if it named one."""

    def failed(self, message: str, request_id: RequestId = None) -> bytes: ...

    def events(
        self, names: tuple[str, str, str], payloads: Sequence[bytes], base_offset: int | None,
        subscription_id: int, flags: int,
    ) -> bytes:  # fmt: skip
        """One frame of consecutive events, for a client that reads frames with these flags. `base_offset` is None where
        a stream has no single sequence of offsets."""

    def events_key(self, subscription_id: int, flags: int) -> object:
        """Equal for subscribers whose `events` are the same bytes: those share what was encoded once."""
