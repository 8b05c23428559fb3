"""API keys as a resource of the admin socket: `/keys`, `/keys/7`, `/keys/7/rotate`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from penstock.admin.http import JSON, HttpReply, PendingHttpReply, after_commit
from penstock.broker.broker import Broker
from penstock.broker.errors import KeyNotFound
from penstock.broker.security.access import ADMINISTRATOR, Permission
from penstock.broker.security.key import MIN_CHOSEN, Key, KeyTerms

KEYS: Final = b"/keys"
ROTATE: Final = b"/rotate"


class KeyRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /keys`."""

    name: str
    permissions: list[Permission]  # may be empty if there are roles
    tenant: str = "default"
    topics: tuple[str, ...] = ("*",)
    namespace: str = "*"
    expires: int | None = None  # µs since 1970
    key: str | None = None  # chosen by the user
    roles: tuple[str, ...] = ()


class KeyView(msgspec.Struct):
    """A key as it may be shown."""

    id: int
    name: str
    tenant: str
    namespace: str
    permissions: list[str]
    topics: list[str]
    created: int  # µs since 1970, as the other times
    expires: int | None
    revoked: int | None
    state: Literal["active", "expired", "revoked"]
    roles: list[str]


class KeyCreated(msgspec.Struct):
    """The reply to `POST /keys`: the only time that a generated key is shown."""

    key: KeyView
    secret: str | None  # None if the user chose it
    enforced: bool  # False: security is off, and the broker accepts any key


def view(key: Key, now: int) -> KeyView:
    return KeyView(
        key.id,
        key.name,
        key.tenant,
        key.namespace,
        [str(permission) for permission in key.permissions],
        list(key.topics),
        key.created,
        key.expires,
        key.revoked,
        key.state(now),
        list(key.roles),
    )


class KeyResource:
    """`GET` and `POST /keys`, `DELETE /keys/ID`, `POST /keys/ID/rotate`."""

    def __init__(self, broker: Broker, *, enforced: bool) -> None:
        self._broker = broker
        self._enforced = enforced

    def __call__(self, method: bytes, path: bytes, body: bytes) -> HttpReply | PendingHttpReply | None:
        collection, slash, number = path.rpartition(b"/")
        if path == KEYS and method == b"GET":
            return self._list()
        if path == KEYS and method == b"POST":
            return self._add(body)
        if collection == KEYS and method == b"DELETE":
            return self._revoke(number)
        if path.startswith(KEYS + b"/") and path.endswith(ROTATE) and method == b"POST":
            return self._rotate(path[len(KEYS) + 1 : -len(ROTATE)])
        if path == KEYS:
            return HttpReply(405, b"only GET and POST\n", headers=(("Allow", "GET, POST"),))
        if slash and collection == KEYS:
            return HttpReply(405, b"only DELETE\n", headers=(("Allow", "DELETE"),))
        return None

    def _list(self) -> HttpReply | PendingHttpReply:
        now = self._broker.now()
        keys = [view(key, now) for key in self._broker.keys.list(ADMINISTRATOR)]
        return after_commit(self._broker.pending_commit, HttpReply(200, msgspec.json.encode(keys) + b"\n", JSON))

    def _rotate(self, number: bytes) -> PendingHttpReply:
        new, group = self._broker.keys.rotate(ADMINISTRATOR, number.decode("ascii", "replace"))
        created = KeyCreated(view(new.key, self._broker.now()), new.secret, self._enforced)
        return PendingHttpReply(group, HttpReply(201, msgspec.json.encode(created) + b"\n", JSON))

    def _add(self, body: bytes) -> PendingHttpReply:
        with self._broker.audit.attempt(ADMINISTRATOR, "key.add"):
            request = msgspec.json.decode(body, type=KeyRequest)
            terms = KeyTerms(
                request.name,
                request.tenant,
                request.permissions,
                request.topics,
                request.namespace,
                request.expires,
                request.roles,
            )
            new, group = self._broker.keys.add(ADMINISTRATOR, terms, request.key)
        shown = view(new.key, self._broker.now())
        created = KeyCreated(shown, new.secret if request.key is None else None, self._enforced)
        return PendingHttpReply(group, HttpReply(201, msgspec.json.encode(created) + b"\n", JSON))

    def _revoke(self, number: bytes) -> HttpReply | PendingHttpReply:
        with self._broker.audit.attempt(ADMINISTRATOR, "key.revoke"):
            if not number.isdigit() or len(number) > 18:
                text = number.decode(errors="replace")  # not told if it may be a key: those are longer
                raise KeyNotFound(
                    f"There is no key {text}" if len(text) < MIN_CHOSEN else "There is no key of this number"
                )
            group = self._broker.keys.revoke(ADMINISTRATOR, int(number))
        return after_commit(group, HttpReply(200, b"{}\n", JSON))
