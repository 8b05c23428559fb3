"""API keys: `/keys`, `/keys/7`, `/keys/7/rotate`."""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec

from penstock.admin.paging import Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.broker.errors import KeyNotFound
from penstock.broker.security.access import Permission
from penstock.broker.security.key import MIN_CHOSEN, Key, KeyTerms
from penstock.doors.http.replies import Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class KeyRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A key to add."""

    name: str
    permissions: list[Permission]  # may be empty if there are roles
    tenant: str | None = None  # null: the tenant of the request
    topics: tuple[str, ...] = ("*",)
    namespace: str = "*"
    expires: int | None = None  # µs since 1970
    key: str | None = None  # chosen by the user
    roles: tuple[str, ...] = ()


class KeyView(msgspec.Struct):
    """A key, without its secret."""

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
    """A new key. A generated secret is shown only here."""

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


class KeyRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._keys = broker.keys

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/keys", "/api/v1/keys/{key}"
        return (
            Route("GET", path, self.list, "API keys, without their secrets.", query=PageQuery, reply=Page[KeyView]),
            Route("POST", path, self.add, "Add a key.", body=KeyRequest, reply=KeyCreated, status=201, audit="key.add"),
            Route("DELETE", one, self.revoke, "Revoke a key.", audit="key.revoke"),
            Route(
                *("POST", f"{one}/rotate", self.rotate, "Replace a key by another one on the same terms."),
                reply=KeyCreated,
                status=201,
                audit="key.rotate",
            ),
        )

    def list(self, request: Request) -> Outcome:
        """Keys of the tenant in the request, or else of the identity's; all keys for an identity without a tenant."""
        keys = self._keys.list(request.identity, request.named_tenant or request.identity.tenant)
        found, now = cut(keys, lambda key: numbered(key.id), request.query), self._broker.now()
        page = Page([view(key, now) for key in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def add(self, request: Request) -> Outcome:
        body: KeyRequest = request.body
        terms = KeyTerms(
            body.name,
            body.tenant or request.tenant,
            body.permissions,
            body.topics,
            body.namespace,
            body.expires,
            body.roles,
        )
        new, group = self._keys.add(request.identity, terms, body.key)
        created = KeyCreated(
            view(new.key, self._broker.now()), new.secret if body.key is None else None, request.enforced
        )
        return PendingHttpReply(group, json_reply(created, 201))

    def rotate(self, request: Request) -> Outcome:
        new, group = self._keys.rotate(request.identity, request.names["key"])
        created = KeyCreated(view(new.key, self._broker.now()), new.secret, request.enforced)
        return PendingHttpReply(group, json_reply(created, 201))

    def revoke(self, request: Request) -> Outcome:
        text = request.names["key"]
        number = number_of(text)
        if number is None:
            with contextlib.suppress(KeyNotFound):
                self._keys.find(request.identity, "0")  # raises AccessDenied for a client that administers nothing
            # Do not echo a text that is long enough to be a key.
            message = f"There is no key {text}" if len(text) < MIN_CHOSEN else "There is no key of this number"
            raise KeyNotFound(message)
        return done(self._keys.revoke(request.identity, number))
