"""Proofs that are presented or configured: tokens, their claims and keys. And what clients choose: names, filters."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Final

import msgspec
from tests.broker.broker_fixture import START
from tests.fuzz.targets.target import Target

from penstock.broker import names
from penstock.broker.errors import BrokerError, InvalidArgument, InvalidName
from penstock.broker.fetch.filters import compile_filter
from penstock.broker.security import token_claims, token_keys
from penstock.broker.security.token import TokenKey, TokenPolicy, Unacceptable

_SECRET: Final = b"0123456789abcdef0123456789abcdef"
_POLICY: Final = TokenPolicy(issuer="us", audience="you", tenants={"7": "seven"})
_CLAIMS: Final = {"sub": "a", "tenant_id": 7, "roles": ["r"], "exp": START // 1_000_000 + 60, "iss": "us", "aud": "you"}
_PERMISSIONS: Final = {
    "sub": "a",
    "tid": "t1",
    "perms": ["stream.publish:stream:*/*", "cache.read:cache:a/b"],
    "exp": START // 1_000_000 + 60,
    "iss": "felix-auth",
    "aud": ["felix-broker"],
}


@cache
def _keys() -> tuple[TokenKey, ...]:
    return token_keys.read("secret", _SECRET), token_keys.read("pair", token_keys.new_key_pair().public)


def token(data: bytes) -> None:
    """A token as it comes; what is not signed with our key is none."""
    text = data.decode("utf-8", "surrogateescape")
    found = token_keys.signed(text, _keys())
    if found is not None:
        _claim(found.payload)


def claims(data: bytes) -> None:
    """A signed token that is still valid."""
    _claim(data)


def _claim(payload: bytes) -> None:
    for kind in ("HS256", "EdDSA"):
        try:
            found = token_claims.decode(payload, kind)
            identity = token_claims.identity(found, _POLICY, "127.0.0.1:1", START)
        except Unacceptable as error:
            assert str(error)
            continue
        assert identity.expires is not None and identity.expires > START
        assert identity.name.startswith("token:") and identity.tenant


def keys(data: bytes) -> None:
    """A file of keys."""
    with contextlib.suppress(InvalidArgument):
        assert token_keys.read_all("id", data)


def name(data: bytes) -> None:
    text = data.decode("utf-8", "surrogatepass") if _decodes(data) else data.decode("latin-1")
    for check in (names.check_topic, names.check_cache, names.check_group):
        with contextlib.suppress(InvalidName):
            check(text)
            text.encode()
    with contextlib.suppress(InvalidName):
        names.check_scope(names.Scope(text, text))


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def filters(data: bytes) -> None:
    """A filter and the value that it is to pass, with a zero between them."""
    pattern, _, value = data.partition(b"\0")
    try:
        passes = compile_filter(pattern.decode("utf-8", "replace"))
        assert passes(None, value) in (True, False)
        assert passes(value, b"{}") in (True, False)
    except BrokerError as error:
        assert str(error)


def _tokens() -> list[bytes]:
    secret = _keys()[0]
    signed = [token_keys.sign(each, secret).encode() for each in (_CLAIMS, _PERMISSIONS, {})]
    return [*signed, b"eyJ.e30.", b"eyJhbGciOiJub25lIn0.e30.", b"eyJhbGciOiJIUzI1NiIsImNyaXQiOlsieCJdfQ.e30.AA"]


def _key_files() -> list[bytes]:
    pair = token_keys.new_key_pair()
    members = '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}'
    return [_SECRET, pair.public, pair.private, members.encode(), b'{"keys":[]}', members.encode("utf-16")]


_NAMES: Final = (b"orders", b"orders.dlq", b"__audit", b"a/b", b"..", "\u00e4\u202e".encode(), b"\xed\xa0\x80", b" x ")
_FILTERS: Final = (b"$.a.b\0" + b'{"a":{"b":1}}', b"^a+b?$\0aab", b"(a|b)*\\d\0ab1", b"ORDER\0an order", b"(\0(")

TARGETS: Final = (
    Target("security.token", token, _tokens),
    Target("security.claims", claims, lambda: [msgspec.json.encode(each) for each in (_CLAIMS, _PERMISSIONS)]),
    Target("security.keys", keys, _key_files, quick=300),
    Target("security.name", name, lambda: list(_NAMES)),
    Target("security.filters", filters, lambda: list(_FILTERS)),
)
