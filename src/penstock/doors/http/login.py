"""Logins over HTTP: the identity behind a request, by user and password, token or API key.

Every request brings its own credentials. A connection remembers those that were taken last, so that a password is
checked, and a login audited, once for each connection. The services are those of all doors, and so are lock-out and
audit; what an identity may do is checked by the operation, each time: a key that was revoked, a user who was disabled
or a token that has expired does nothing more, remembered or not.

Where cookies are taken, a request without other credentials may have that of a login session (`broker.sessions`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ADMINISTRATOR, Identity
from penstock.broker.security.key import Verdict
from penstock.broker.security.users import LoginRefusal, LoginVerdict
from penstock.doors.http.errors import HttpError
from penstock.doors.login_allowance import login_allowance

AUTHORIZATION: Final = "authorization"
API_KEY: Final = "x-api-key"
COOKIE: Final = "penstock_session"
CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="penstock"')
"""Not `Basic`, which is taken too: browsers would ask for a password in a window of their own."""
CLOSE: Final = ("Connection", "close")


class Login:
    """The logins of one connection."""

    __slots__ = (
        *("_allowance", "_broker", "_given", "_identity", "_remembered"),
        *("by_cookie", "cookie", "cookies", "encrypted", "peer"),
    )

    def __init__(
        self, broker: Broker, identity: Identity, peer: str, *, cookies: bool = False, encrypted: bool = False
    ) -> None:
        """`identity` is that of requests without credentials; `cookies`: those of login sessions are taken."""
        self.peer = peer
        self.cookies = cookies
        self.encrypted = encrypted
        self.cookie = ""  # the secret of a session that the last request had, right or wrong
        self.by_cookie = False  # the last request was let in by it
        self._broker = broker
        self._given = identity
        self._identity: Identity | None = None  # of the credentials that were taken last
        self._remembered: tuple[str, str] = ("", "")  # those, and the tenant that they were taken in
        self._allowance = login_allowance(broker, identity)

    @property
    def stranger(self) -> bool:
        """Nobody has logged in here, and somebody should."""
        return self._broker.access.enforced and self._given is not ADMINISTRATOR and self._identity is None

    @property
    def name(self) -> str:
        """Of who has logged in last, or whose the connection is."""
        return (self._identity or self._given).name

    def refused(self) -> HttpError:
        """The error for who may not do a thing and has not logged in."""
        return HttpError(401, "login_required", "log in: this is not for everyone", (CHALLENGE,))

    def identify(self, headers: dict[str, str], tenant: str | None) -> Identity | Deferred[Any, Identity]:
        """The identity of a request, or HttpError. `tenant` is the one that a user is looked for in."""
        presented = headers.get(AUTHORIZATION, "")
        self.cookie = _cookie(headers.get("cookie", "")) if self.cookies else ""
        self.by_cookie = False
        if not presented and API_KEY in headers:
            presented = f"Bearer {headers[API_KEY]}"
        if not presented or self._given is ADMINISTRATOR:
            return self._of_session() or self._without()
        home = tenant or DEFAULT_SCOPE.tenant
        known, where = self._remembered
        same = known and home == where and hmac.compare_digest(known.encode(), presented.encode())
        if same and self._identity is not None:
            return self._identity
        scheme, _, rest = presented.partition(" ")
        if scheme.lower() == "basic":
            name, password = _user_and_password(rest.strip())
            return self.by_password(home, name, password, presented)
        if scheme.lower() == "bearer":
            return self.by_key(rest.strip(), home, presented)
        raise self._counted("unsupported_credentials", "give Basic or Bearer credentials, or an X-API-Key")

    def by_password(self, tenant: str, name: str, password: str, presented: str = "") -> Deferred[Any, Identity]:
        """Work that tells who a user is, or raises HttpError. `presented` is what to know them by on this
        connection."""
        work = self._broker.users.login(tenant, name, password, self.peer)
        return work.then(lambda verdict: self._conclude(verdict, presented, tenant))

    def by_key(self, key: str, tenant: str, presented: str = "") -> Identity:
        """The same of a key or a token."""
        return self._conclude(self._broker.keys.authenticate(key, self.peer), presented, tenant)

    def _of_session(self) -> Identity | None:
        """The identity of a session whose cookie the request has. It is no stranger's."""
        session = self._broker.sessions.find(self.cookie) if self.cookie else None
        if session is None:
            return None
        self.by_cookie = True
        self._identity, self._remembered = session.identity._replace(peer=self.peer), ("", "")
        return self._identity

    def _without(self) -> Identity:
        allowance = self._allowance
        if allowance is not None and self._given is not ADMINISTRATOR and not allowance.ask():
            raise HttpError(401, "login_required", str(allowance.refusal()), (CHALLENGE, CLOSE))
        return self._given

    def _conclude(self, verdict: Verdict | LoginVerdict, presented: str, home: str) -> Identity:
        if isinstance(verdict, Identity):
            if presented:
                self._identity, self._remembered = verdict, (presented, home)
            if self._allowance is not None:
                self._allowance.reset()
            return verdict
        if verdict in ("locked", LoginRefusal.LOCKED):
            raise HttpError(429, "locked_out", str(LoginRefusal.LOCKED))
        raise self._counted("wrong_credentials", str(verdict or "the key or token is not valid"))

    def _counted(self, code: str, message: str) -> HttpError:
        """The error for credentials that are not taken; with one too many of them the connection ends."""
        more = self._allowance is None or self._allowance.ask()
        return HttpError(401, code, message, (CHALLENGE,) if more else (CHALLENGE, CLOSE))


def _user_and_password(encoded: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        name, colon, password = "", "", ""
    if not colon:
        raise HttpError(400, "invalid_request", "the Basic credentials are not user:password in base64")
    return name, password


def _cookie(header: str) -> str:
    """The value of our cookie."""
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
