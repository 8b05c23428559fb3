"""Tokens that carry permissions themselves: which are taken, and what each action allows, where, and for how long."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc import jws
from tests.broker.broker_fixture import START, BrokerFixture
from tests.effort import scaled

from penstock.broker.errors import AccessDenied, InvalidArgument
from penstock.broker.names import Scope
from penstock.broker.security import token_claims, token_keys
from penstock.broker.security.access import (
    ADMINISTRATION,
    ADMINISTRATOR,
    Access,
    AccessPolicy,
    Grant,
    Identity,
    Permission,
)
from penstock.broker.security.audit_event import AuditPolicy, AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.token import TokenKey, TokenPolicy
from penstock.broker.security.token_permissions import ACTIONS, MAX_GRANTS, MAX_PERMISSION, MAX_STARS, grants, matches
from penstock.broker.security.user import Acl
from penstock.broker.topics.topic_settings import TopicSettings

PEER = "10.0.0.1:5000"
NOW = START // 1_000_000  # s
SECRET = b"0123456789abcdef0123456789abcdef"
PAIR = token_keys.new_key_pair()
SIGNER = token_keys.read("issuer", PAIR.private, signing=True)
PUBLIC = token_keys.read("issuer", PAIR.public)
SHARED = token_keys.read("shared", SECRET)
T1 = Scope("t1", "default")

READ, WRITE, DESCRIBE, CREATE = Permission.READ, Permission.WRITE, Permission.DESCRIBE, Permission.CREATE
CACHE_READ, CACHE_WRITE = Permission.CACHE_READ, Permission.CACHE_WRITE
MANAGED = {CREATE, Permission.DELETE, Permission.ALTER, DESCRIBE}


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(*perms: str, **changed: Any) -> dict[str, Any]:
    made = {"iss": "felix-auth", "aud": "felix-broker", "sub": "alice", "tid": "t1", "exp": NOW + 3600, "iat": NOW,
            "perms": list(perms), **changed}  # fmt: skip
    return {name: value for name, value in made.items() if value is not ...}


def signed(*perms: str, key: TokenKey = SIGNER, **changed: Any) -> str:
    return token_keys.sign(claims(*perms, **changed), key)


def fixture(*others: Grant, keys: tuple[TokenKey, ...] = (SHARED, PUBLIC), **options: Any) -> BrokerFixture:
    policy = {name: options.pop(name) for name in ("issuer", "audience", "tenants") if name in options}
    return BrokerFixture(
        access=AccessPolicy(True, [ADMINISTRATION, *others]), tokens=TokenPolicy(keys, **policy), **options
    )


def enter(one: BrokerFixture, text: str, tenant: str | None = "t1") -> Identity:
    found = one.broker.keys.authenticate(text, PEER, tenant=tenant)
    assert isinstance(found, Identity), refusals(one)
    return found


def refusals(one: BrokerFixture) -> list[str]:
    """The reasons of failed attempts in the audit log, oldest first."""
    one.commit()
    work = one.broker.audit.query(ADMINISTRATOR, "default", AuditQuery(types=("auth.failure",)))
    work.run()
    return [event.details["reason"] for event in reversed(work.finish().events)]


def allowed(one: BrokerFixture, who: Identity, scope: Scope, name: str) -> set[Permission]:
    return {permission for permission in Permission if one.broker.access.allows(who, permission, scope, name)}


# -- what they allow


ALLOWS = {
    "stream.publish:stream:t1/default/orders": {WRITE, DESCRIBE, CREATE},
    "stream.subscribe:stream:t1/default/orders": {READ, DESCRIBE},
    "cache.read:cache:t1/default/orders": {CACHE_READ},
    "cache.write:cache:t1/default/orders": {CACHE_WRITE},
    "stream.manage:stream:t1/default/orders": MANAGED,
    "ns.manage:namespace:t1/default": MANAGED,
    "ns.manage:ns:t1/default": MANAGED,
    "tenant.manage:tenant:t1": MANAGED,
}


@pytest.mark.parametrize(("text", "expected"), ALLOWS.items())
def test_what_each_action_allows_there_and_nowhere_else(text: str, expected: set[Permission]) -> None:
    one = fixture()
    who = enter(one, signed(text))
    assert allowed(one, who, T1, "orders") == expected
    wider = {"tenant.manage": 2, "ns.manage": 1}.get(text.partition(":")[0], 0)
    assert allowed(one, who, T1, "orders2") == (expected if wider else set())
    assert allowed(one, who, Scope("t1", "other"), "orders") == (expected if wider == 2 else set())
    assert allowed(one, who, Scope("t2", "default"), "orders") == set()
    for action in ACTIONS:
        assert action in {known.partition(":")[0] for known in ALLOWS}


@pytest.mark.parametrize("text", ALLOWS)
def test_what_is_about_another_tenant_allows_nothing(text: str) -> None:
    one = fixture()
    who = enter(one, signed(text.replace("t1", "t2")))
    for scope in (T1, Scope("t2", "default")):
        assert allowed(one, who, scope, "orders") == set()
    with pytest.raises(AccessDenied):
        one.broker.access.require_member(who, T1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stream.publish",
        "stream.publish:",
        "stream.publish:stream",
        "stream.publish:stream:",
        "stream.publish:stream:t1",
        "stream.publish:stream:t1/default",
        "stream.publish:t1/default/orders",
        "stream.publish:cache:t1/default/orders",
        "stream.publish:namespace:t1/default/orders",
        "stream.publish: stream:t1/default/orders",
        "stream.publish:stream: t1/default/orders",
        "stream.publish:stream:T1/default/orders",
        "stream.publish:stream:t1/default/order?",
        "stream.publish:stream:t1/default/[o]rders",
        "stream.publish:stream:t?/default/orders",
        "stream.publish:stream:t1/[d]efault/orders",
        "stream.publish:stream:t1/default/orders*!",
        "Stream.publish:stream:t1/default/orders",
        "stream.*:stream:t1/default/orders",
        "*:stream:t1/default/orders",
        "*",
        "admin",
        "cache.manage:cache:t1/default/orders",
        "rbac.policy.manage:tenant:t1",
        "ns.manage:namespace:t1/default/orders",
        "ns.manage:stream:t1/default/orders",
        "tenant.manage:tenant:t1/default/orders",
        "stream.publish:stream:t1/default/" + "*" * (MAX_STARS + 1),
        "stream.publish:stream:t1/default/*" + " " * MAX_PERMISSION,
        "\N{GRINNING FACE}:\0",
    ],
)
def test_what_is_malformed_or_unknown_allows_nothing_and_does_not_spoil_the_rest(text: str) -> None:
    one = fixture()
    alone, both = enter(one, signed(text)), enter(one, signed(text, "cache.read:cache:t1/default/*"))
    assert allowed(one, alone, T1, "orders") == set()
    assert allowed(one, both, T1, "orders") == {CACHE_READ}


@pytest.mark.parametrize(
    ("pattern", "there", "elsewhere"),
    [
        ("stream:t1/default/*", ["default/orders", "default/a/b"], ["other/orders"]),
        ("stream:t1/*", ["default/orders", "other/a/b"], []),
        ("stream:t1/*/orders", ["default/orders", "default/a/orders", "x/orders"], ["default/orders2"]),
        ("stream:t1/d*s", ["default/orders", "d/s", "default/a/s"], ["other/orders", "default/order"]),
        ("stream:*", ["default/orders"], []),
        ("*", ["default/orders"], []),
        ("str*:t*/or*", ["orders/x", "or/y", "default/orders"], ["x/y"]),
        ("stream:*1/default/o*d*s", ["default/orders", "default/ods"], ["default/order", "default/sod"]),
        ("stream:t1/default/a.b", ["default/a.b"], ["default/axb"]),
        ("stream:t1/default/?", ["default/?"], ["default/x"]),
        ("stream:t1/default/[ab]*", ["default/[ab]c"], ["default/a", "default/b"]),
        ("stream:t1*", ["default/orders"], []),
        ("stream:t2*", [], ["default/orders"]),
    ],
)
def test_a_star_is_any_run_of_characters_and_nothing_else_is_special(
    pattern: str, there: list[str], elsewhere: list[str]
) -> None:
    one = fixture()
    who = enter(one, signed(f"stream.publish:{pattern}"))
    for path in there + elsewhere:
        namespace, _, name = path.partition("/")
        assert one.broker.access.allows(who, WRITE, Scope("t1", namespace), name) is (path in there)
        assert not one.broker.access.allows(who, WRITE, Scope("t2", namespace), name)


def fits(text: str, pattern: str) -> bool:
    """The reference: each character in turn, every way to read a star."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return fits(text, pattern[1:]) or (text != "" and fits(text[1:], pattern))
    return text != "" and text[0] == pattern[0] and fits(text[1:], pattern[1:])


