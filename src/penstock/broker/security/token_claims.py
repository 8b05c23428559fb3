"""The claims of a JSON Web Token: which are required, and the identity they describe.

A token states the permissions of its subject either as roles, which the broker defines, or as explicit permissions
(`token_permissions`). The claims show which of the two it is.

Pure. The signature was verified before (`token_keys`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from joserfc.errors import ExpiredTokenError, InvalidClaimError
from joserfc.jwt import ClaimsOption, JWTClaimsRegistry
from msgspec import Meta

from penstock.broker.errors import InvalidName
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.security import token_permissions
from penstock.broker.security.access import Identity
from penstock.broker.security.token import (
    PERMISSIONS_AUDIENCE,
    PERMISSIONS_ISSUER,
    PRINCIPAL,
    Kind,
    TokenPolicy,
    Unacceptable,
)

MAX_ROLES: Final = 100
MAX_TENANT: Final = (1 << 64) - 1
LEEWAY: Final = 30  # s by which the clocks of issuer and broker may differ
PERMISSIONS_LEEWAY: Final = 60  # likewise, for tokens with permissions
SECOND: Final = 1_000_000  # µs
LAST: Final = 1 << 53  # s; upper bound of an expiry

_Label = Annotated[str, Meta(min_length=1, max_length=255)]
_Moment = int | float  # s since 1970


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token with roles. Others are ignored."""

    sub: _Label
    tenant_id: Annotated[int, Meta(ge=0)] | _Label  # JSON numbers may exceed u64; see `_tenant`
    roles: Annotated[list[_Label], Meta(min_length=1, max_length=MAX_ROLES)]
    exp: _Moment
    nbf: _Moment | None = None
    iat: _Moment | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


class PermissionClaims(msgspec.Struct, frozen=True):
    """The claims of a token with permissions."""

    sub: _Label
    tid: _Label
    perms: Annotated[list[str], Meta(max_length=token_permissions.MAX_PERMISSIONS)]
    exp: _Moment
    nbf: _Moment | None = None
    iat: _Moment | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


AnyClaims: TypeAlias = Claims | PermissionClaims


class _Shape(msgspec.Struct, frozen=True):
    perms: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_shape = msgspec.json.Decoder(_Shape)
_decoder = msgspec.json.Decoder(Claims)
_permission_decoder = msgspec.json.Decoder(PermissionClaims)

_REFUSED: Final = {
    "nbf": "it is not valid yet (nbf)",
    "iat": "it is not valid yet (iat)",
    "iss": "it is of another issuer",
    "aud": "it is for another audience",
}


def decode(payload: bytes, kind: Kind) -> AnyClaims:
    """The claims of a payload signed with a key of this kind. Raises Unacceptable.

    Permissions require a key that only the issuer has: an HMAC secret is known to everyone who verifies tokens.
    """
    try:
        if _shape.decode(payload).perms is msgspec.UNSET:
            return _decoder.decode(payload)
        if kind != "EdDSA":
            raise Unacceptable("permissions (perms) are taken only if they were signed with an Ed25519 key")
        return _permission_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unacceptable(f"the claims are not as they should be: {error}") from error


def identity(claims: AnyClaims, policy: TokenPolicy, peer: str, now: int, tenant: str | None = None) -> Identity:
    """The identity that presents the token at `now` (µs); if `tenant` is given, it must be of that tenant. Raises
    Unacceptable.
    """
    permits = isinstance(claims, PermissionClaims)
    leeway = PERMISSIONS_LEEWAY if permits else LEEWAY
    _check_registered(claims, policy, now, leeway, permits=permits)
    expires = _moment(claims.exp) + leeway * SECOND
    if expires <= now:  # the library only checks whole seconds
        raise Unacceptable("it has expired")
    if not claims.sub.isprintable():
        raise Unacceptable("its subject is not printable")
    who = PRINCIPAL + claims.sub
    home = _checked(claims.tid) if isinstance(claims, PermissionClaims) else _tenant(claims, policy)
    if tenant is not None and tenant != home:
        raise Unacceptable("it is of another tenant")
    if isinstance(claims, PermissionClaims):
        return Identity(who, home, peer, expires=expires, grants=token_permissions.grants(who, home, claims.perms))
    return Identity(who, home, peer, roles=tuple(dict.fromkeys(claims.roles)), expires=expires)


def _check_registered(claims: AnyClaims, policy: TokenPolicy, now: int, leeway: int, *, permits: bool) -> None:
    """Check the times, the issuer and the audience. For tokens with permissions, fixed names are accepted besides the
    configured ones.
    """
    issuers, audiences = [PERMISSIONS_ISSUER] * permits, [PERMISSIONS_AUDIENCE] * permits
    issuers += [policy.issuer] if policy.issuer else []
    audiences += [policy.audience] if policy.audience else []
    required: dict[str, ClaimsOption] = {
        name: {"values": values} for name, values in (("iss", issuers), ("aud", audiences)) if values
    }
    registry = JWTClaimsRegistry(now=now // SECOND, leeway=leeway, **required)
    found: dict[str, Any] = {name: getattr(claims, name) for name in ("exp", "nbf", "iat", "iss", "aud")}
    if not all(math.isfinite(moment) for moment in (claims.exp, claims.nbf or 0, claims.iat or 0)):
        raise Unacceptable("a time in it is none")
    # A missing required claim becomes blank, which the registry rejects.
    present = {
        name: "" if value is None else value for name, value in found.items() if value is not None or name in required
    }
    try:
        registry.validate(present)
    except ExpiredTokenError as error:
        raise Unacceptable("it has expired") from error
    except InvalidClaimError as error:
        raise Unacceptable(_REFUSED[error.claim]) from error


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
    """The time in µs, clamped to a valid range."""
    return int(max(0, min(seconds, LAST)) * SECOND)
