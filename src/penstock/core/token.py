"""JSON Web Tokens: what one must say to be taken, and whom it speaks of.

Pure. That the signature is right has been seen before (`token_keys`); who presents one is let in by `tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from penstock.core.access import Identity
from penstock.core.errors import InvalidName
from penstock.core.names import DEFAULT_SCOPE, Scope, check_scope

if TYPE_CHECKING:
    from penstock.core.token_keys import TokenKey

MAX_TOKEN: Final = 8 << 10  # characters
MAX_KEYS: Final = 16  # each may be tried for each token
MAX_ROLES: Final = 100
MAX_TENANT: Final = (1 << 64) - 1
LEEWAY: Final = 30  # s by which the clocks of issuer and broker may differ
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
    """What of a token means anything here. Other claims are ignored."""

    sub: _Label
    tenant_id: Annotated[int, Meta(ge=0)] | _Label  # MessagePack and JSON have larger numbers than u64; see `_tenant`
    roles: Annotated[list[_Label], Meta(min_length=1, max_length=MAX_ROLES)]
    exp: _Moment
    nbf: _Moment | None = None
    iat: _Moment | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


_decoder = msgspec.json.Decoder(Claims)


class Unacceptable(Exception):
    """A token that was signed by the right key and is not taken. The text says why."""


def looks_like_one(text: str) -> bool:
    """Whether it can be a token at all: API keys come by the same way."""
    return text.startswith(_START) and text.count(".") == 2


def decode(payload: bytes) -> Claims:
    """Raises Unacceptable."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unacceptable(f"the claims are not as they should be: {error}") from error


def identity(claims: Claims, policy: TokenPolicy, peer: str, now: int) -> Identity:
    """Who presents it, at `now` in µs. Raises Unacceptable."""
    expires = _moment(claims.exp) + LEEWAY * SECOND
    if expires <= now:
        raise Unacceptable("it has expired")
    for name, moment in (("nbf", claims.nbf), ("iat", claims.iat)):
        if moment is not None and _moment(moment) > now + LEEWAY * SECOND:
            raise Unacceptable(f"it is not valid yet ({name})")
    if policy.issuer and claims.iss != policy.issuer:
        raise Unacceptable("it is of another issuer")
    audience = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
    if policy.audience and policy.audience not in audience:
        raise Unacceptable("it is for another audience")
    if not claims.sub.isprintable():
        raise Unacceptable("its subject is not printable")
    roles = tuple(dict.fromkeys(claims.roles))
    return Identity(PRINCIPAL + claims.sub, _tenant(claims, policy), peer, roles=roles, expires=expires)


def _tenant(claims: Claims, policy: TokenPolicy) -> str:
    if isinstance(claims.tenant_id, int) and claims.tenant_id > MAX_TENANT:
        raise Unacceptable("there is no such tenant number")
    name = policy.tenants.get(str(claims.tenant_id), str(claims.tenant_id))
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
