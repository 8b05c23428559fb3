"""Login for browsers: `POST /session` accepts a user's name and password, or a key, and sets a cookie; `GET` shows the
session, `DELETE` ends it.

The cookie is inaccessible to scripts (HttpOnly), sent only with requests from our own pages (SameSite=Strict) and, if
set over TLS, only over TLS (Secure). A change with a cookie must prove that it comes from our own pages: see
`doors/http/router`."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import HttpError
from penstock.doors.http.login import CHALLENGE, COOKIE, Login
from penstock.doors.http.replies import HttpReply, Outcome, json_reply
from penstock.doors.http.router import Request, Route


class SessionRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A login: a user's name and password, or an API key or token. A user is looked up in the tenant of the request."""

    user: str = ""
    password: str = ""
    key: str = ""


class SessionView(msgspec.Struct):
    """A session: its user and their permissions."""

    name: str
    tenant: str | None
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    expires: int  # µs since 1970; it also ends after eight hours without use
    security: bool


class SessionRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/session"
        return (
            Route("POST", path, self.open, "Log in.", body=SessionRequest, reply=SessionView, status=201),
            Route("GET", path, self.show, "The session that the request belongs to.", reply=SessionView),
            Route("DELETE", path, self.close, "Log out."),
        )

    def open(self, request: Request) -> Outcome:
        body: SessionRequest = request.body
        login = _login(request)
        if bool(body.user) == bool(body.key):
            raise InvalidArgument("give 'user' and 'password', or 'key'")

        def opened(identity: Identity) -> HttpReply:
            secret, expires = self._broker.sessions.open(identity)
            view = self._view(identity, expires, request.enforced)
            return _with_cookie(json_reply(view, 201), login, secret, (expires - self._broker.now()) // 1_000_000)

        if body.key:
            return opened(login.by_key(body.key, request.tenant))
        verdict: Deferred[Any, Identity] = login.by_password(request.tenant, body.user, body.password)
        return verdict.then(opened)

    def show(self, request: Request) -> Outcome:
        session = self._broker.sessions.find(_login(request).cookie)
        if session is None:
            raise HttpError(401, "login_required", "there is no session: POST /api/v1/session", (CHALLENGE,))
        return json_reply(self._view(session.identity, session.expires, request.enforced))

    def close(self, request: Request) -> Outcome:
        login = _login(request)
        self._broker.sessions.close(login.cookie)
        return _with_cookie(json_reply({}), login, "", 0)

    def _view(self, identity: Identity, expires: int, enforced: bool) -> SessionView:
        name, roles, permissions = self._broker.users.whoami(identity)
        return SessionView(name, identity.tenant, roles, permissions, expires, enforced)


def _login(request: Request) -> Login:
    if request.login is None or not request.login.cookies:
        raise HttpError(404, "no_sessions", "there are no sessions here")
    return request.login


def _with_cookie(reply: HttpReply, login: Login, secret: str, seconds: int) -> HttpReply:
    secure = "; Secure" if login.encrypted else ""
    cookie = f"{COOKIE}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return HttpReply(reply.status, reply.body, reply.content_type, (("Set-Cookie", cookie),))
