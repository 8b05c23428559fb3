"""Callers: authentication of every Flight call, by a user's password, by a key, or anonymously.

The broker verifies the credentials, so that lock-out and audit are the same at every door. Its answer is cached for a
while, since every Flight call carries them; permissions are checked for each call. A client that logs in once
(`authenticate_basic_token`) gets a token, whose credentials are verified at its first use, as the client's address is
not known before.
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

CACHE_SECONDS: Final = 300.0  # how long verified credentials are cached
TOKEN_SECONDS: Final = 3600.0
UNUSED_SECONDS: Final = 60.0  # until the first use of a token
MAX_CACHED: Final = 10_000  # identities, and as many tokens
TOKEN: Final = "penstock-flight-"  # prefix of tokens; no key has it
MAX_HEADER: Final = 8192

Headers = Mapping[str, Sequence[str | bytes]]
K = TypeVar("K")
V = TypeVar("V")


class Unauthenticated(Exception):
    """The caller must authenticate. The text has the reason."""


class Caller(NamedTuple):
    identity: Identity
    scope: Scope
    anonymous: bool  # without credentials


class _Credentials(NamedTuple):
    """A user with a password, or a key."""

    user: str | None
    secret: str


class Callers:
    """The callers of one Flight server. Thread-safe."""

    def __init__(self, authenticate: Callable[[Login], LoggedIn], clock: Callable[[], float] = time.monotonic) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._lock = threading.Lock()
        self._pepper = os.urandom(32)
        self._known: dict[bytes, tuple[Identity, float]] = {}  # in the order of verification; with expiry time
        self._unused: dict[str, tuple[_Credentials, float]] = {}  # tokens before their first use
        self._tokens: dict[str, tuple[Identity, float]] = {}  # separate, so that unused tokens cannot evict used ones

    def caller(self, headers: Headers, peer: str) -> Caller:
        """The caller of a request, authenticated. Raises Unauthenticated."""
        peer = plain_peer(peer)
        tenant, namespace = _text(headers, TENANT), _text(headers, NAMESPACE) or DEFAULT_SCOPE.namespace
        home = tenant or DEFAULT_SCOPE.tenant
        credentials = _credentials(_text(headers, AUTHORIZATION))
        if credentials is None:
            return Caller(ANONYMOUS._replace(peer=peer), Scope(home, namespace), anonymous=True)
        if credentials.user is None and credentials.secret.startswith(TOKEN):
            identity = self._by_token(credentials.secret, home, peer)
        else:
            identity = self._identity(credentials, home, peer)
        return Caller(identity, Scope(tenant or identity.tenant or home, namespace), anonymous=False)

    def issue_token(self, headers: Headers) -> str:
        """A token for the user and password in the headers. Raises Unauthenticated."""
        credentials = _credentials(_text(headers, AUTHORIZATION))
        if credentials is None or credentials.user is None:
            raise Unauthenticated("a login takes a user and a password; a key goes as a Bearer token of every call")
        token = TOKEN + secrets.token_urlsafe(32)
        with self._lock:
            _cache(self._unused, token, credentials, self._clock(), UNUSED_SECONDS)
        return token

    def _by_token(self, token: str, tenant: str, peer: str) -> Identity:
        now = self._clock()
        with self._lock:
            identity = _cached(self._tokens, token, now)
            credentials = _cached(self._unused, token, now)
        if identity is None:
            if credentials is None:
                raise Unauthenticated("the token is not known, or has expired: log in again")
            identity = self._identity(credentials, tenant, peer)
            with self._lock:
                self._unused.pop(token, None)
                _cache(self._tokens, token, identity, now, TOKEN_SECONDS)
        return identity._replace(peer=peer)

    def _identity(self, credentials: _Credentials, tenant: str, peer: str) -> Identity:
        host = host_of(peer)  # per host: one that is locked out must not benefit from another's cached login
        parts = "\0".join(
            (host, tenant, "" if credentials.user is None else "u" + credentials.user, credentials.secret)
        )
        mark = hmac.digest(self._pepper, parts.encode("utf-8", "surrogatepass"), hashlib.sha256)
        now = self._clock()
        with self._lock:
            known = _cached(self._known, mark, now)
        if known is not None:
            return known._replace(peer=peer)
        outcome = self._authenticate(Login(peer, tenant, credentials.user, credentials.secret))
        if outcome.identity is None:
            raise Unauthenticated(outcome.refusal)
        with self._lock:
            _cache(self._known, mark, outcome.identity, now, CACHE_SECONDS)
        return outcome.identity._replace(peer=peer)


def _credentials(header: str) -> _Credentials | None:
    """The credentials in an authorization header; None if it is empty. Raises Unauthenticated if it is malformed."""
    if not header:
        return None
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated("the authorization header holds no user and password in Base64") from None
        if not colon:
            raise Unauthenticated("the authorization header holds no user and password")
        return _Credentials(user, password)
    if scheme.lower() == "bearer" and rest:
        return _Credentials(None, rest)
    raise Unauthenticated("the authorization header has to be Basic or Bearer")


def _cached(table: dict[K, tuple[V, float]], name: K, now: float) -> V | None:
    found = table.get(name)
    return None if found is None or found[1] < now else found[0]


def _cache(table: dict[K, tuple[V, float]], name: K, value: V, now: float, seconds: float) -> None:
    """Add an entry. If the table is full, expired entries are evicted, then the oldest."""
    if len(table) >= MAX_CACHED:
        for old in [old for old, (_, until) in table.items() if until < now]:
            del table[old]
        while len(table) >= MAX_CACHED:
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
        raise Unauthenticated(f"the header {name} is no text") from None
    if len(found) > 1 or len(text) > MAX_HEADER:
        raise Unauthenticated(f"the header {name} is there more than once, or is too long")
    return text


def plain_peer(peer: str) -> str:
    """gRPC's `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`, in the format of the other doors."""
    family, _, rest = peer.partition(":")
    return unquote(rest) if family in ("ipv4", "ipv6") else peer
