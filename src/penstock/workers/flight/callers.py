"""Who calls, at the Flight door: by a user's password, by a key, or nobody in particular.

What somebody shows is proved by the broker, so that lock-out and audit are the same at every door. Who was proved is
remembered for a while, since every call of Flight shows it again; what they may do is asked anew each time. A client
that logs in once (`authenticate_basic_token`) gets a token, and that is proved when it is first used: only then is it
known where the client is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.broker.security.lockout import host_of
from penstock.flight.wire import AUTHORIZATION, NAMESPACE, TENANT
from penstock.workers.flight.rpc_messages import LoggedIn, Login

REMEMBERED: Final = 300.0  # seconds that somebody need not be proved again
TOKEN_SECONDS: Final = 3600.0
UNUSED_SECONDS: Final = 60.0  # within which a token has to be used for the first time
MOST: Final = 10_000  # identities, and as many tokens
TOKEN: Final = "penstock-flight-"  # how tokens begin; no key does
MAX_HEADER: Final = 8192

Headers = Mapping[str, Sequence[str | bytes]]
K = TypeVar("K")
V = TypeVar("V")


class NotProved(Exception):
    """It is not known who this is, and it has to be. The text says why."""


class Caller(NamedTuple):
    identity: Identity
    scope: Scope
    anonymous: bool  # showed nothing


class _Shown(NamedTuple):
    """What somebody shows: a password, if there is a user, or a key."""

    user: str | None
    secret: str


class Callers:
    """Used by many threads."""

    def __init__(self, prove: Callable[[Login], LoggedIn], clock: Callable[[], float] = time.monotonic) -> None:
        self._prove = prove
        self._clock = clock
        self._lock = threading.Lock()
        self._pepper = os.urandom(32)
        self._known: dict[bytes, tuple[Identity, float]] = {}  # in the order in which they were proved; until when
        self._unused: dict[str, tuple[_Shown, float]] = {}  # tokens that nobody has come back with
        self._tokens: dict[str, tuple[Identity, float]] = {}  # apart from them, so that those cannot push these out

    def caller(self, headers: Headers, peer: str) -> Caller:
        """Raises NotProved."""
        peer = plain_peer(peer)
        tenant, namespace = _text(headers, TENANT), _text(headers, NAMESPACE) or DEFAULT_SCOPE.namespace
        home = tenant or DEFAULT_SCOPE.tenant
        shown = _shown(_text(headers, AUTHORIZATION))
        if shown is None:
            return Caller(ANONYMOUS._replace(peer=peer), Scope(home, namespace), anonymous=True)
        if shown.user is None and shown.secret.startswith(TOKEN):
            identity = self._by_token(shown.secret, home, peer)
        else:
            identity = self._identity(shown, home, peer)
        return Caller(identity, Scope(tenant or identity.tenant or home, namespace), anonymous=False)

    def hand_out(self, headers: Headers) -> str:
        """A token for the user and password in the headers. Raises NotProved."""
        shown = _shown(_text(headers, AUTHORIZATION))
        if shown is None or shown.user is None:
            raise NotProved("a login takes a user and a password; a key goes as a Bearer token of every call")
        token = TOKEN + secrets.token_urlsafe(32)
        with self._lock:
            _keep(self._unused, token, shown, self._clock(), UNUSED_SECONDS)
        return token

    def _by_token(self, token: str, tenant: str, peer: str) -> Identity:
        now = self._clock()
        with self._lock:
            identity = _kept(self._tokens, token, now)
            shown = _kept(self._unused, token, now)
        if identity is None:
            if shown is None:
                raise NotProved("the token is not known, or has expired: log in again")
            identity = self._identity(shown, tenant, peer)
            with self._lock:
                self._unused.pop(token, None)
                _keep(self._tokens, token, identity, now, TOKEN_SECONDS)
        return identity._replace(peer=peer)

    def _identity(self, shown: _Shown, tenant: str, peer: str) -> Identity:
        host = host_of(peer)  # a host that is locked out does not come in by what another has proved
        parts = "\0".join((host, tenant, "" if shown.user is None else "u" + shown.user, shown.secret))
        mark = hmac.digest(self._pepper, parts.encode("utf-8", "surrogatepass"), hashlib.sha256)
        now = self._clock()
        with self._lock:
            known = _kept(self._known, mark, now)
        if known is not None:
            return known._replace(peer=peer)
        proved = self._prove(Login(peer, tenant, shown.user, shown.secret))
        if proved.identity is None:
            raise NotProved(proved.refusal)
        with self._lock:
            _keep(self._known, mark, proved.identity, now, REMEMBERED)
        return proved.identity._replace(peer=peer)


def _shown(header: str) -> _Shown | None:
    """What an authorization header shows; None if there is none."""
    if not header:
        return None
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise NotProved("the authorization header holds no user and password in Base64") from None
        if not colon:
            raise NotProved("the authorization header holds no user and password")
        return _Shown(user, password)
    if scheme.lower() == "bearer" and rest:
        return _Shown(None, rest)
    raise NotProved("the authorization header has to be Basic or Bearer")


def _kept(table: dict[K, tuple[V, float]], name: K, now: float) -> V | None:
    found = table.get(name)
    return None if found is None or found[1] < now else found[0]


def _keep(table: dict[K, tuple[V, float]], name: K, value: V, now: float, seconds: float) -> None:
    """Room is made by what has expired, then by what came first."""
    if len(table) >= MOST:
        for old in [old for old, (_, until) in table.items() if until < now]:
            del table[old]
        while len(table) >= MOST:
            del table[next(iter(table))]
    table.pop(name, None)
    table[name] = (value, now + seconds)


def _text(headers: Headers, name: str) -> str:
    found = headers.get(name)
    if not found:
        return ""
    first = found[0]
    try:
        text = first if isinstance(first, str) else first.decode()
    except UnicodeDecodeError:
        raise NotProved(f"the header {name} is no text") from None
    if len(found) > 1 or len(text) > MAX_HEADER:
        raise NotProved(f"the header {name} is there more than once, or is too long")
    return text


def plain_peer(peer: str) -> str:
    """gRPC's `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000` as the other doors say it."""
    family, _, rest = peer.partition(":")
    return unquote(rest) if family in ("ipv4", "ipv6") else peer
