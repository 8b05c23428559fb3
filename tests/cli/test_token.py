"""`penstock token`, and what `penstock keys` and `penstock audit` do with roles and chains, without a broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from typer.testing import CliRunner, Result

from penstock.broker.security import audit_chain
from penstock.cli.main import app


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """With a secret, a pair of keys and a configuration that takes both."""
    (tmp_path / "shared.secret").write_text("s" * 32 + "\n")
    key = ed25519.Ed25519PrivateKey.generate()
    encoding, shape = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "private.pem").write_bytes(private)
    (tmp_path / "public.pem").write_bytes(key.public_key().public_bytes(encoding, shape))
    (tmp_path / "penstock.toml").write_text(
        f'data_dir = "{tmp_path}/data"\n'
        '[security]\nmode = "on"\ntoken_issuer = "login"\ntoken_audience = "us"\n'
        f'token_keys = ["{tmp_path}/shared.secret", "{tmp_path}/public.pem"]\n'
        '[log]\nfile_bytes = "4MiB"\n[kimberlite]\ntenants = ["7=acme"]\n'
    )
    return tmp_path


def penstock(place: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, [*arguments, "--config", str(place / "penstock.toml")], input=stdin)


def issue(place: Path, *arguments: str, key: str = "shared.secret") -> str:
    done = penstock(place, "token", "issue", "alice", "--key", str(place / key), *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("key", ["shared.secret", "private.pem"])
def test_a_token_that_was_issued_is_taken(place: Path, key: str) -> None:
    text = issue(place, "--role", "Admin", "--role", "phi", "--tenant", "7", "--lifetime", "2h", key=key)
    done = penstock(place, "token", "inspect", stdin=text + "\n")
    assert done.exit_code == 0, done.stderr
    head, said, verdict = (line.split("\t") for line in done.stdout.splitlines())
    claims = json.loads(said[1])
    assert claims["exp"] - claims["iat"] == 7200
    assert {name: claims[name] for name in ("sub", "tenant_id", "roles", "iss", "aud")} == {
        "sub": "alice", "tenant_id": 7, "roles": ["Admin", "phi"], "iss": "login", "aud": "us",
    }  # fmt: skip
    assert json.loads(head[1])["alg"] == ("HS256" if key == "shared.secret" else "EdDSA")
    assert re.fullmatch(r"token:alice in tenant acme as Admin, phi, until 20\d\d-.* UTC", verdict[1])


def test_one_is_told_why_a_token_would_not_be_taken(place: Path) -> None:
    text = issue(place, "--role", "User")
    for presented, why in (
        (text[:-2] + ("AA" if text[-2:] != "AA" else "BB"), "none of the configured keys has signed it"),
        (issue(place, "--role", "User", "--lifetime", "0s").replace("\n", ""), ""),
        ("nonsense", "this is no token"),
        ("eyJ!.x.y", "not JSON in base64"),
    ):
        done = penstock(place, "token", "inspect", presented)
        assert done.exit_code == (0 if not why else 1 if "configured" in why else 2) and why in done.stderr
    config = place / "penstock.toml"
    config.write_text(config.read_text().replace('"us"', '"them"'))
    done = penstock(place, "token", "inspect", text)
    assert done.exit_code == 1 and "not taken: it is for another audience" in done.stderr
    config.write_text(re.sub("token_keys.*", "", config.read_text()))
    done = penstock(place, "token", "inspect", text)
    assert done.exit_code == 0 and "the signature was not checked" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--key", "public.pem"), "cannot sign"),
        (("--key", "missing"), "No such file"),
        (("--key", "shared.secret", "--tenant", "a/b"), "no tenant can have that name"),
        (("--key", "shared.secret", "--lifetime", "soon"), "--lifetime soon"),
    ],
)
def test_what_cannot_be_issued(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(place)
    done = penstock(place, "token", "issue", "alice", "--role", "User", *arguments)
    assert done.exit_code == 2 and text in done.stderr and not done.stdout


def test_a_token_with_permissions_is_issued_and_taken(place: Path) -> None:
    publish, read = "stream.publish:stream:t1/default/*", "cache.read:cache:t1/*"
    text = issue(place, "--perm", publish, "--perm", read, "--tenant", "t1", key="private.pem")
    done = penstock(place, "token", "inspect", stdin=text + "\n")
    assert done.exit_code == 0, done.stderr
    _, said, verdict = (line.split("\t") for line in done.stdout.splitlines())
    claims = json.loads(said[1])
    assert claims.pop("exp") - claims.pop("iat") == 3600
    assert claims == {
        "sub": "alice", "tid": "t1", "perms": [publish, read], "iss": "felix-auth", "aud": "felix-broker",
    }  # fmt: skip
    allowed = "token:alice in tenant t1 with write, describe, create, cache-read, until 20"
    assert verdict[1].startswith(allowed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--key", "shared.secret", "--perm", "cache.read:*"), "signed with an Ed25519 key"),
        (("--key", "private.pem", "--perm", "cache.read:*", "--role", "User"), "roles (--role) or permissions"),
        (("--key", "private.pem"), "roles (--role) or permissions"),
        (("--key", "private.pem", "--perm", "x" * 9000), "8192 are allowed"),
        (("--key", "private.pem", "--perm", "cache.read:*", "--tenant", "a/b"), "no tenant can have that name"),
    ],
)
def test_what_of_permissions_cannot_be_issued(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(place)
    done = penstock(place, "token", "issue", "alice", *arguments)
    assert done.exit_code == 2 and text in done.stderr and not done.stdout


def test_a_permission_that_means_nothing_is_pointed_out(place: Path) -> None:
    arguments = ("--perm", "cache.read:cache:t2/*", "--perm", "cache.read:cache:t1/*", "--tenant", "t1")
    done = penstock(place, "token", "issue", "a", "--key", str(place / "private.pem"), *arguments)
    assert done.exit_code == 0 and done.stderr == "note: permission cache.read:cache:t2/* means nothing in tenant t1\n"


def test_a_pair_of_keys_is_made_and_nothing_is_overwritten(place: Path) -> None:
    private, public = place / "issuer.key", place / "shared.pem"

    def key(*paths: Path) -> Result:
        return CliRunner().invoke(app, ["token", "key", *map(str, paths)])

    assert key(private, place / "public.pem").exit_code == 2 and not private.exists()
    done = key(private, public)
    assert done.exit_code == 0, done.stderr
    assert private.stat().st_mode & 0o777 == 0o600 and "keep it from others" in done.stderr
    before = private.read_bytes()
    done = key(private, place / "other.pem")
    assert done.exit_code == 2 and "there is such a file already" in done.stderr and private.read_bytes() == before
    config = place / "penstock.toml"
    config.write_text(config.read_text().replace("shared.secret", "shared.pem"))
    text = issue(place, "--perm", "cache.read:*", key="issuer.key")
    assert penstock(place, "token", "inspect", text).exit_code == 0
    done = key(place / "missing" / "issuer.key", place / "x.pem")
    assert done.exit_code == 2 and "No such file" in done.stderr and not (place / "x.pem").exists()


def test_a_role_that_only_a_tenant_could_know_is_pointed_out(place: Path) -> None:
    done = penstock(place, "token", "issue", "a", "--role", "clerk", "--key", str(place / "shared.secret"))
    assert done.exit_code == 0 and "role clerk means nothing unless" in done.stderr


def test_keys_with_roles_are_added_listed_and_replaced(place: Path) -> None:
    done = penstock(place, "keys", "add", "reports", "--role", "Analyst", "--role", "phi")
    assert done.exit_code == 0 and "as Analyst, phi on * in tenant default" in done.stderr
    first = done.stdout.strip()
    done = penstock(place, "keys", "rotate", "1")
    assert done.exit_code == 0 and done.stdout.startswith("psk_2_") and done.stdout.strip() != first
    rows = [line.split("\t") for line in penstock(place, "keys", "list").stdout.splitlines()[1:]]
    assert [(row[0], row[8], row[7]) for row in rows] == [
        ("1", "Analyst,phi", "revoked"),
        ("2", "Analyst,phi", "active"),
    ]
    for arguments, text in (
        (("add", "x"), "--allow, or --role"),
        (("add", "x", "--role", "clerk"), "no role 'clerk'"),
        (("rotate", "1"), "counts no longer"),
        (("rotate", "9"), "no key 9"),
    ):
        done = penstock(place, "keys", *arguments)
        assert done.exit_code and text in done.stderr


def test_the_audit_log_is_verified_and_what_was_changed_is_pointed_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.audit.STEP", 2)
    for name in ("a", "b", "c"):
        assert penstock(place, "keys", "add", name, "--role", "user").exit_code == 0
    done = penstock(place, "audit", "verify")
    assert done.exit_code == 0, done.stderr
    assert "3 events, 3 of them chained" in done.stdout and re.search(r"^head\t[0-9a-f]{64}$", done.stdout, re.M)
    assert done.stderr == "2 of 3 events\n"  # how far it is
    assert len(penstock(place, "audit").stdout.splitlines()) == 4
    monkeypatch.setattr(audit_chain, "link", lambda before, document: before[:0] or document[:32])
    done = penstock(place, "audit", "verify")
    assert done.exit_code == 1 and "is not what was written: the event at offset 0 was changed (event 0)" in done.stderr
