"""JSON Web Tokens: the policy for accepting them, and the keys that sign them.

`token_claims` interprets the claims, `token_keys` checks the signature; both import the library for tokens, so they are
imported only if keys are configured. `tokens` authenticates clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from joserfc.jwk import OctKey, OKPKey

MAX_TOKEN: Final = 8 << 10  # characters
MAX_KEYS: Final = 16  # any of them may be tried for each token
PERMISSIONS_ISSUER: Final = "felix-auth"  # accepted for tokens with permissions, besides the configured one
PERMISSIONS_AUDIENCE: Final = "felix-broker"
PRINCIPAL: Final = "token:"  # prefix of a subject in the name of an identity

# A key accepts only the algorithms of its own kind. So nobody can use the text of a public key as an HMAC secret, and
# `none` is not an algorithm. `Ed25519` is the newer name of what most issuers call `EdDSA`.
SECRET_ALGORITHMS: Final = ("HS256",)
CURVE_ALGORITHMS: Final = ("EdDSA", "Ed25519")

_START: Final = "eyJ"  # the beginning of every token: a JSON object in base64

Kind: TypeAlias = Literal["HS256", "EdDSA"]
"""The algorithm that a token was signed with."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key of an issuer. `id` is the `kid` in a token's header."""

    id: str
    kind: Kind
    key: OctKey | OKPKey = field(repr=False)

    @property
    def algorithms(self) -> tuple[str, ...]:
        return SECRET_ALGORITHMS if self.kind == "HS256" else CURVE_ALGORITHMS

    @property
    def signs(self) -> bool:
        """Whether it can sign; False for a public key."""
        return bool(self.key.is_private)


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """The tokens to accept. An empty issuer or audience accepts any."""

    keys: Sequence[TokenKey] = ()
    issuer: str = ""
    audience: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)  # `tenant_id` → tenant name, if different


class Signed(NamedTuple):
    """A payload signed with one of our keys."""

    payload: bytes
    kind: Kind


class Unacceptable(Exception):
    """A token with a valid signature that is not accepted. The message says why."""


def looks_like_one(text: str) -> bool:
    """Whether it has the form of a token: API keys arrive in the same field."""
    return text.startswith(_START) and text.count(".") == 2
