"""JSON Web Tokens: the policy by which they are accepted, and the keys that they are signed with.

What a token says is the business of `token_claims`, its signature that of `token_keys`; both load the library for
tokens, so that they are imported only where keys are configured. Who presents a token is let in by `tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from joserfc.jwk import OctKey, OKPKey

MAX_TOKEN: Final = 8 << 10  # characters
MAX_KEYS: Final = 16  # each may be tried for each token
PERMISSIONS_ISSUER: Final = "felix-auth"  # of tokens with permissions, if not the one that is configured
PERMISSIONS_AUDIENCE: Final = "felix-broker"
PRINCIPAL: Final = "token:"  # prefix of a subject in the name of an identity

# A key takes the algorithms of its own kind and no other. So nobody can sign with the text of a public key as if it
# were a secret, and `none` is no algorithm at all. `Ed25519` is the newer name of what most issuers call `EdDSA`.
SECRET_ALGORITHMS: Final = ("HS256",)
CURVE_ALGORITHMS: Final = ("EdDSA", "Ed25519")

_START: Final = "eyJ"  # the first characters of every token: a JSON object in base64

Kind: TypeAlias = Literal["HS256", "EdDSA"]
"""The algorithm that a token was signed with."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key of an issuer. `id` is the `kid` that a token may name it by."""

    id: str
    kind: Kind
    key: OctKey | OKPKey = field(repr=False)

    @property
    def algorithms(self) -> tuple[str, ...]:
        return SECRET_ALGORITHMS if self.kind == "HS256" else CURVE_ALGORITHMS

    @property
    def signs(self) -> bool:
        """False for a public key."""
        return bool(self.key.is_private)


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """Whose tokens are accepted. An empty issuer or audience: any."""

    keys: Sequence[TokenKey] = ()
    issuer: str = ""
    audience: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)  # `tenant_id` → the tenant's name, if it is another


class Signed(NamedTuple):
    """A payload that was signed with one of our keys."""

    payload: bytes
    kind: Kind


class Unacceptable(Exception):
    """A token that was signed by the right key and is not accepted. The text says why."""


def looks_like_one(text: str) -> bool:
    """True if it can be a token at all: API keys come by the same way."""
    return text.startswith(_START) and text.count(".") == 2
