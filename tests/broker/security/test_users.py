"""Users, roles and access lists through the broker: who gets in, what they may do, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import argon2
import pytest
from tests.broker.broker_fixture import START, BrokerFixture, committed, later

from penstock.broker.errors import (
    AccessDenied,
    BrokerError,
    InvalidArgument,
    InvalidName,
    LimitReached,
    RoleNotFound,
    ShuttingDown,
    UserExists,
    UserNotFound,
    WrongPassword,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security import users
from penstock.broker.security.access import (
    ADMINISTRATION,
    ADMINISTRATOR,
    ANONYMOUS,
    OF_CACHES,
    AccessPolicy,
    Grant,
    Identity,
    Permission,
)
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.passwords import PasswordCost, PasswordHashing
from penstock.broker.security.user import BUILT_IN, Acl, User, UserPolicy
from penstock.broker.security.users import CurrentUser, LoginRefusal, LoginVerdict
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.log.engine import CommitGroup

T = "default"
PEER = "10.0.0.1:5000"
WORD = "correct horse"
READ, WRITE, COMMIT, DESCRIBE = Permission.READ, Permission.WRITE, Permission.COMMIT, Permission.DESCRIBE
ADMIN = Permission.ADMIN
OF_TOPICS = set(Permission) - OF_CACHES


def secured(*grants: Grant, **options: Any) -> BrokerFixture:
    return BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION, *grants]), **options)


def done(work: Deferred[Any, Any]) -> Any:
    work.run()
    return work.finish()


def add(fixture: BrokerFixture, name: str, *roles: str, tenant: str = T, by: Identity = ADMINISTRATOR) -> User:
    user, _ = done(fixture.broker.users.create(by, tenant, name, WORD, roles))
    fixture.commit()
    assert isinstance(user, User)
    return user


def login(fixture: BrokerFixture, name: str, word: str = WORD, *, tenant: str = T, peer: str = PEER) -> LoginVerdict:
    verdict: LoginVerdict = done(fixture.broker.users.login(tenant, name, word, peer))
    return verdict


def enter(fixture: BrokerFixture, name: str, *, tenant: str = T) -> Identity:
    found = login(fixture, name, tenant=tenant)
    assert isinstance(found, Identity)
    return found


def given(
    fixture: BrokerFixture, who: Identity, topic: str = "orders", scope: Scope = DEFAULT_SCOPE
) -> set[Permission]:
    """The permissions on a topic; for those on caches see `test_each_role_gives_…`."""
    return {permission for permission in OF_TOPICS if fixture.broker.access.allows(who, permission, scope, topic)}


def acl(fixture: BrokerFixture, topic: str = "orders", **terms: Any) -> None:
    fixture.broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl(topic, **{"public": False, **terms}))
    fixture.commit()


def key(fixture: BrokerFixture, *permissions: Permission, topics: tuple[str, ...] = ("*",)) -> Identity:
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", T, permissions, topics))
    fixture.commit()
    found = fixture.broker.keys.authenticate(new.secret, PEER)
    assert isinstance(found, Identity)
    return found


USES = {READ, WRITE, COMMIT, DESCRIBE}
WRITES = {WRITE, DESCRIBE, Permission.CREATE}


# -- logging in


def test_a_user_gets_in_with_the_right_password_and_is_bound_to_the_tenant() -> None:
    fixture = secured()
    add(fixture, "alice", "consumer")
    assert login(fixture, "alice") == Identity("user:alice", T, PEER, START)
    assert login(fixture, "alice", tenant="acme") is LoginRefusal.WRONG


@pytest.mark.parametrize("name", ["alice", "nobody", "", "\ud800", "x" * 60_000])
@pytest.mark.parametrize("word", ["", "wrong", WORD + "x", WORD[:-1], "x" * 60_000, "\ud800", "\0"])
def test_a_wrong_password_and_an_unknown_user_are_told_alike(name: str, word: str) -> None:
    fixture = secured()
    add(fixture, "alice")
    work = fixture.broker.users.login(T, name, word, PEER)
    assert not work.ready  # all take the same way, whose time is that of argon2
    assert done(work) is LoginRefusal.WRONG
    assert "authentication_failures_total 1.0" in fixture.broker.exposition.text()


def test_the_password_of_nobody_costs_as_much_as_anybodys() -> None:
    hashing = PasswordHashing(PasswordCost())
    nobodys = argon2.extract_parameters(hashing._nobodys)
    assert nobodys == argon2.extract_parameters(hashing.hashed(WORD))
    assert (nobodys.memory_cost, nobodys.time_cost, nobodys.parallelism) == (19456, 2, 1)
    assert not hashing.is_right(WORD, None) and not hashing.is_right("", None)


def test_the_cost_of_passwords_is_a_setting_and_older_hashes_stay_valid() -> None:
    dear, cheap = PasswordHashing(PasswordCost()), PasswordHashing(PasswordCost(1, 64))
    parameters = argon2.extract_parameters(cheap.hashed(WORD))
    assert (parameters.memory_cost, parameters.time_cost) == (64, 1)
    for made, read in ((dear, cheap), (cheap, dear)):
        assert read.is_right(WORD, made.hashed(WORD)) and not read.is_right(WORD + "x", made.hashed(WORD))


def test_a_user_who_is_disabled_is_told_so_only_with_the_right_password() -> None:
    fixture = secured()
    add(fixture, "alice")
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", enabled=False)
    assert login(fixture, "alice") is LoginRefusal.DISABLED
    assert login(fixture, "alice", "wrong") is LoginRefusal.WRONG
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", enabled=True)
    assert enter(fixture, "alice").name == "user:alice"


def test_only_a_hash_of_the_password_is_kept_and_it_is_not_shown() -> None:
    fixture = secured()
    user = add(fixture, "alice")
    files = [fixture.disk.open(f"journal/{name}", writable=False) for name in fixture.disk.list("journal")]
    kept = b"".join(file.read(0, file.size()) for file in files) + encode_snapshot(fixture.broker.state_log.state)
    assert user.hash.startswith("$argon2id$") and user.hash.encode() in kept
    assert WORD.encode() not in kept
    assert "argon2" not in repr(user)
    assert add(fixture, "bob").hash != user.hash  # each has its own salt


def test_with_security_off_everybody_gets_in_as_nobody_in_particular() -> None:
    fixture = BrokerFixture()
    for _ in range(10):
        assert login(fixture, "whoever", "whatever") == ANONYMOUS._replace(peer=PEER)
    assert fixture.broker.users.whoami(ANONYMOUS) == CurrentUser("", (), ("read", "write", "admin"))


def test_a_password_that_was_right_is_not_computed_again_and_a_changed_one_is() -> None:
    fixture = secured()
    add(fixture, "alice")
    enter(fixture, "alice")
    assert fixture.broker.users.login(T, "alice", WORD, PEER).ready
    assert not fixture.broker.users.login(T, "alice", WORD + "x", PEER).ready
    done(fixture.broker.users.change_password(ADMINISTRATOR, T, "alice", "another"))
    assert not fixture.broker.users.login(T, "alice", WORD, PEER).ready
    assert login(fixture, "alice") is LoginRefusal.WRONG
    assert isinstance(login(fixture, "alice", "another"), Identity)


def test_what_is_remembered_of_right_passwords_is_bounded() -> None:
    fixture = secured(limits=Limits(users=2))
    add(fixture, "alice")
    for word in "abcde":
        done(fixture.broker.users.change_password(ADMINISTRATOR, T, "alice", word))
        assert isinstance(login(fixture, "alice", word), Identity)
        assert len(fixture.broker.users._proved) <= 2


def test_what_changes_while_a_password_is_checked_counts() -> None:
    fixture = secured()
    broker = fixture.broker
    for name, change, verdict in (
        ("a", lambda: done(broker.users.change_password(ADMINISTRATOR, T, "a", "another")), LoginRefusal.WRONG),
        ("b", lambda: broker.users.delete(ADMINISTRATOR, T, "b"), LoginRefusal.WRONG),
        ("c", lambda: broker.users.update(ADMINISTRATOR, T, "c", enabled=False), LoginRefusal.DISABLED),
    ):
        add(fixture, name)
        work = broker.users.login(T, name, WORD, PEER)
        work.run()
        change()
        assert work.finish() is verdict


def test_who_guesses_is_locked_out_of_the_name_at_the_host_and_others_are_not() -> None:
    fixture = secured(lockout=LockoutPolicy(3, 30))
    add(fixture, "alice")
    add(fixture, "bob")
    add(fixture, "alice", tenant="acme")
    assert [login(fixture, "alice", "wrong") for _ in range(3)] == [LoginRefusal.WRONG] * 3
    assert login(fixture, "alice") is LoginRefusal.LOCKED
    assert isinstance(login(fixture, "bob"), Identity)
    assert isinstance(enter(fixture, "alice", tenant="acme"), Identity)
    assert fixture.broker.keys.authenticate("any", PEER) is None
    assert isinstance(login(fixture, "alice", peer="10.0.0.2:1"), Identity)
    assert "lockouts_total 1.0" in fixture.broker.exposition.text()
    fixture.pass_time(31)
    assert isinstance(login(fixture, "alice"), Identity)


def test_of_a_host_that_guesses_very_often_only_passwords_are_taken_that_were_right_before() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    for name in ("alice", "bob"):
        add(fixture, name)
    assert isinstance(login(fixture, "bob"), Identity)
    for number in range(40):
        assert login(fixture, f"name {number}", "wrong") is LoginRefusal.WRONG
    assert login(fixture, "name 41", "wrong") is LoginRefusal.LOCKED
    assert login(fixture, "alice") is LoginRefusal.LOCKED
    assert isinstance(login(fixture, "bob"), Identity)
    assert [login(fixture, "bob", "wrong") for _ in range(2)] == [LoginRefusal.LOCKED] * 2
    assert login(fixture, "bob") is LoginRefusal.LOCKED  # else one could guess at it now, without an end
    assert isinstance(login(fixture, "alice", peer="10.0.0.2:1"), Identity)
    fixture.pass_time(31)
    assert isinstance(login(fixture, "alice"), Identity)


def test_few_passwords_are_checked_at_once_and_those_of_a_locked_host_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = secured(lockout=LockoutPolicy(3, 30), executor=later(calls))
    add(fixture, "alice")
    checked = []
    hashing = fixture.broker.users.hashing
    real = hashing.is_right

    def count(word: str, stored: str | None) -> bool:
        checked.append(word)
        return real(word, stored)

    monkeypatch.setattr(hashing, "is_right", count)
    verdicts: list[LoginVerdict] = []

    def start(word: str) -> None:
        work = fixture.broker.users.login(T, "alice", word, PEER)
        work.start(fixture.broker.executor, lambda: verdicts.append(work.finish()))

    for number in range(20):
        start(f"guess {number}")
    start(WORD)
    widest = 0
    while calls:
        widest = max(widest, len(calls))
        run, finish = calls.pop(0)
        run()
        finish()
    assert widest == users.AT_ONCE
    assert verdicts == [LoginRefusal.WRONG] * 3 + [LoginRefusal.LOCKED] * 18
    assert len(checked) == 3


def test_a_right_guess_that_was_checked_beside_wrong_ones_does_not_count_after_them() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    add(fixture, "alice")
    works = [fixture.broker.users.login(T, "alice", word, PEER) for word in ("a", "b", WORD)]
    for work in works:
        work.run()
    assert [work.finish() for work in works] == [LoginRefusal.WRONG, LoginRefusal.WRONG, LoginRefusal.LOCKED]


def test_a_broker_that_stops_lets_nobody_in() -> None:
    fixture = secured()
    add(fixture, "alice")
    work = fixture.broker.users.login(T, "alice", WORD, PEER)
    work.run()
    fixture.broker.close()
    with pytest.raises(ShuttingDown):
        work.finish()


# -- who one is


def test_one_is_told_who_one_is() -> None:
    fixture = secured()
    add(fixture, "alice", "producer", "consumer")
    whoami = fixture.broker.users.whoami
    assert whoami(enter(fixture, "alice")) == CurrentUser("alice", ("producer", "consumer"), ("read", "write"))
    assert whoami(ANONYMOUS) == CurrentUser("", (), ())
    assert whoami(key(fixture, READ, COMMIT, DESCRIBE)) == CurrentUser("key:1", (), ("read",))
    assert whoami(key(fixture, ADMIN)) == CurrentUser("key:2", (), ("read", "write", "admin"))
    assert whoami(key(fixture, READ)) == CurrentUser("key:3", (), ())


def test_enabled_tells_a_user_whose_time_is_over() -> None:
    fixture = secured()
    add(fixture, "alice")
    who = enter(fixture, "alice")
    assert fixture.broker.users.enabled(who) and fixture.broker.users.enabled(ANONYMOUS)
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", enabled=False)
    assert not fixture.broker.users.enabled(who)
    fixture.broker.users.delete(ADMINISTRATOR, T, "alice")
    assert not fixture.broker.users.enabled(who)


# -- what roles give


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((), set()),
        (("guest",), set()),
        (("consumer",), {READ, COMMIT, DESCRIBE}),
        (("producer",), WRITES),
        (("producer", "consumer"), USES | WRITES),
        (("admin",), OF_TOPICS),
    ],
)
def test_each_role_gives_its_permissions_in_the_tenant_and_nowhere_else(
    roles: tuple[str, ...], expected: set[Permission]
) -> None:
    fixture = secured()
    add(fixture, "alice", *roles)
    who = enter(fixture, "alice")
    assert given(fixture, who) == expected
    assert given(fixture, who, scope=Scope(T, "other")) == expected
    assert given(fixture, who, scope=Scope("acme", T)) == set()
    allows = fixture.broker.access.allows
    for permission, like in ((Permission.CACHE_READ, READ), (Permission.CACHE_WRITE, WRITE)):
        assert allows(who, permission, DEFAULT_SCOPE, "sessions") is (like in expected)
        assert not allows(who, permission, Scope("acme", T), "sessions")
    for everywhere in (lambda: fixture.broker.keys.list(who), lambda: fixture.broker.metrics_text(who)):
        with pytest.raises(AccessDenied):
            everywhere()


def test_users_of_two_tenants_with_the_same_name_are_two() -> None:
    fixture = secured()
    add(fixture, "alice", "admin")
    add(fixture, "alice", "consumer", tenant="acme")
    here, there = enter(fixture, "alice"), enter(fixture, "alice", tenant="acme")
    assert given(fixture, here) == OF_TOPICS and given(fixture, there) == set()
    assert given(fixture, there, scope=Scope("acme", "x")) == {READ, COMMIT, DESCRIBE}
    fixture.broker.users.delete(ADMINISTRATOR, "acme", "alice")
    assert given(fixture, here) == OF_TOPICS and given(fixture, there, scope=Scope("acme", "x")) == set()


def test_changes_act_at_once_on_those_who_are_logged_in() -> None:
    fixture = secured(Grant("*", frozenset({DESCRIBE})))
    add(fixture, "alice", "consumer")
    who = enter(fixture, "alice")
    change = fixture.broker.users
    assert given(fixture, who) == {READ, COMMIT, DESCRIBE}
    change.update(ADMINISTRATOR, T, "alice", ["producer"])
    assert given(fixture, who) == WRITES
    change.set_role(ADMINISTRATOR, T, "mixed", ["write", "read"])
    change.update(ADMINISTRATOR, T, "alice", ["mixed"])
    assert given(fixture, who) == USES | WRITES
    change.set_role(ADMINISTRATOR, T, "mixed", ["read"])
    assert given(fixture, who) == {READ, COMMIT, DESCRIBE}
    change.update(ADMINISTRATOR, T, "alice", [])
    assert given(fixture, who) == {DESCRIBE}  # as everyone
    change.update(ADMINISTRATOR, T, "alice", ["admin"], enabled=False)
    assert given(fixture, who) == set()
    change.update(ADMINISTRATOR, T, "alice", enabled=True)
    assert given(fixture, who) == OF_TOPICS
    change.delete(ADMINISTRATOR, T, "alice")
    assert given(fixture, who) == set()


def test_what_failed_to_be_kept_does_not_count() -> None:
    fixture = secured()
    add(fixture, "alice", "consumer")
    who = enter(fixture, "alice")
    disk = fixture.fill_disk()
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", ["admin"])
    assert given(fixture, who) == OF_TOPICS
    fixture.commit()
    assert given(fixture, who) == {READ, COMMIT, DESCRIBE}
    assert fixture.broker.users.get(ADMINISTRATOR, T, "alice").roles == ("consumer",)
    fixture.free_disk(disk)
    disk = fixture.fill_disk()
    done(fixture.broker.users.create(ADMINISTRATOR, T, "bob", WORD))
    acl_group = fixture.broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl("orders", False, restrict=True))
    assert given(fixture, who) == set()
    fixture.commit()
    assert not committed(acl_group)
    assert given(fixture, who) == {READ, COMMIT, DESCRIBE}
    assert [user.name for user in fixture.broker.users.list(ADMINISTRATOR, T)] == ["alice"]
    assert login(fixture, "bob") is LoginRefusal.WRONG


def test_what_failed_is_forgotten_also_if_as_much_has_changed_since() -> None:
    fixture = secured()
    add(fixture, "alice", "consumer")
    who = enter(fixture, "alice")
    disk = fixture.fill_disk()
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", ["admin"])
    assert given(fixture, who) == OF_TOPICS
    fixture.commit()
    fixture.free_disk(disk)
    fixture.broker.users.set_role(ADMINISTRATOR, T, "team", [])
    assert given(fixture, who) == {READ, COMMIT, DESCRIBE}


def test_everything_is_there_after_a_restart_and_in_a_snapshot() -> None:
    fixture = secured(users=UserPolicy(allow_anonymous=True))
    add(fixture, "alice", "admin")
    fixture.pass_time(5)
    fixture.broker.users.set_role(ADMINISTRATOR, T, "team", ["read"], "of ours")
    add(fixture, "bob", "team")
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", enabled=False)
    acl(fixture, "open", public=True)
    acl(fixture, "shut", users=("bob", "key:7"), roles=("team",), restrict=True)
    acl(fixture, "gone")
    fixture.broker.users.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "gone")
    add(fixture, "carol")
    fixture.broker.users.delete(ADMINISTRATOR, T, "carol")
    fixture.commit()
    before = fixture.broker.state_log.state.directory
    fixture.restart()
    after = fixture.broker.state_log.state.directory
    again = decode_snapshot(encode_snapshot(fixture.broker.state_log.state)).directory
    for directory in (after, again):
        assert (directory.users[T], directory.roles, directory.acls) == (before.users[T], before.roles, before.acls)
    alice = fixture.broker.users.get(ADMINISTRATOR, T, "alice")
    assert (alice.created, alice.updated, alice.enabled) == (START, START + 5_000_000, False)
    assert login(fixture, "alice") is LoginRefusal.DISABLED
    assert given(fixture, enter(fixture, "bob"), "shut") == USES
    assert given(fixture, ANONYMOUS, "open") == USES


def test_what_was_not_committed_is_not_there_after_a_restart() -> None:
    changes: list[Callable[[BrokerFixture], object]] = [
        lambda fixture: done(fixture.broker.users.create(ADMINISTRATOR, T, "bob", WORD, ["admin"])),
        lambda fixture: fixture.broker.users.update(ADMINISTRATOR, T, "alice", ["admin"]),
        lambda fixture: done(fixture.broker.users.change_password(ADMINISTRATOR, T, "alice", "another")),
        lambda fixture: fixture.broker.users.delete(ADMINISTRATOR, T, "alice"),
        lambda fixture: fixture.broker.users.set_role(ADMINISTRATOR, T, "team", ["admin"]),
        lambda fixture: fixture.broker.users.delete_role(ADMINISTRATOR, T, "spare"),
        lambda fixture: fixture.broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl("orders", False)),
        lambda fixture: fixture.broker.users.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "orders"),
    ]
    for change in changes:
        fixture = secured()
        fixture.broker.users.set_role(ADMINISTRATOR, T, "team", [])
        fixture.broker.users.set_role(ADMINISTRATOR, T, "spare", [])
        add(fixture, "alice", "team")
        acl(fixture, users=("alice",), restrict=True)
        before = encode_snapshot(fixture.broker.state_log.state)
        change(fixture)
        assert encode_snapshot(fixture.broker.state_log.state) != before
        fixture.restart()
        assert encode_snapshot(fixture.broker.state_log.state) == before
        change(fixture)
        fixture.commit()
        after = encode_snapshot(fixture.broker.state_log.state)
        fixture.restart()
        assert encode_snapshot(fixture.broker.state_log.state) == after != before


# -- administering


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": ""}, InvalidArgument),
        ({"name": "x" * 256}, InvalidArgument),
        ({"name": "a\tb"}, InvalidArgument),
        ({"name": "a\nb"}, InvalidArgument),
        ({"name": "\ud800"}, InvalidArgument),
        ({"name": " a"}, InvalidArgument),
        ({"name": "key:1"}, InvalidArgument),
        ({"name": "alice"}, UserExists),
        ({"password": ""}, InvalidArgument),
        ({"password": "é" * 513}, InvalidArgument),
        ({"roles": ["admin", "nothing"]}, RoleNotFound),
        ({"roles": ["admin"] * 101}, InvalidArgument),
        ({"tenant": "a/b"}, InvalidName),
        ({"tenant": "*"}, InvalidName),
    ],
)
def test_a_user_that_cannot_be_is_refused_before_anything_is_hashed(
    change: dict[str, Any], error: type[BrokerError]
) -> None:
    fixture = secured()
    add(fixture, "alice")
    position = fixture.broker.position
    with pytest.raises(error):
        fixture.broker.users.create(
            ADMINISTRATOR, **{"tenant": T, "name": "bob", "password": WORD, "roles": [], **change}
        )
    assert not fixture.committer.run() and fixture.broker.position == position


@pytest.mark.parametrize("name", ["x" * 255, "Ålice & Bob", "user:bob", "../../etc", "[a-z]*", "a/b"])
def test_names_may_be_many_things(name: str) -> None:
    fixture = secured()
    assert add(fixture, name, "guest", "guest").roles == ("guest",)
    assert enter(fixture, name) == Identity(f"user:{name}", T, PEER, START)


def test_of_two_who_make_the_same_user_at_once_one_is_told() -> None:
    fixture = secured()
    first, second = (fixture.broker.users.create(ADMINISTRATOR, T, "alice", word) for word in ("one", "two"))
    for work in (first, second):
        work.run()
    first.finish()
    with pytest.raises(UserExists):
        second.finish()
    fixture.commit()
    assert isinstance(login(fixture, "alice", "one"), Identity)


def test_who_loses_the_right_while_a_password_is_hashed_has_lost_it() -> None:
    fixture = secured()
    add(fixture, "alice", "admin")
    who = enter(fixture, "alice")
    add(fixture, "bob")
    works: list[Deferred[Any, Any]] = [
        fixture.broker.users.create(who, T, "carol", WORD),
        fixture.broker.users.change_password(who, T, "bob", "another"),
        fixture.broker.users.change_password(who, T, "alice", "another", WORD),
    ]
    for work in works:
        work.run()
    fixture.broker.users.update(ADMINISTRATOR, T, "alice", enabled=False)
    for work in works:
        with pytest.raises(AccessDenied):
            work.finish()


def test_there_are_bounds() -> None:
    fixture = secured(limits=Limits(users=2, roles=1, acls=1))
    change = fixture.broker.users
    add(fixture, "alice")
    add(fixture, "bob", tenant="acme")
    change.set_role(ADMINISTRATOR, T, "team", [])
    acl(fixture)
    with pytest.raises(LimitReached):
        change.create(ADMINISTRATOR, T, "carol", WORD)
    with pytest.raises(LimitReached):
        change.set_role(ADMINISTRATOR, "acme", "team", [])
    with pytest.raises(LimitReached):
        change.set_acl(ADMINISTRATOR, Scope("acme", T), Acl("orders", False))
    change.set_role(ADMINISTRATOR, T, "team", ["read"])
    acl(fixture, restrict=True)
    with pytest.raises(InvalidArgument):
        acl(fixture, users=tuple(map(str, range(1001))))
    with pytest.raises(InvalidArgument):
        acl(fixture, roles=("team",) * 101)
    change.delete(ADMINISTRATOR, T, "alice")
    add(fixture, "carol")


def test_what_is_not_there_is_told() -> None:
    fixture = secured()
    change = fixture.broker.users
    missing: list[Callable[[], object]] = [
        lambda: change.get(ADMINISTRATOR, T, "x"),
        lambda: change.update(ADMINISTRATOR, T, "x", []),
        lambda: change.delete(ADMINISTRATOR, T, "x"),
        lambda: change.change_password(ADMINISTRATOR, T, "x", WORD),
    ]
    for operation in missing:
        with pytest.raises(UserNotFound):
            operation()
    with pytest.raises(RoleNotFound):
        change.delete_role(ADMINISTRATOR, T, "x")
    assert change.get_acl(ADMINISTRATOR, DEFAULT_SCOPE, "x") is None
    assert change.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "x") is None
    assert change.list(ADMINISTRATOR, "x") == [] and change.list_acls(ADMINISTRATOR, DEFAULT_SCOPE) == []


def test_nobody_deletes_the_own_account() -> None:
    fixture = secured()
    for name in ("alice", "bob"):
        add(fixture, name, "admin")
    with pytest.raises(InvalidArgument, match=r"^cannot delete your own account$"):
        fixture.broker.users.delete(enter(fixture, "alice"), T, "alice")
    fixture.broker.users.delete(enter(fixture, "alice"), T, "bob")


def test_the_last_administrator_stays_except_for_the_socket() -> None:
    fixture = secured()
    change = fixture.broker.users
    change.set_role(ADMINISTRATOR, T, "chief", ["admin"])
    add(fixture, "alice", "chief")
    add(fixture, "bob", "admin")
    add(fixture, "carol", "consumer")
    add(fixture, "dave", "admin", tenant="acme")
    change.update(ADMINISTRATOR, T, "bob", enabled=False)
    chief = key(fixture, ADMIN)
    locks: list[Callable[[Identity], object]] = [
        lambda who: change.update(who, T, "alice", ["producer"]),
        lambda who: change.update(who, T, "alice", enabled=False),
        lambda who: change.set_role(who, T, "chief", ["read", "write"]),
        lambda who: change.delete(who, T, "alice"),
    ]
    for lock in locks:
        with pytest.raises(InvalidArgument, match="administrator"):
            lock(chief)
    change.update(chief, T, "carol", ["guest"])
    change.update(chief, T, "alice", ["chief", "guest"])
    done(change.change_password(chief, T, "alice", "another"))
    change.set_role(chief, T, "chief", ["admin", "read"])
    change.update(chief, T, "bob", enabled=True)
    locks[2](chief)
    locks[0](chief)
    with pytest.raises(InvalidArgument, match="last administrator"):
        change.delete(chief, T, "bob")
    change.delete(ADMINISTRATOR, T, "bob")


def test_a_role_is_not_taken_from_under_its_holders_and_built_in_ones_do_not_change() -> None:
    fixture = secured()
    change = fixture.broker.users
    change.set_role(ADMINISTRATOR, T, "team", ["write", "read", "write"], "of ours")
    assert change.list_roles(ADMINISTRATOR, T)[-1].permissions == ("read", "write")
    add(fixture, "alice", "team")
    with pytest.raises(InvalidArgument, match="still held by user 'alice'"):
        change.delete_role(ADMINISTRATOR, T, "team")
    change.update(ADMINISTRATOR, T, "alice", [])
    acl(fixture, roles=("team", "guest"))
    change.delete_role(ADMINISTRATOR, T, "team")
    assert change.list_roles(ADMINISTRATOR, T) == list(BUILT_IN.values())
    found = change.get_acl(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert found is not None and found.roles == ("guest",)
    for name in BUILT_IN:
        with pytest.raises(InvalidArgument, match="built in"):
            change.set_role(ADMINISTRATOR, T, name, [])
        with pytest.raises(InvalidArgument, match="built in"):
            change.delete_role(ADMINISTRATOR, T, name)
    refusals: list[tuple[str, list[str], str]] = [
        ("x", ["fly"], ""),
        ("", [], ""),
        ("a\0", [], ""),
        ("x", [], "a\nb"),
        ("x", [], "d" * 1001),
    ]
    for name, permissions, description in refusals:
        with pytest.raises(InvalidArgument):
            change.set_role(ADMINISTRATOR, T, name, permissions, description)


def test_a_tenants_own_roles_are_shown_to_those_who_belong_to_it() -> None:
    fixture = secured()
    fixture.broker.users.set_role(ADMINISTRATOR, T, "team", [])
    add(fixture, "alice")
    add(fixture, "bob", tenant="acme")

    def names(who: Identity) -> list[str]:
        return [role.name for role in fixture.broker.users.list_roles(who, T)]

    assert names(enter(fixture, "alice")) == names(ADMINISTRATOR) == [*BUILT_IN, "team"]
    assert names(enter(fixture, "bob", tenant="acme")) == names(ANONYMOUS) == list(BUILT_IN)


def test_ones_own_password_takes_the_old_one_and_anothers_an_administrator() -> None:
    fixture = secured()
    change = fixture.broker.users
    add(fixture, "alice", "admin")
    add(fixture, "bob")
    alice, bob = enter(fixture, "alice"), enter(fixture, "bob")
    for who, name in ((alice, "alice"), (bob, "bob")):
        for old in ("", "wrong"):
            with pytest.raises(WrongPassword):
                done(change.change_password(who, T, name, "another", old))
    with pytest.raises(AccessDenied):
        change.change_password(bob, T, "alice", "another", WORD)
    with pytest.raises(AccessDenied):
        change.change_password(bob, T, "nobody", "another", WORD)
    with pytest.raises(InvalidArgument):
        change.change_password(bob, T, "bob", "", WORD)
    done(change.change_password(bob, T, "bob", "third", WORD))
    done(change.change_password(alice, T, "bob", "fourth"))
    with pytest.raises(AccessDenied):
        change.change_password(bob._replace(tenant="acme"), T, "bob", "another", "fourth")
    fixture.commit()
    fixture.restart()
    assert login(fixture, "bob", "third") is LoginRefusal.WRONG
    assert isinstance(login(fixture, "bob", "fourth"), Identity)


def test_an_old_password_that_is_no_longer_the_present_one_changes_nothing() -> None:
    fixture = secured()
    add(fixture, "alice")
    work = fixture.broker.users.change_password(enter(fixture, "alice"), T, "alice", "mine", WORD)
    work.run()
    done(fixture.broker.users.change_password(ADMINISTRATOR, T, "alice", "theirs"))
    with pytest.raises(WrongPassword):
        work.finish()
    assert isinstance(login(fixture, "alice", "theirs"), Identity)


def test_a_namesake_in_another_tenant_is_somebody_else() -> None:
    fixture = secured()
    add(fixture, "alice")
    add(fixture, "alice", tenant="acme")
    with pytest.raises(AccessDenied):
        fixture.broker.users.change_password(enter(fixture, "alice", tenant="acme"), T, "alice", "another", WORD)


def test_guessing_the_old_password_locks_the_host_out() -> None:
    fixture = secured(lockout=LockoutPolicy(2, 30))
    add(fixture, "alice")
    who = enter(fixture, "alice")
    works = [fixture.broker.users.change_password(who, T, "alice", "another", old) for old in ("a", "b", "c", WORD)]
    said = []
    for work in works:
        with pytest.raises(WrongPassword) as raised:
            done(work)
        said.append("too many" in str(raised.value))
    assert said == [False, False, True, True]
    with pytest.raises(WrongPassword, match="too many"):
        fixture.broker.users.change_password(who, T, "alice", "another", WORD)
    assert login(fixture, "alice") is LoginRefusal.LOCKED


# -- access lists


@pytest.mark.parametrize(
    ("terms", "listed", "producer", "guest"),
    [
        ({}, USES, WRITES, set()),
        ({"restrict": True}, USES, set(), set()),
        ({"public": True}, USES, USES | WRITES, USES),
    ],
)
@pytest.mark.parametrize("how", [{"users": ("lisa",)}, {"roles": ("team",)}])
def test_a_list_adds_or_restricts_or_is_public(
    how: dict[str, Any],
    terms: dict[str, Any],
    listed: set[Permission],
    producer: set[Permission],
    guest: set[Permission],
) -> None:
    fixture = secured(users=UserPolicy(allow_anonymous=True))
    fixture.broker.users.set_role(ADMINISTRATOR, T, "team", [])
    add(fixture, "lisa", "team")
    add(fixture, "paul", "producer")
    add(fixture, "gina", "guest")
    add(fixture, "anna", "admin")
    acl(fixture, "orders", **how, **terms)
    everyone = {name: enter(fixture, name) for name in ("lisa", "paul", "gina", "anna")}
    assert given(fixture, everyone["lisa"]) == listed
    assert given(fixture, everyone["paul"]) == producer
    assert given(fixture, everyone["gina"]) == guest
    assert given(fixture, everyone["anna"]) == OF_TOPICS
    assert given(fixture, ANONYMOUS) == guest
    assert given(fixture, everyone["lisa"], "others") == set()
    assert given(fixture, everyone["lisa"], "orders", Scope(T, "other")) == set()
    fixture.broker.users.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert given(fixture, everyone["lisa"]) == set() and given(fixture, everyone["paul"]) == WRITES


def test_a_restricted_topic_is_closed_to_keys_and_grants_that_are_not_listed() -> None:
    fixture = secured(Grant("*", frozenset({READ})), Grant("ops", frozenset({WRITE, Permission.DELETE})))
    reader, chief, listed = key(fixture, READ, Permission.DELETE), key(fixture, ADMIN), key(fixture, READ)
    acl(fixture, users=(listed.name, "ops", "anonymous"), restrict=True)
    assert given(fixture, reader) == set()
    assert given(fixture, chief) == OF_TOPICS
    assert given(fixture, listed) == USES
    assert given(fixture, Identity("ops")) == set()  # a list names users and keys, nothing else
    assert given(fixture, ANONYMOUS) == set()
    assert given(fixture, reader, "others") == {READ, Permission.DELETE}
    assert given(fixture, key(fixture, ADMIN, topics=("others",))) == set()
    fixture.broker.keys.revoke(ADMINISTRATOR, 3)
    assert given(fixture, listed) == set()


def test_a_user_cannot_be_taken_for_a_key_or_for_another_kind_of_principal() -> None:
    fixture = secured(Grant("alice", frozenset({ADMIN})), Grant("user:alice", frozenset({ADMIN})))
    add(fixture, "alice")
    add(fixture, "anonymous")
    acl(fixture, users=("user:alice", "key:1"), restrict=True)
    assert given(fixture, enter(fixture, "alice")) == set()
    assert given(fixture, enter(fixture, "alice"), "others") == set()
    assert fixture.broker.users.whoami(enter(fixture, "anonymous")).name == "anonymous"


@pytest.mark.parametrize(
    ("policy", "anonymous", "logged_in"),
    [
        (UserPolicy(), set(), set()),
        (UserPolicy(default_public=True), set(), USES),
        (UserPolicy(allow_anonymous=True), set(), set()),
        (UserPolicy(default_public=True, allow_anonymous=True), USES, USES),
    ],
)
def test_what_a_topic_without_a_list_is(
    policy: UserPolicy, anonymous: set[Permission], logged_in: set[Permission]
) -> None:
    fixture = secured(users=policy)
    add(fixture, "gina", "guest")
    gina = enter(fixture, "gina")
    assert given(fixture, ANONYMOUS) == anonymous and given(fixture, gina) == logged_in
    assert fixture.broker.users.default_public is policy.default_public
    assert given(fixture, gina, "__audit") == set() and given(fixture, gina, "") == set()
    assert given(fixture, gina, scope=Scope("acme", T)) == set()
    acl(fixture)
    assert given(fixture, gina) == set()
    fixture.broker.users.update(ADMINISTRATOR, T, "gina", enabled=False)
    assert given(fixture, gina, "others") == set()


def test_names_in_lists_are_no_patterns() -> None:
    fixture = secured()
    add(fixture, "gina", "guest")
    add(fixture, "carl", "consumer")
    acl(fixture, "ord*", users=("gina",))
    acl(fixture, "[ab]", restrict=True)
    assert given(fixture, enter(fixture, "gina"), "ord*") == USES
    assert given(fixture, enter(fixture, "gina"), "orders") == set()
    assert given(fixture, enter(fixture, "carl"), "[ab]") == set()
    assert given(fixture, enter(fixture, "carl"), "a") == {READ, COMMIT, DESCRIBE}


def test_dead_letters_follow_the_list_of_their_topic_unless_they_have_their_own() -> None:
    fixture = secured()
    add(fixture, "carl", "consumer")
    carl = enter(fixture, "carl")
    acl(fixture, restrict=True)
    assert given(fixture, carl, "orders.dlq") == set()
    acl(fixture, "orders.dlq", users=("carl",))
    assert given(fixture, carl, "orders.dlq") == USES


def test_a_public_list_needs_anonymous_access_and_other_lists_that_cannot_be_are_refused() -> None:
    fixture = secured()
    text = "^cannot make topic public because anonymous access is disabled in server configuration$"
    with pytest.raises(InvalidArgument, match=text):
        acl(fixture, public=True)
    fixture = secured(users=UserPolicy(allow_anonymous=True))
    refusals: list[tuple[dict[str, Any], type[BrokerError]]] = [
        ({"public": True, "restrict": True}, InvalidArgument),
        ({"roles": ("nothing",)}, RoleNotFound),
        ({"users": ("a\0",)}, InvalidArgument),
        ({"users": ("",)}, InvalidArgument),
        ({"topic": "__audit"}, InvalidArgument),
        ({"topic": "a/../b"}, InvalidName),
    ]
    for terms, error in refusals:
        with pytest.raises(error):
            acl(fixture, **{"topic": "orders", **terms})
    with pytest.raises(InvalidName):
        fixture.broker.users.set_acl(ADMINISTRATOR, Scope("a/b", T), Acl("orders", False))
    assert fixture.broker.users.list_acls(ADMINISTRATOR, DEFAULT_SCOPE) == []


def test_who_gets_the_name_of_a_removed_user_does_not_get_the_place_in_lists() -> None:
    fixture = secured()
    add(fixture, "alice")
    add(fixture, "alice", tenant="acme")
    acl(fixture, users=("alice", "bob"))
    fixture.broker.users.set_acl(ADMINISTRATOR, Scope("acme", T), Acl("orders", False, ("alice",)))
    fixture.broker.users.delete(ADMINISTRATOR, T, "alice")
    add(fixture, "alice")
    assert given(fixture, enter(fixture, "alice")) == set()
    assert given(fixture, enter(fixture, "alice", tenant="acme"), scope=Scope("acme", T)) == USES
    fixture.restart()
    assert fixture.broker.users.list_acls(ADMINISTRATOR, DEFAULT_SCOPE) == [Acl("orders", False, ("bob",))]


def test_a_list_of_topics_holds_those_that_the_lists_allow() -> None:
    fixture = secured()
    for name in ("orders", "mail", "salaries"):
        fixture.broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, name, 1)
    add(fixture, "gina", "guest")
    add(fixture, "carl", "consumer")
    gina, carl = enter(fixture, "gina"), enter(fixture, "carl")
    with pytest.raises(AccessDenied):
        fixture.broker.topics.list(gina, DEFAULT_SCOPE)
    acl(fixture, "mail", users=("gina",))
    acl(fixture, "salaries", restrict=True)
    assert [topic.name for topic in fixture.broker.topics.list(gina, DEFAULT_SCOPE)] == ["mail"]
    assert [topic.name for topic in fixture.broker.topics.list(carl, DEFAULT_SCOPE)] == ["mail", "orders"]
    with pytest.raises(AccessDenied):
        fixture.broker.access.require_any(gina, Permission.CREATE, DEFAULT_SCOPE)


def test_the_lists_decide_over_real_operations() -> None:
    fixture = secured()
    broker = fixture.broker
    broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 1)
    add(fixture, "lisa")
    add(fixture, "carl", "consumer", "producer")
    lisa, carl = enter(fixture, "lisa"), enter(fixture, "carl")
    acl(fixture, users=("lisa",), restrict=True)
    broker.produce.append(lisa, DEFAULT_SCOPE, "orders", 0, [b"v"])
    fixture.commit()
    broker.fetch.plan(lisa, DEFAULT_SCOPE, "orders", 0, 0, 100, 10)
    broker.groups.commit(lisa, DEFAULT_SCOPE, "g", "orders", 0, 1)
    broker.topics.describe(lisa, DEFAULT_SCOPE, "orders")
    queue, _ = broker.queues.create(lisa, DEFAULT_SCOPE, "orders", at_least_once=True)
    refusals: list[Callable[[], object]] = [
        lambda: broker.produce.append(carl, DEFAULT_SCOPE, "orders", 0, [b"v"]),
        lambda: broker.fetch.plan(carl, DEFAULT_SCOPE, "orders", 0, 0, 100, 10),
        lambda: broker.groups.commit(carl, DEFAULT_SCOPE, "g", "orders", 0, 1),
        lambda: broker.topics.describe(carl, DEFAULT_SCOPE, "orders"),
        lambda: broker.queues.dequeue(carl, queue.id, 1),
        lambda: broker.topics.delete(lisa, DEFAULT_SCOPE, "orders"),
    ]
    for refused in refusals:
        with pytest.raises(AccessDenied):
            refused()


def test_replies_can_wait_for_what_they_tell() -> None:
    fixture = secured()
    work = fixture.broker.users.create(ADMINISTRATOR, T, "alice", WORD, ["admin"])
    work.run()
    user, group = work.finish()
    groups: list[CommitGroup | None] = [
        group,
        fixture.broker.users.update(ADMINISTRATOR, T, "alice", ["guest"]),
        fixture.broker.users.set_role(ADMINISTRATOR, T, "team", []),
        fixture.broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl("orders", False)),
        fixture.broker.users.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "orders"),
        fixture.broker.users.delete_acl(ADMINISTRATOR, DEFAULT_SCOPE, "orders"),  # nothing, and yet not settled
        fixture.broker.users.delete_role(ADMINISTRATOR, T, "team"),
        fixture.broker.users.delete(ADMINISTRATOR, T, user.name),
    ]
    assert all(one is not None and not committed(one) for one in groups)
    fixture.commit()
    assert all(one is not None and committed(one) for one in groups)