few = st.text("ab", min_size=1, max_size=3)
names = st.text("ab/?[]:-!", min_size=1, max_size=5)


@settings(max_examples=scaled(600), deadline=None)
@given(
    pattern=st.text("ab*/?[]:-!", max_size=12) | st.tuples(few, few, names).map("/".join),
    kind=st.sampled_from(["stream:", "*", "s*:"]),
    tenant=few,
    namespace=few,
    name=names,
)
@example(pattern="*", kind="*", tenant="a", namespace="b", name="c:d")
@example(pattern="*/*/*", kind="stream:", tenant="a", namespace="b", name="c")
@example(pattern="a/*b/*", kind="stream:", tenant="a", namespace="a", name="b/a")
def test_the_grants_match_what_the_whole_pattern_matches(
    pattern: str, kind: str, tenant: str, namespace: str, name: str
) -> None:
    pattern = kind + pattern
    who = Identity("token:x", tenant)
    made = grants(who.name, tenant, [f"stream.publish:{pattern}"])
    access = Access(True, grants_of=lambda _: made)
    expected = pattern.count("*") <= MAX_STARS and fits(f"stream:{tenant}/{namespace}/{name}", pattern)
    assert access.allows(who, WRITE, Scope(tenant, namespace), name) is expected
    assert matches(name, pattern) is fits(name, pattern)


