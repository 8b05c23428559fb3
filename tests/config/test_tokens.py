"""Files with keys of tokens in the configuration, before the broker starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from penstock.broker.security import token_keys
from penstock.broker.security.token import TokenPolicy
from penstock.config.settings import ConfigError, KimberliteSection, SecuritySection, Settings
from penstock.config.tokens import token_policy


def settings(*keys: Path, tenants: tuple[str, ...] = ()) -> Settings:
    security = SecuritySection(token_keys=tuple(map(str, keys)), token_issuer="login", token_audience="us")
    return Settings(security=security, kimberlite=KimberliteSection(tenants=tenants))


def test_without_keys_no_token_is_taken() -> None:
    assert token_policy(Settings()) == TokenPolicy()


def test_keys_are_named_like_their_files_and_tenants_by_number(tmp_path: Path) -> None:
    secret, public = tmp_path / "2027-01.secret", tmp_path / "issuer.pem"
    secret.write_text("s" * 40 + "\n")
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    public.write_bytes(key.public_bytes(serialization.Encoding.PEM, shape))
    policy = token_policy(settings(secret, public, tenants=("7=acme", "08=beta=x")))
    assert [(key.id, key.kind) for key in policy.keys] == [("2027-01", "HS256"), ("issuer", "EdDSA")]
    assert (policy.issuer, policy.audience) == ("login", "us")
    assert policy.tenants == {"7": "acme", "8": "beta=x"}


def test_a_set_of_keys_counts_as_many_as_are_in_it(tmp_path: Path) -> None:
    def a_set(name: str, count: int) -> Path:
        keys = [token_keys.read(f"k{number}", token_keys.new_key_pair().public) for number in range(count)]
        members = [{**key.key.as_dict(private=False), "kid": key.id} for key in keys]
        (tmp_path / name).write_text(json.dumps({"keys": members}))
        return tmp_path / name

    policy = token_policy(settings(a_set("one.jwks.json", 2), a_set("two.json", 14)))
    assert [key.id for key in policy.keys[:3]] == ["k0", "k1", "k0"] and len(policy.keys) == 16
    with pytest.raises(ConfigError, match="17 keys in these files; 16 are allowed"):
        token_policy(settings(a_set("one.jwks.json", 9), a_set("two.json", 8)))


def test_a_file_that_is_not_there_or_holds_no_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token_keys: .*/missing: No such file"):
        token_policy(settings(tmp_path / "missing"))
    weak = tmp_path / "weak.secret"
    weak.write_text("secret")
    with pytest.raises(ConfigError, match=r"token_keys: .*/weak.secret: a secret has 32 .* this one 6"):
        token_policy(settings(weak))
    with pytest.raises(ConfigError, match="17 files; 16 are allowed"):
        token_policy(settings(*[weak] * 17))
