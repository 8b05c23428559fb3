"""API keys through the broker: who gets in, what they may do, and what is kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.broker.broker_fixture import START, BrokerFixture

from penstock.broker.errors import AccessDenied, BrokerError, InvalidArgument, InvalidName, KeyNotFound, LimitReached
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security import key as keys
from penstock.broker.security.access import (
    ADMINISTRATION,
    ADMINISTRATOR,
    ANONYMOUS,
    AccessPolicy,
    Grant,
    Identity,
    Permission,
)
from penstock.broker.security.key import Key, KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.state import events
from penstock.broker.state.state import decode_snapshot, encode_snapshot

READ, WRITE, CREATE = Permission.READ, Permission.WRITE, Permission.CREATE
PEER = "10.0.0.1:5000"
CHOSEN = "a key from the old days"
DAY = 86_400_000_000  # µs


def secured(*grants: Grant, **options: Any) -> BrokerFixture:
    return BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION, *grants]), **options)


def add(fixture: BrokerFixture, chosen: str | None = None, **terms: Any) -> tuple[Key, str]:
    wish = {"name": "billing", "tenant": "default", "permissions": [READ, WRITE, CREATE], **terms}
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms(**wish), chosen)
    fixture.commit()
    return new


def enter(fixture: BrokerFixture, secret: str, peer: str = PEER) -> Identity:
    found = fixture.broker.keys.authenticate(secret, peer, fixture.now)
    assert isinstance(found, Identity)
    return found


def produce(fixture: BrokerFixture, who: Identity, topic: str = "orders", scope: Scope = DEFAULT_SCOPE) -> None:
    fixture.broker.topics.ensure(who, scope, topic)
    fixture.broker.produce.append(who, scope, topic, 0, [b"v"])
    fixture.commit()


def test_a_key_is_random_names_its_number_and_only_its_hash_is_kept() -> None:
    fixture = secured()
    (first, secret), (_, other) = add(fixture), add(fixture)
    assert re.fullmatch(r"psk_1_[A-Za-z0-9_-]{43}", secret) and re.fullmatch(r"psk_2_[A-Za-z0-9_-]{43}", other)
    assert secret[6:] != other[6:]
    assert first.hash == hashlib.sha256(secret.encode()).digest()
    assert enter(fixture, secret) == Identity("key:1", "default", PEER)
    assert enter(fixture, other) == Identity("key:2", "default", PEER)
    files = [fixture.disk.open(f"journal/{name}", writable=False) for name in fixture.disk.list("journal")]
    kept = b"".join(file.read(0, file.size()) for file in files) + encode_snapshot(fixture.broker.state_log.state)
    assert first.hash in kept
    assert secret[6:].encode() not in kept and secret[6:] not in repr(fixture.broker.keys.list(ADMINISTRATOR))


@pytest.mark.parametrize("chosen", [None, CHOSEN])
@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + "x", lambda s: s[:-1] + "!", lambda s: s.upper()])
def test_a_key_that_is_not_quite_right_is_wrong(chosen: str | None, change: Any) -> None:
    fixture = secured()
    _, secret = add(fixture, chosen)
    assert fixture.broker.keys.authenticate(change(secret), PEER) is None


@pytest.mark.parametrize(
    "presented",
    ["", "psk_", "psk_1", "psk_1_", "psk_9_" + "A" * 43, "psk_²_x", "psk_-1_x", "psk_" + "9" * 500 + "_x", "x" * 60_000,
     "\ud800" * 20, "\0"],
)  # fmt: skip
def test_nonsense_is_nobodys_key(presented: str) -> None:
    fixture = secured()
    add(fixture)
    add(fixture, CHOSEN)
    assert fixture.broker.keys.authenticate(presented, PEER) is None
    assert "authentication_failures_total 1.0" in fixture.broker.exposition.text()


def test_one_keys_secret_does_not_open_another() -> None:
    fixture = secured()
    (_, first), _ = add(fixture), add(fixture)
    assert fixture.broker.keys.authenticate(first.replace("psk_1_", "psk_2_"), PEER) is None


def test_with_security_off_every_key_is_taken_and_nobody_is_locked_out() -> None:
    fixture = BrokerFixture()
    for _ in range(10):
        assert fixture.broker.keys.authenticate("whatever", PEER) == ANONYMOUS._replace(peer=PEER)
    fixture.broker.topics.create(ANONYMOUS, Scope("any", "where"), "t", 1)


# -- what a key may do


def test_a_key_may_do_what_it_was_given_in_its_tenant_and_no_more() -> None:
    fixture = secured()
    _, secret = add(fixture, topics=["orders.*", "mail"], permissions=[WRITE, CREATE])
    who = enter(fixture, secret)
    produce(fixture, who, "orders.eu")
    produce(fixture, who, "mail")
    refusals: list[Callable[[], object]] = [
        lambda: produce(fixture, who, "salaries"),
        lambda: produce(fixture, who, "orders.eu", Scope("acme", "default")),
        lambda: fixture.broker.fetch.plan(who, DEFAULT_SCOPE, "orders.eu", 0, 0, 1, 1),
        lambda: fixture.broker.keys.list(who),
        lambda: fixture.broker.metrics_text(who),
    ]
    for refused in refusals:
        with pytest.raises(AccessDenied):
            refused()


def test_an_administrators_key_is_bound_to_its_tenant() -> None:
    fixture = secured()
    _, secret = add(fixture, tenant="acme", permissions=[Permission.ADMIN])
    who = enter(fixture, secret)
    produce(fixture, who, scope=Scope("acme", "eu"))
    fixture.broker.topics.delete(who, Scope("acme", "eu"), "orders")
    refusals: list[Callable[[], object]] = [lambda: produce(fixture, who), lambda: fixture.broker.keys.list(who)]
    for refused in refusals:
        with pytest.raises(AccessDenied):
            refused()


def admin_of(fixture: BrokerFixture, tenant: str) -> Identity:
    return enter(fixture, add(fixture, tenant=tenant, permissions=[Permission.ADMIN])[1])


def test_a_tenants_administrator_has_the_keys_of_that_tenant_and_hears_of_no_other() -> None:
    fixture = secured()
    who = admin_of(fixture, "acme")
    other, secret = add(fixture)
    keys = fixture.broker.keys
    new, _ = keys.add(who, KeyTerms("own", "acme", [READ]))
    fixture.commit()
    assert [key.id for key in keys.list(who, "acme")] == [1, new.key.id]
    assert keys.find(who, new.secret) == keys.find(who, str(new.key.id)) == keys.find(who, "key:3") == new.key
    for refused in (
        lambda: keys.list(who, "default"),
        lambda: keys.add(who, KeyTerms("theirs", "default", [READ])),
    ):
        with pytest.raises(AccessDenied):
            refused()
    for named, stranger in ((secret, "no such key"), (str(other.id), "no key 2"), ("99", "no key 99")):
        for attempt in (keys.find, keys.rotate):
            with pytest.raises(KeyNotFound, match=stranger):
                attempt(who, named)
    with pytest.raises(KeyNotFound, match="There is no key 2"):
        keys.revoke(who, other.id)
    assert enter(fixture, secret).name == "key:2"
    assert keys.revoke(who, new.key.id) is not None
    assert keys.authenticate(new.secret, PEER) is None


def test_a_tenants_administrator_neither_chooses_keys_nor_uses_up_the_room_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "MAX_OF_TENANT", 2)
    fixture = secured()
    who = admin_of(fixture, "acme")
    with pytest.raises(InvalidArgument, match="choose"):
        fixture.broker.keys.add(who, KeyTerms("own", "acme", [READ]), CHOSEN)
    fixture.broker.keys.add(who, KeyTerms("own", "acme", [READ]))
    with pytest.raises(LimitReached, match="Tenant 'acme' has 2 keys"):
        fixture.broker.keys.add(who, KeyTerms("own", "acme", [READ]))
    add(fixture, tenant="acme")  # by who administers all


def test_who_administers_nothing_learns_nothing_about_keys() -> None:
    fixture = secured()
    _, secret = add(fixture)
    who = enter(fixture, secret)
    for attempt in (fixture.broker.keys.find, fixture.broker.keys.rotate):
        for named in (secret, "1", "99", "nonsense"):
            with pytest.raises(AccessDenied):
                attempt(who, named)


def test_a_key_is_replaced_by_another_on_the_same_terms_at_once_and_for_good() -> None:
    fixture = secured()
    old, secret = add(fixture, topics=["orders"], expires=START + DAY)
    who = enter(fixture, secret)
    new, _ = fixture.broker.keys.rotate(ADMINISTRATOR, secret)
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    with pytest.raises(AccessDenied):
        produce(fixture, who)
    fixture.commit()
    fixture.restart()
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    produce(fixture, enter(fixture, new.secret))
    listed = {key.id: key for key in fixture.broker.keys.list(ADMINISTRATOR)}
    assert keys.terms_of(listed[new.key.id]) == keys.terms_of(old) and listed[old.id].revoked == fixture.now
    with pytest.raises(KeyNotFound, match="counts no longer"):
        fixture.broker.keys.rotate(ADMINISTRATOR, secret)


def test_a_replacement_that_is_not_committed_leaves_the_old_key() -> None:
    fixture = secured()
    _, secret = add(fixture)
    fault = fixture.fill_disk()
    new, group = fixture.broker.keys.rotate(ADMINISTRATOR, secret)
    fixture.commit()
    fixture.free_disk(fault)
    assert group.error
    assert enter(fixture, secret).name == "key:1"
    assert fixture.broker.keys.authenticate(new.secret, PEER) is None


def test_a_key_with_roles_may_do_what_they_allow_and_keeps_them() -> None:
    fixture = secured()
    produce(fixture, enter(fixture, add(fixture)[1]), "audit_x")
    _, secret = add(fixture, permissions=[], roles=["Analyst"])
    _, both = add(fixture, permissions=[WRITE], roles=["auditor"])
    fixture.commit()
    fixture.restart()
    assert enter(fixture, secret) == Identity("key:2", "default", PEER, roles=("Analyst",))
    allows = fixture.broker.access.allows
    analyst, mixed = enter(fixture, secret), enter(fixture, both)
    assert allows(analyst, READ, DEFAULT_SCOPE, "orders") and not allows(analyst, READ, DEFAULT_SCOPE, "audit_x")
    assert not allows(analyst, WRITE, DEFAULT_SCOPE, "orders")
    assert allows(mixed, READ, DEFAULT_SCOPE, "audit_x") and allows(mixed, WRITE, DEFAULT_SCOPE, "orders")
    assert not allows(mixed, READ, DEFAULT_SCOPE, "orders") and not allows(mixed, READ, Scope("acme", "x"), "audit_x")
    fixture.broker.keys.revoke(ADMINISTRATOR, 2)
    assert not allows(analyst, READ, DEFAULT_SCOPE, "orders")


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"permissions": []}, "at least one permission or role"),
        ({"roles": ["nobody"]}, "no role 'nobody' in tenant 'default'; there are admin, .*auditor"),
        ({"roles": ["user"], "topics": ["orders"]}, "everywhere in a tenant"),
        ({"roles": ["user"] * 101}, "at most 100 roles"),
    ],
)
def test_roles_of_a_key_that_make_no_sense(terms: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        add(secured(), **terms)


def test_a_key_that_was_kept_before_keys_had_roles_is_read() -> None:
    fixture = secured()
    key, _ = add(fixture)
    data = msgspec.msgpack.encode(key)
    old = msgspec.msgpack.encode(msgspec.msgpack.decode(data)[:-1])
    assert msgspec.msgpack.decode(old, type=Key) == key
    event = ["key+", 1, "n", b"h", "default", ["read"], ["*"], "*", 1, None, b"", 0]
    decoded = events.decode(msgspec.msgpack.encode(event))
    assert isinstance(decoded, events.KeyAdded) and decoded.roles == []


def test_an_expiry_in_nanoseconds() -> None:
    assert keys.expiry(None) is None and keys.expiry(1_700_000_000_123_456_789) == 1_700_000_000_123_456


def test_what_everyone_may_do_a_key_may_do_while_it_counts() -> None:
    fixture = secured(Grant("*", frozenset({WRITE, CREATE}), topic="public"))
    key, secret = add(fixture, topics=["own"])
    who = enter(fixture, secret)
    produce(fixture, who, "public")
    fixture.broker.keys.revoke(ADMINISTRATOR, key.id)
    with pytest.raises(AccessDenied):
        produce(fixture, who, "public")


def test_what_everyone_may_do_everywhere_a_key_may_do_in_its_tenant_only() -> None:
    fixture = secured(Grant("*", frozenset({WRITE, CREATE}), topic="public"))
    who = enter(fixture, add(fixture, tenant="acme", topics=["own"])[1])
    produce(fixture, who, "public", Scope("acme", "default"))
    with pytest.raises(AccessDenied):
        produce(fixture, who, "public")


def test_a_grant_in_the_configuration_cannot_outlive_a_key() -> None:
    fixture = secured(Grant("key:1", frozenset({Permission.ADMIN})), Grant("key:x", frozenset({Permission.ADMIN})))
    _, secret = add(fixture, topics=["own"])
    who = enter(fixture, secret)
    for name in ("key:1", "key:x", "key:", "key:²"):
        with pytest.raises(AccessDenied):
            produce(fixture, Identity(name, who.tenant), "other")


# -- the end of a key


@pytest.mark.parametrize("chosen", [None, CHOSEN])
def test_revoking_acts_at_once_also_on_who_is_in_already(chosen: str | None) -> None:
    fixture = secured()
    (key, secret), (_, other) = add(fixture, chosen), add(fixture)
    who, neighbour = enter(fixture, secret), enter(fixture, other)
    produce(fixture, who)
    fixture.broker.keys.revoke(ADMINISTRATOR, key.id)  # not committed yet
    with pytest.raises(AccessDenied):
        produce(fixture, who)
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    produce(fixture, neighbour)
    fixture.restart()
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    assert [key.state(fixture.now) for key in fixture.broker.keys.list(ADMINISTRATOR)] == ["revoked", "active"]


def test_revoking_twice_changes_nothing_and_an_unknown_key_is_told() -> None:
    fixture = secured()
    add(fixture)
    fixture.broker.keys.revoke(ADMINISTRATOR, 1)
    fixture.commit()
    position = fixture.broker.position
    assert fixture.broker.keys.revoke(ADMINISTRATOR, 1) is None
    fixture.commit()
    assert fixture.broker.position == position
    with pytest.raises(KeyNotFound, match="no key 2"):
        fixture.broker.keys.revoke(ADMINISTRATOR, 2)


def test_a_key_ends_when_its_time_has_come_also_for_who_is_in_already() -> None:
    fixture = secured()
    _, secret = add(fixture, expires=START + DAY)
    who = enter(fixture, secret)
    fixture.now = START + DAY - 1
    produce(fixture, who)
    assert fixture.broker.keys.authenticate(secret, PEER, fixture.now) == who
    fixture.now = START + DAY
    assert fixture.broker.keys.authenticate(secret, PEER, fixture.now) is None
    with pytest.raises(AccessDenied):
        produce(fixture, who)
    assert fixture.broker.keys.list(ADMINISTRATOR)[0].state(fixture.now) == "expired"


# -- what is kept


def test_keys_are_there_after_a_restart_and_numbers_are_not_used_again() -> None:
    fixture = secured()
    (_, generated), (_, chosen), (third, revoked) = (
        add(fixture, expires=START + DAY),
        add(fixture, CHOSEN),
        add(fixture),
    )
    fixture.broker.keys.revoke(ADMINISTRATOR, third.id)
    fixture.commit()
    before = fixture.broker.keys.list(ADMINISTRATOR)
    fixture.restart()
    assert fixture.broker.keys.list(ADMINISTRATOR) == before
    assert [enter(fixture, secret).name for secret in (generated, chosen)] == ["key:1", "key:2"]
    assert fixture.broker.keys.authenticate(revoked, PEER) is None
    assert add(fixture)[0].id == 4


def test_a_snapshot_keeps_keys_and_one_without_any_can_be_read() -> None:
    fixture = secured()
    add(fixture, expires=START + DAY)
    add(fixture, CHOSEN)
    fixture.broker.keys.revoke(ADMINISTRATOR, 2)
    state = fixture.broker.state_log.state
    restored = decode_snapshot(encode_snapshot(state))
    assert restored.keys == state.keys and restored.next_key_id == 3
    old = decode_snapshot(b"\x95\x01\x01\x90\x90\x90")  # as it was before there were keys
    assert old.keys == {} and old.next_key_id == 1


def test_a_key_whose_commit_failed_never_was() -> None:
    fixture = secured()
    fixture.fill_disk()
    _, secret = add(fixture)
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    assert fixture.broker.keys.list(ADMINISTRATOR) == []


def test_a_key_whose_revocation_failed_still_counts() -> None:
    fixture = secured()
    _, secret = add(fixture)
    enter(fixture, secret)
    fixture.fill_disk()
    fixture.broker.keys.revoke(ADMINISTRATOR, 1)
    assert fixture.broker.keys.authenticate(secret, PEER) is None
    fixture.commit()
    assert enter(fixture, secret).name == "key:1"


def test_only_the_last_revoked_keys_are_remembered_and_they_do_not_count_for_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "KEPT_REVOKED", 2)
    monkeypatch.setattr(keys, "MAX_KEYS", 3)
    fixture = secured()
    for _ in range(3):
        add(fixture)
    with pytest.raises(LimitReached):
        add(fixture)
    for number in (3, 1, 2):
        fixture.broker.keys.revoke(ADMINISTRATOR, number)
    fixture.commit()
    assert [key.id for key in fixture.broker.keys.list(ADMINISTRATOR)] == [1, 2]
    assert add(fixture)[0].id == 4


# -- keys that somebody chose


def test_a_chosen_key_is_kept_with_scrypt_and_a_salt_of_this_broker() -> None:
    first, second = secured(), secured()
    (one, _), (two, _) = add(first, CHOSEN), add(second, CHOSEN)
    assert one.salt != two.salt and len(one.salt) == 16 and one.hash != two.hash
    assert one.hash == hashlib.scrypt(CHOSEN.encode(), salt=one.salt, n=1 << one.cost, r=8, p=1, dklen=32)
    (other, _) = add(first, CHOSEN + "2")
    assert enter(first, CHOSEN).name == "key:1" and enter(first, CHOSEN + "2").name == "key:2"
    assert other.hash != one.hash


def test_a_chosen_key_is_hashed_slowly_once_and_a_wrong_one_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = secured()
    add(fixture, CHOSEN)
    add(fixture, CHOSEN + "2")
    calls: list[bytes] = []
    scrypt = hashlib.scrypt

    def counted(password: bytes, **more: Any) -> bytes:
        calls.append(password)
        return scrypt(password, **more)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    for _ in range(3):
        enter(fixture, CHOSEN)
    assert len(calls) == 1
    assert fixture.broker.keys.authenticate("not a key at all", PEER) is None
    assert len(calls) == 2


def test_the_same_key_cannot_be_chosen_twice_while_it_counts() -> None:
    fixture = secured()
    add(fixture, CHOSEN)
    with pytest.raises(InvalidArgument, match="already"):
        add(fixture, CHOSEN)
    fixture.broker.keys.revoke(ADMINISTRATOR, 1)
    add(fixture, CHOSEN)
    assert enter(fixture, CHOSEN).name == "key:2"


@pytest.mark.parametrize(
    "chosen", ["", "fifteen letters", "x" * 1025, "psk_1_" + "A" * 43, " " * 20, "with a tab\there !"]
)
def test_what_cannot_be_chosen(chosen: str) -> None:
    fixture = secured()
    with pytest.raises(InvalidArgument):
        add(fixture, chosen)
    assert fixture.broker.keys.list(ADMINISTRATOR) == []


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        ({"name": ""}, InvalidArgument),
        ({"name": "a\nb"}, InvalidArgument),
        ({"name": "x" * 256}, InvalidArgument),
        ({"tenant": "*"}, InvalidName),
        ({"tenant": ""}, InvalidName),
        ({"permissions": []}, InvalidArgument),
        ({"permissions": [Permission.METRICS]}, InvalidArgument),
        ({"topics": []}, InvalidArgument),
        ({"topics": [""]}, InvalidArgument),
        ({"topics": ["x"] * 101}, InvalidArgument),
        ({"namespace": ""}, InvalidArgument),
        ({"expires": START}, InvalidArgument),
        ({"expires": 1 << 62}, InvalidArgument),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any], error: type[BrokerError]) -> None:
    fixture = secured()
    with pytest.raises(error):
        add(fixture, **terms)
    assert fixture.broker.keys.list(ADMINISTRATOR) == []


# -- lock-out


CHOSEN = "a key that somebody chose"


@pytest.mark.parametrize("how", ["expired", "revoked", "wrong", "unknown"])
def test_five_wrong_secrets_of_a_key_lock_that_key_at_that_host_and_no_valid_one(how: str) -> None:
    fixture = secured()
    key, secret = add(fixture)
    expired = add(fixture, expires=START + 1)[1]
    revoked, lost = add(fixture)
    add(fixture, chosen=CHOSEN)
    fixture.broker.keys.revoke(ADMINISTRATOR, revoked.id)
    fixture.now += 1
    presented = {"expired": expired, "revoked": lost, "wrong": "psk_1_no", "unknown": "psk_99_no"}[how]
    for _ in range(5):
        assert fixture.broker.keys.authenticate(presented, PEER, fixture.now) is None
    assert fixture.broker.keys.authenticate(presented, "10.0.0.1:6000", fixture.now) == "locked"
    assert fixture.broker.keys.authenticate(presented, "10.0.0.2:5000", fixture.now) is None
    assert enter(fixture, secret).name == key.principal  # nobody can have guessed it
    assert enter(fixture, CHOSEN).name == "key:4"
    fixture.pass_time(60)
    assert fixture.broker.keys.authenticate(presented, PEER, fixture.now) is None
    text = fixture.broker.exposition.text()
    assert "authentication_failures_total 7.0" in text and "\npenstock_lockouts_total 1.0" in text


def test_the_same_wrong_key_again_and_again_is_told_to_wait_and_others_are_not() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    add(fixture, chosen=CHOSEN)
    verdicts = [fixture.broker.keys.authenticate("wrong", PEER) for _ in range(4)]
    assert verdicts == [None, None, "locked", "locked"]
    assert fixture.broker.keys.authenticate("another", PEER) is None
    assert enter(fixture, CHOSEN).name == "key:1"


def test_a_host_that_guesses_very_often_gets_no_chosen_key_checked_that_it_has_not_shown_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    key, secret = add(fixture)
    add(fixture, chosen=CHOSEN)
    add(fixture, chosen=CHOSEN + " as well")
    enter(fixture, CHOSEN)
    enter(fixture, CHOSEN + " as well", "10.0.0.2:5000")
    for number in range(40):
        assert fixture.broker.keys.authenticate(f"guess {number}", PEER) is None

    def scrypt(*_: Any, **__: Any) -> bytes:
        raise AssertionError("it is too expensive for a host that guesses")

    monkeypatch.setattr("hashlib.scrypt", scrypt)
    assert fixture.broker.keys.authenticate("one more guess", PEER) == "locked"
    assert fixture.broker.keys.authenticate(CHOSEN + " as well", PEER) == "locked"
    assert enter(fixture, CHOSEN).name == "key:2"
    assert enter(fixture, secret).name == key.principal
    assert enter(fixture, CHOSEN + " as well", "10.0.0.2:5000").name == "key:3"
    fixture.pass_time(30)
    assert enter(fixture, CHOSEN + " as well").name == "key:3"


def test_who_is_in_already_stays_in_when_its_key_is_locked() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    _, secret = add(fixture)
    who = enter(fixture, secret)
    for _ in range(2):
        fixture.broker.keys.authenticate("psk_1_wrong", PEER)
    assert fixture.broker.keys.authenticate("psk_1_wrong", PEER) == "locked"
    produce(fixture, who)


def test_a_right_key_in_between_does_not_reset_the_count() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    _, secret = add(fixture)
    fixture.broker.keys.authenticate("psk_1_wrong", PEER)
    enter(fixture, secret)
    fixture.broker.keys.authenticate("psk_1_wrong", PEER)
    assert fixture.broker.keys.authenticate("psk_1_wrong", PEER) == "locked"