def test_many_permissions_become_few_grants_and_many_stars_no_more_than_there_may_be() -> None:
    place = "stream:t1/default/orders"
    (grant,) = grants("token:x", "t1", [f"stream.publish:{place}", f"stream.subscribe:{place}"])
    assert grant == Grant("token:x", frozenset({READ, WRITE, DESCRIBE, CREATE}), "t1", "default", "orders")
    long = f"stream.publish:stream:t1/default/{'x' * MAX_PERMISSION}"
    assert grants("token:x", "t1", [long]) == () and len(grants("token:x", "t1", [long[:MAX_PERMISSION]])) == 1
    wild = [f"stream.publish:{'*a' * MAX_STARS}{number}" for number in range(1_000)]
    assert len(grants("token:x", "a", wild)) <= MAX_GRANTS


def test_a_token_without_a_usable_permission_may_do_what_everyone_may() -> None:
    one = fixture(Grant("*", frozenset({READ}), topic="open"))
    for text in (signed(), signed("nonsense")):
        who = enter(one, text)
        assert allowed(one, who, T1, "orders") == set()
        assert allowed(one, who, T1, "open") == {READ}


def test_lists_and_the_class_of_a_topic_count_for_them_as_for_others() -> None:
    one = fixture()
    one.broker.topics.create(ADMINISTRATOR, T1, "charts", 1, TopicSettings(data_class="PHI"))
    one.broker.users.set_acl(ADMINISTRATOR, T1, Acl("closed", False, ("bob",), (), True))
    one.broker.users.set_acl(ADMINISTRATOR, T1, Acl("listed", False, ("token:bob",)))
    who = enter(one, signed("stream.subscribe:stream:t1/*"))
    bob = enter(one, signed("nothing", sub="bob"))
    assert {name for name in ("charts", "closed", "listed", "x") if READ in allowed(one, who, T1, name)} == {
        "listed",
        "x",
    }
    assert READ in allowed(one, bob, T1, "listed")
    assert allowed(one, enter(one, signed("stream.subscribe:*", "cache.write:*")), T1, "__audit") == set()


def test_who_may_publish_may_bring_a_stream_into_being_and_who_may_subscribe_may_not() -> None:
    one = fixture()
    writer, reader = (
        enter(one, signed("stream.publish:stream:t1/*")),
        enter(one, signed("stream.subscribe:stream:t1/*")),
    )
    with pytest.raises(AccessDenied):
        one.broker.topics.create(reader, T1, "orders", 1)
    assert one.broker.topics.ensure(writer, T1, "orders").partitions == 1
    one.broker.produce.append(writer, T1, "orders", 0, [b"v"])
    with pytest.raises(AccessDenied):
        one.broker.fetch.plan(writer, T1, "orders", 0, 0, 100, 1)


# -- which are taken


def test_it_proves_a_subject_of_a_tenant_until_it_expires() -> None:
    one = fixture(Grant("*", frozenset({READ}), topic="open"), audit=AuditPolicy(enabled=True))
    text = signed("stream.subscribe:stream:t1/default/orders", exp=NOW + 10)
    who = enter(one, text)
    assert (who.name, who.tenant, who.peer, who.roles) == ("token:alice", "t1", PEER, ())
    assert who.expires == (NOW + 10 + token_claims.PERMISSIONS_LEEWAY) * 1_000_000
    one.pass_time(69)
    assert allowed(one, who, T1, "orders") == {READ, DESCRIBE}
    assert allowed(one, enter(one, text), T1, "open") == {READ}
    one.pass_time(1)
    for name in ("orders", "open"):
        assert allowed(one, who, T1, name) == set()  # not even what everyone may
    assert one.broker.keys.authenticate(text, PEER, tenant="t1") is None
    assert refusals(one) == ["it has expired"]


