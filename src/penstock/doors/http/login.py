"""Logins over HTTP: the identity of a request, by user and password, token or API key.

Every request has its own credentials. A connection caches the last accepted ones, so that a password is checked, and a
login audited, once per connection. The services, lockout and audit are shared with all doors. Every operation checks
permissions: a revoked key, a disabled user or an expired token has none, cached or not.

If cookies are accepted, a request without other credentials may have the cookie of a login session (`broker.sessions`).
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
"""Not `Basic`, although it is accepted: browsers would open a password dialog."""
CLOSE: Final = ("Connection", "close")


class Login:
    """The logins of one connection."""

    __slots__ = (
        *("_allowance", "_broker", "_default_identity", "_identity", "_cached_credentials"),
        *("by_cookie", "cookie", "cookies", "encrypted", "peer"),
    )

    def __init__(
        self, broker: Broker, identity: Identity, peer: str, *, cookies: bool = False, encrypted: bool = False
    ) -> None:
        """`identity`: of requests without credentials. `cookies`: whether those of login sessions are accepted."""
        self.peer = peer
        self.cookies = cookies
        self.encrypted = encrypted
        self.cookie = ""  # session secret in the last request, valid or not
        self.by_cookie = False  # the last request was authenticated by it
        self._broker = broker
        self._default_identity = identity
        self._identity: Identity | None = None  # of the credentials accepted last
        self._cached_credentials: tuple[str, str] = (
            "",
            "",
        )  # these credentials, and the tenant in which they were accepted
        self._allowance = login_allowance(broker, identity)

    @property
    def unauthenticated(self) -> bool:
        """Whether a login is required here and has not happened."""
        return self._broker.access.enforced and self._default_identity is not ADMINISTRATOR and self._identity is None

    @property
    def name(self) -> str:
        """The name of the last identity that logged in, or the connection's own."""
        return (self._identity or self._default_identity).name

    def refused(self) -> HttpError:
        """The error if access is denied before a login."""
        return HttpError(401, "login_required", "log in: this is not for everyone", (CHALLENGE,))

    def identify(self, headers: dict[str, str], tenant: str | None) -> Identity | Deferred[Any, Identity]:
        """The identity of a request; raises HttpError. `tenant`: in which a user is looked up."""
        presented = headers.get(AUTHORIZATION, "")
        self.cookie = _cookie(headers.get("cookie", "")) if self.cookies else ""
        self.by_cookie = False
        if not presented and API_KEY in headers:
            presented = f"Bearer {headers[API_KEY]}"
        if not presented or self._default_identity is ADMINISTRATOR:
            return self._of_session() or self._unauthenticated()
        home = tenant or DEFAULT_SCOPE.tenant
        known, where = self._cached_credentials
        same = known and home == where and hmac.compare_digest(known.encode(), presented.encode())
        if same and self._identity is not None:
            return self._identity
        scheme, _, rest = presented.partition(" ")
        if scheme.lower() == "basic":
            name, password = _user_and_password(rest.strip())
            return self.by_password(home, name, password, presented)
        if scheme.lower() == "bearer":
            return self.by_key(rest.strip(), home, presented)
        raise self._failed_attempt("unsupported_credentials", "give Basic or Bearer credentials, or an X-API-Key")

    def by_password(self, tenant: str, name: str, password: str, presented: str = "") -> Deferred[Any, Identity]:
        """Work that returns the identity of a user, or raises HttpError. `presented`: the credentials to cache for this
        connection."""
        work = self._broker.users.login(tenant, name, password, self.peer)
        return work.then(lambda verdict: self._conclude(verdict, presented, tenant))

    def by_key(self, key: str, tenant: str, presented: str = "") -> Identity:
        """The identity of a key or a token; raises HttpError. `presented`: as in `by_password`."""
        return self._conclude(self._broker.keys.authenticate(key, self.peer), presented, tenant)

    def _of_session(self) -> Identity | None:
        """The identity of the session whose cookie the request has, if any. It counts as logged in."""
        session = self._broker.sessions.find(self.cookie) if self.cookie else None
        if session is None:
            return None
        self.by_cookie = True
        self._identity, self._cached_credentials = session.identity._replace(peer=self.peer), ("", "")
        return self._identity

    def _unauthenticated(self) -> Identity:
        allowance = self._allowance
        if allowance is not None and self._default_identity is not ADMINISTRATOR and not allowance.ask():
            raise HttpError(401, "login_required", str(allowance.refusal()), (CHALLENGE, CLOSE))
        return self._default_identity

    def _conclude(self, verdict: Verdict | LoginVerdict, presented: str, home: str) -> Identity:
        if isinstance(verdict, Identity):
            if presented:
                self._identity, self._cached_credentials = verdict, (presented, home)
            if self._allowance is not None:
                self._allowance.reset()
            return verdict
        if verdict in ("locked", LoginRefusal.LOCKED):
            raise HttpError(429, "locked_out", str(LoginRefusal.LOCKED))
        raise self._failed_attempt("wrong_credentials", str(verdict or "the key or token is not valid"))

    def _failed_attempt(self, code: str, message: str) -> HttpError:
        """The error for credentials that are not accepted; after too many of them the connection is closed."""
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
