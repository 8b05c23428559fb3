"""The keys that sign JSON Web Tokens: reading them, checking signatures, and signing.

Imported only if such keys are configured. `token_claims` interprets the payload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import OctKey, OKPKey

from penstock.broker.errors import InvalidArgument
from penstock.broker.security.token import CURVE_ALGORITHMS, MAX_KEYS, MAX_TOKEN, SECRET_ALGORITHMS, Signed, TokenKey

MIN_SECRET: Final = 32  # bytes: the size of the hash in HS256
MAX_SECRET: Final = 4096
CURVE: Final = "Ed25519"

_JSON: Final = re.compile(rb'\s*\{\s*["}]')  # the beginning of a JWKS, which no secret has


_UNUSABLE: Final = (JoseError, UnsupportedAlgorithm, ValueError, TypeError, KeyError)
"""Exceptions of the library for an unusable key."""


class _SetMember(msgspec.Struct, frozen=True):
    """One key of a set (RFC 7517), with the fields needed for our tokens; others are ignored."""

    kty: str = ""
    crv: str = ""
    x: str = ""
    kid: str = ""
    use: str = "sig"
    alg: str = "EdDSA"
    d: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def public(self) -> dict[str, str | list[str]]:  # the type that the library expects
        return {"kty": self.kty, "crv": self.crv, "x": self.x}

    @property
    def usable(self) -> bool:
        return (self.kty, self.crv, self.use) == ("OKP", CURVE, "sig") and self.alg in CURVE_ALGORITHMS


class _Set(msgspec.Struct, frozen=True):
    keys: list[_SetMember]


_set_decoder: Final = msgspec.json.Decoder(_Set)


class _Registry(jws.JWSRegistry):
    """Accepts only the algorithms of our keys, and without the library's warning about the name `EdDSA`, which will be
    in use for years.
    """

    max_payload_length = MAX_TOKEN

    def get_alg(self, name: str) -> Any:  # its type has no public name in the library
        if name not in SECRET_ALGORITHMS and name not in CURVE_ALGORITHMS:
            raise UnsupportedAlgorithmError(name[:40])
        return self.algorithms[name]


_registry: Final = _Registry(strict_check_header=False)  # unknown headers are ignored


def read_all(id: str, data: bytes) -> tuple[TokenKey, ...]:  # noqa: A002 - it is the key's id
    """The keys in a file: one in the formats of `read`, or those of a set (JWKS). Raises InvalidArgument."""
    return _read_set(id, data) if _JSON.match(_head(data)) else (read(id, data),)


def read(id: str, data: bytes, *, signing: bool = False) -> TokenKey:  # noqa: A002 - it is the key's id
    """A key from its file: a PEM with an Ed25519 key, or else a secret. A private key is accepted only for `signing`,
    as the broker does not need one. Raises InvalidArgument.
    """
    head = _head(data)
    if b"-----BEGIN" in head:
        return _read_pem(id, data, signing=signing)
    if _JSON.match(head):
        raise InvalidArgument("a set of keys; give one key, as PEM or as a secret")
    secret = _text_of(data)
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise InvalidArgument(
            f"a secret has {MIN_SECRET} to {MAX_SECRET} bytes, this one {len(secret)}; make one: openssl rand -hex 32"
        )
    return TokenKey(id, "HS256", OctKey.import_key(secret))


def _read_pem(id: str, data: bytes, *, signing: bool) -> TokenKey:  # noqa: A002 - it is the key's id
    try:
        key = OKPKey.import_key(data)
        curve = key.curve_name
    except _UNUSABLE as error:
        raise InvalidArgument(f"no {CURVE} key: only those are taken as PEM ({_reason(error)})") from error
    if curve != CURVE:
        raise InvalidArgument(f"a key of {curve}; only {CURVE} is taken")
    if key.is_private and not signing:
        raise InvalidArgument(
            "a private key, which the broker must not have; give it the public one: openssl pkey -in FILE -pubout"
        )
    if signing and not key.is_private:
        raise InvalidArgument("a public key, which cannot sign; give the private one")
    return TokenKey(id, "EdDSA", key)


def _head(data: bytes) -> bytes:
    """The beginning of a file, to detect its format, even in UTF-16: a file that is not secret must never be mistaken
    for a secret.
    """
    return data[:4096].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")


def _read_set(id: str, data: bytes) -> tuple[TokenKey, ...]:  # noqa: A002 - it is the file's
    """The keys of a set that may have signed a token. Other keys are ignored: a set may serve other purposes too."""
    try:
        found = _set_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"no set of keys (JWKS): {_reason(error)}") from error
    usable = [key for key in found.keys if key.usable]
    if any(key.d is not msgspec.UNSET for key in usable):
        raise InvalidArgument("a set with a private key, which the broker must not have; take d out of it")
    if not 1 <= len(usable) <= MAX_KEYS:
        raise InvalidArgument(f"{len(usable)} keys of {CURVE} for signatures in this set; 1 to {MAX_KEYS} are allowed")
    try:
        return tuple(TokenKey(key.kid or id, "EdDSA", OKPKey.import_key(key.public)) for key in usable)
    except _UNUSABLE as error:
        raise InvalidArgument(f"a key in this set is none: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _text_of(data: bytes) -> bytes:
    """The text without the trailing newline added by an editor or a shell. Binary data is not changed."""
    text = data.removesuffix(b"\n").removesuffix(b"\r")
    return text if text.isascii() and text.decode().isprintable() else data


def signed(token: str, keys: Sequence[TokenKey]) -> Signed | None:
    """The payload, if one of the keys signed it; None if none did, or if it is not a token."""
    if len(token) > MAX_TOKEN:
        return None
    try:
        found = jws.extract_compact(token.encode("ascii"), registry=_registry)
        fitting = _candidates(found.headers(), keys)
        right = next((key for key in fitting if jws.validate_compact(found, key.key, registry=_registry)), None)
    except (JoseError, ValueError, TypeError, RecursionError):  # malformed, so not signed by us
        return None
    return None if right is None or found.payload is None else Signed(bytes(found.payload), right.kind)


class KeyPair(NamedTuple):
    """A new key pair, as PEM."""

    private: bytes
    public: bytes


def new_key_pair() -> KeyPair:
    key = OKPKey.generate_key(CURVE)
    return KeyPair(key.as_pem(private=True), key.as_pem(private=False))


def _candidates(header: Mapping[str, object], keys: Sequence[TokenKey]) -> Sequence[TokenKey]:
    """The keys with the algorithm in the header; among these only the one with its `kid`, if there is one.

    Not the library's `KeySet`, which picks a key by id or else at random: an issuer need not send a `kid`.
    """
    if "crit" in header:  # it requires an extension that we do not support
        return ()
    fitting = [key for key in keys if header.get("alg") in key.algorithms]
    named = [key for key in fitting if key.id == header.get("kid")]
    return named or fitting


def sign(claims: Mapping[str, object], key: TokenKey) -> str:
    """A signed token. Raises InvalidArgument for a public key."""
    if not key.signs:
        raise InvalidArgument("a public key cannot sign")
    header = {"typ": "JWT", "alg": key.kind, "kid": key.id}
    return jws.serialize_compact(header, msgspec.json.encode(claims), key.key, registry=_registry)