def test_the_key_may_be_named_or_not() -> None:
    one = fixture()
    key = SIGNER.key
    for header in ({}, {"kid": "issuer"}, {"kid": "what the control plane calls it"}):
        text = jws.serialize_compact(
            {"alg": "EdDSA", **header}, msgspec.json.encode(claims()), key, registry=token_keys._registry
        )
        assert enter(one, text).name == "token:alice"


@pytest.mark.parametrize("roles", [{}, {"roles": ["Admin"], "tenant_id": "t1"}, {"tid": ..., "tenant_id": "t1"}])
def test_permissions_that_a_secret_signed_are_refused_whatever_else_is_there(roles: dict[str, Any]) -> None:
    one = fixture(lockout=LockoutPolicy(1), audit=AuditPolicy(enabled=True))
    assert one.broker.keys.authenticate(signed("stream.publish:*", key=SHARED, **roles), PEER, tenant="t1") is None
    assert "signed with an Ed25519 key" in refusals(one)[0]


@pytest.mark.parametrize("secret", [PAIR.public, PAIR.public.strip(), SECRET])
@pytest.mark.parametrize("algorithm", ["HS256", "EdDSA", "none"])
def test_no_algorithm_is_taken_for_another(algorithm: str, secret: bytes) -> None:
    one = fixture()
    head, body = part(msgspec.json.encode({"alg": algorithm})), part(msgspec.json.encode(claims("stream.publish:*")))
    mac = part(hmac.digest(secret, f"{head}.{body}".encode(), hashlib.sha256))
    for signature in (mac, ""):
        assert one.broker.keys.authenticate(f"{head}.{body}.{signature}", "10.0.0.9", tenant="t1") is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "login"}, "another issuer"),
        ({"iss": ...}, "another issuer"),
        ({"aud": "penstock"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": ...}, "another audience"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": ...}, "claims"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"sub": ...}, "claims"),
        ({"sub": "a\nb"}, "not printable"),
        ({"tid": ...}, "claims"),
        ({"tid": 7}, "claims"),
        ({"tid": "*"}, "no tenant"),
        ({"tid": "t1/default"}, "no tenant"),
        ({"tid": "t2"}, "another tenant"),
        ({"perms": None}, "claims"),
        ({"perms": "stream.publish:*"}, "claims"),
        ({"perms": [1]}, "claims"),
        ({"perms": ["x"] * 1_001}, "claims"),
    ],
)
def test_what_was_signed_and_does_not_say_what_it_must(changed: dict[str, Any], why: str) -> None:
    one = fixture(lockout=LockoutPolicy(1), audit=AuditPolicy(enabled=True))
    text = signed(**({"perms": ["stream.publish:*"]} | changed))
    assert one.broker.keys.authenticate(text, PEER, tenant="t1") is None
    (told,) = refusals(one)
    assert why in told
    enter(one, signed())  # who has a token is not guessing: nobody is locked out


def test_clocks_may_differ_by_a_minute() -> None:
    enter(fixture(), signed(exp=NOW - 59, iat=NOW + 60, nbf=NOW + 60))


def test_the_names_that_are_configured_count_too_and_roles_still_need_them() -> None:
    one = fixture(issuer="login", audience="us")
    ours: list[dict[str, Any]] = [
        {},
        {"iss": "login", "aud": "us"},
        {"aud": ["x", "us"]},
        {"iss": "login", "aud": ["felix-broker"]},
    ]
    for changed in ours:
        enter(one, signed(**changed))
    others: list[dict[str, Any]] = [{"iss": "x"}, {"aud": "x"}]
    for changed in others:
        assert one.broker.keys.authenticate(signed(**changed), PEER, tenant="t1") is None
    roles: dict[str, Any] = {"perms": ..., "tid": ..., "tenant_id": "t1", "roles": ["User"]}
    assert one.broker.keys.authenticate(signed(**roles), PEER, tenant="t1") is None
    assert enter(one, signed(**roles, iss="login", aud="us")).roles == ("User",)


