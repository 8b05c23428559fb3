"""JSON Web Tokens: what one must say to be taken, and whom it speaks of.

A token says what its subject may do in one of two ways: by roles, whose meaning the broker knows, or by permissions,
which mean themselves (`token_permissions`). Which of the two it is, is told by its claims.

Pure. That the signature is right has been seen before (`token_keys`); who presents one is let in by `tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from penstock.broker.errors import InvalidName
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.security import token_permissions
from penstock.broker.security.access import Identity

if TYPE_CHECKING:
    from penstock.broker.security.token_keys import TokenKey

MAX_TOKEN: Final = 8 << 10  # characters
MAX_KEYS: Final = 16  # each may be tried for each token
MAX_ROLES: Final = 100
MAX_TENANT: Final = (1 << 64) - 1
LEEWAY: Final = 30  # s by which the clocks of issuer and broker may differ
PERMISSIONS_LEEWAY: Final = 60  # the same for tokens with permissions
PERMISSIONS_ISSUER: Final = "felix-auth"  # that these have, if not the one that is configured
PERMISSIONS_AUDIENCE: Final = "felix-broker"
SECOND: Final = 1_000_000  # µs
LAST: Final = 1 << 53  # s; nothing lasts longer
PRINCIPAL: Final = "token:"  # what is put before a subject to make it the name of an identity

_START: Final = "eyJ"  # what every token begins with: a JSON object in base64
_Label = Annotated[str, Meta(min_length=1, max_length=255)]
_Moment = int | float  # s since 1970


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """Whose tokens are taken. An empty issuer or audience: any."""

    keys: Sequence[TokenKey] = ()
    issuer: str = ""
    audience: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)  # `tenant_id` → the tenant's name, if it is another


class Claims(msgspec.Struct, frozen=True):
    """What of a token with roles means anything here. Other claims are ignored."""

    sub: _Label
    tenant_id: Annotated[int, Meta(ge=0)] | _Label  # MessagePack and JSON have larger numbers than u64; see `_tenant`
    roles: Annotated[list[_Label], Meta(min_length=1, max_length=MAX_ROLES)]
    exp: _Moment
    nbf: _Moment | None = None
    iat: _Moment | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


class PermissionClaims(msgspec.Struct, frozen=True):
    """The same of a token with permissions."""

    sub: _Label
    tid: _Label
    perms: Annotated[list[str], Meta(max_length=token_permissions.MAX_PERMISSIONS)]
    exp: _Moment
    nbf: _Moment | None = None
    iat: _Moment | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


AnyClaims: TypeAlias = Claims | PermissionClaims
Kind: TypeAlias = Literal["HS256", "EdDSA"]
"""What a token was signed with."""


class Signed(NamedTuple):
    """What somebody signed whose key we have."""

    payload: bytes
    kind: Kind


class _Shape(msgspec.Struct, frozen=True):
    perms: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_shape = msgspec.json.Decoder(_Shape)
_decoder = msgspec.json.Decoder(Claims)
_permission_decoder = msgspec.json.Decoder(PermissionClaims)


class Unacceptable(Exception):
    """A token that was signed by the right key and is not taken. The text says why."""


def looks_like_one(text: str) -> bool:
    """Whether it can be a token at all: API keys come by the same way."""
    return text.startswith(_START) and text.count(".") == 2


def decode(payload: bytes, kind: Kind) -> AnyClaims:
    """What was signed with a key of this kind. Raises Unacceptable.

    Permissions take a key that only the issuer has: a secret is known wherever such tokens are checked."""
    try:
        if _shape.decode(payload).perms is msgspec.UNSET:
            return _decoder.decode(payload)
        if kind != "EdDSA":
            raise Unacceptable("permissions (perms) are taken only if they were signed with an Ed25519 key")
        return _permission_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unacceptable(f"the claims are not as they should be: {error}") from error


def identity(claims: AnyClaims, policy: TokenPolicy, peer: str, now: int, tenant: str | None = None) -> Identity:
    """Who presents it, at `now` in µs, and if it has to be somebody of this tenant. Raises Unacceptable."""
    permits = isinstance(claims, PermissionClaims)
    leeway = (PERMISSIONS_LEEWAY if permits else LEEWAY) * SECOND
    expires = _moment(claims.exp) + leeway
    if expires <= now:
        raise Unacceptable("it has expired")
    for name, moment in (("nbf", claims.nbf), ("iat", claims.iat)):
        if moment is not None and _moment(moment) > now + leeway:
            raise Unacceptable(f"it is not valid yet ({name})")
    _check_origin(claims, policy, permits=permits)
    if not claims.sub.isprintable():
        raise Unacceptable("its subject is not printable")
    who = PRINCIPAL + claims.sub
    home = _checked(claims.tid) if isinstance(claims, PermissionClaims) else _tenant(claims, policy)
    if tenant is not None and tenant != home:
        raise Unacceptable("it is of another tenant")
    if isinstance(claims, PermissionClaims):
        return Identity(who, home, peer, expires=expires, grants=token_permissions.grants(who, home, claims.perms))
    return Identity(who, home, peer, roles=tuple(dict.fromkeys(claims.roles)), expires=expires)


def _check_origin(claims: AnyClaims, policy: TokenPolicy, *, permits: bool) -> None:
    """Tokens with permissions may be those of an issuer that puts its own names there, whatever is configured."""
    issuers, audiences = {policy.issuer} - {""}, {policy.audience} - {""}
    if permits:
        issuers.add(PERMISSIONS_ISSUER)
        audiences.add(PERMISSIONS_AUDIENCE)
    if issuers and claims.iss not in issuers:
        raise Unacceptable("it is of another issuer")
    named = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
    if audiences and audiences.isdisjoint(named):
        raise Unacceptable("it is for another audience")


def _tenant(claims: Claims, policy: TokenPolicy) -> str:
    if isinstance(claims.tenant_id, int) and claims.tenant_id > MAX_TENANT:
        raise Unacceptable("there is no such tenant number")
    return _checked(policy.tenants.get(str(claims.tenant_id), str(claims.tenant_id)))


def _checked(name: str) -> str:
    try:
        check_scope(Scope(name, DEFAULT_SCOPE.namespace))
    except InvalidName as error:
        raise Unacceptable("no tenant can have that name") from error
    return name


def _moment(seconds: _Moment) -> int:
    """In µs, and within what can be."""
    if not math.isfinite(seconds):
        raise Unacceptable("a time in it is none")
    return int(max(0, min(seconds, LAST)) * SECOND)
