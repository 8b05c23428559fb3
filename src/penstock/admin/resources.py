"""Resources of the admin socket: paths with parts, and replies that wait for their commit.

A path names the tenant, often the namespace, and then the thing, each part percent-encoded: `/users/default/alice`,
`/schemas/default/default/orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply, after_commit
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidName
from penstock.broker.security.access import ADMINISTRATOR
from penstock.log.engine import CommitGroup

Handler: TypeAlias = Callable[..., Outcome]
"""Called with the body, then with the parts of the path."""


class ResourceTree:
    """The resources below one path. `_methods` lists their methods, by the number of parts that follow it."""

    root: ClassVar[bytes]
    operations: ClassVar[Mapping[tuple[int, bytes], str]] = {}
    """The type of the audit event of each method that changes something: one that fails is told of, whyever it does."""

    def __init__(self, broker: Broker, *, enforced: bool) -> None:
        self._broker = broker
        self._enforced = enforced

    def __call__(self, method: bytes, path: bytes, body: bytes) -> Outcome | None:
        root, *parts = path.removeprefix(b"/").split(b"/")
        if root != self.root:
            return None
        methods = self._methods().get(len(parts))
        if methods is None:
            return HttpReply(404, b"there is nothing at this path\n")
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(name.decode() for name in methods)
            return HttpReply(405, f"only {allowed}\n".encode(), headers=(("Allow", allowed),))
        operation = self.operations.get((len(parts), method))
        if operation is None:
            return handler(body, *map(_decoded, parts))
        with self._broker.audit.attempt(ADMINISTRATOR, operation):
            return handler(body, *map(_decoded, parts))

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        raise NotImplementedError

    def _reply(self, value: object) -> HttpReply | PendingHttpReply:
        return after_commit(self._broker.pending_commit, HttpReply(200, document(value), JSON))


def document(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def done(group: CommitGroup | None) -> HttpReply | PendingHttpReply:
    return after_commit(group, HttpReply(200, b"{}\n", JSON))


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidName("A name in the path is not UTF-8") from None