def test_a_number_is_a_name_here() -> None:
    assert enter(fixture(tenants={"7": "acme"}), signed(tid="7"), "7").tenant == "7"


# -- of the tenant that was named


def test_one_of_another_tenant_is_not_taken_whatever_it_is() -> None:
    one = fixture(lockout=LockoutPolicy(1), audit=AuditPolicy(enabled=True))
    key, _ = one.broker.keys.add(ADMINISTRATOR, KeyTerms("k", "t1", [CACHE_READ], ["sess*"]))
    roles = signed(perms=..., tid=..., tenant_id="t1", roles=["User"])
    for secret in (key.secret, roles, signed()):
        assert one.broker.keys.authenticate(secret, PEER, tenant="t2") is None
        assert one.broker.keys.authenticate(secret, PEER, tenant="") is None
        assert enter(one, secret).tenant == enter(one, secret, None).tenant == "t1"
    assert set(refusals(one)) == {"it is of another tenant"}
    assert one.broker.metrics.authentication_failures == 6 and one.broker.metrics.lockouts == 0
    who = enter(one, key.secret)
    assert allowed(one, who, T1, "sessions") == {CACHE_READ} and allowed(one, who, T1, "orders") == set()
    assert one.broker.keys.authenticate("psk_1_wrong", PEER, tenant="t1") is None
    assert one.broker.keys.authenticate("psk_1_wrong", PEER, tenant="t1") == "locked"
    assert enter(one, key.secret).tenant == "t1"


def test_an_identity_with_permissions_can_be_told_to_another_process() -> None:
    who = enter(fixture(), signed("stream.publish:stream:t1/default/*"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(who), type=Identity) == who
    assert hash(who) == hash(who._replace())


# -- sets of keys


def jwk(**changed: Any) -> dict[str, Any]:
    made = {"kty": "OKP", "kid": "k1", "alg": "EdDSA", "use": "sig", "crv": "Ed25519",
            "x": PUBLIC.key.as_dict(private=False)["x"], **changed}  # fmt: skip
    return {name: value for name, value in made.items() if value is not ...}


def jwks(*keys: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"keys": keys})


def test_a_set_of_keys_as_an_issuer_publishes_it() -> None:
    others: list[dict[str, Any]] = [
        {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"},
        {"kty": "oct", "kid": "o", "k": part(SECRET)},
        jwk(use="enc"),
        jwk(alg="RS256"),
        jwk(crv="X25519"),
    ]
    for data in (jwks(jwk()), jwks(*others, jwk()), b" \n" + jwks(jwk(alg=..., use=..., note=[1]))):
        (key,) = token_keys.read_all("file", data)
        assert (key.id, key.kind, key.signs) == ("k1", "EdDSA", False)
        one = fixture(keys=(key,))
        assert allowed(one, enter(one, signed("cache.read:*")), T1, "x") == {CACHE_READ}
    assert [key.id for key in token_keys.read_all("file", jwks(jwk(kid=...), jwk(kid="k2")))] == ["file", "k2"]
    assert [key.kind for key in token_keys.read_all("file", SECRET)] == ["HS256"]
    assert [key.kind for key in token_keys.read_all("file", PAIR.public)] == ["EdDSA"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (jwks(), "0 keys of Ed25519"),
        (jwks(jwk(kty="RSA")), "0 keys of Ed25519"),
        (jwks(*[jwk()] * 17), "17 keys"),
        (jwks(jwk(d="x")), "private key"),
        (jwks(jwk(x="")), "is none"),
        (jwks(jwk(x="AAAA")), "is none"),
        (jwks(jwk(x="!" * 43)), "is none"),
        (jwks(jwk(x=...)), "is none"),
        (msgspec.json.encode(jwk()), "no set of keys"),
        (b"{}" + b" " * 40, "no set of keys"),
        (b'{"keys": [' + b" " * 40, "no set of keys"),
        (b'{"keys": ' + b"[" * 5000, "no set of keys"),
        (jwks(jwk()).decode().encode("utf-16"), "no set of keys"),
        (b"\xef\xbb\xbf" + jwks(jwk()), "no set of keys"),
        (PAIR.public.decode().encode("utf-16"), "no Ed25519 key"),
    ],
)
def test_a_file_that_anybody_may_read_is_never_taken_for_a_secret(data: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        token_keys.read_all("k", data)


def test_a_set_does_not_sign() -> None:
    for signing in (True, False):
        with pytest.raises(InvalidArgument, match="a set of keys"):
            token_keys.read("k", jwks(jwk()), signing=signing)
