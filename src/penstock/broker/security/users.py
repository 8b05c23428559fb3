"""All users of a broker: login, administration, and permissions.

The rules about users, roles and access lists are in `user`; this module connects them to the log and to password
hashing. `user_access` answers permission checks. A change takes effect immediately, even on open connections.
"""

from __future__ import annotations

import enum
import hmac
import logging
import os
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.errors import AccessDenied, InvalidArgument, WrongPassword
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import BoundedExecutor, Deferred, Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security import passwords, user
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS, OF_CACHES, Access, Identity, Permission
from penstock.broker.security.audit import Attempt, Audit
from penstock.broker.security.lockout import LockOut, host_of
from penstock.broker.security.passwords import PasswordHashing
from penstock.broker.security.user import (
    ADMINISTRATION,
    BUILT_IN,
    PERMISSIONS,
    PRINCIPAL,
    Acl,
    Role,
    User,
)
from penstock.broker.security.user_access import UserAccess
from penstock.broker.state.events import UserSet
from penstock.broker.state.state_log import StateLog
from penstock.log.engine import CommitGroup

logger = logging.getLogger(__name__)

# Passwords hashed or verified concurrently: each takes 19 MiB, and a thread that disk reads need too.
AT_ONCE: Final = 2


class LoginRefusal(enum.StrEnum):
    """The reason why a login was refused. An unknown user and a wrong password are not distinguished."""

    WRONG = "invalid username or password"
    DISABLED = "user account is disabled"  # although the password was right
    LOCKED = "too many failed attempts; try again later"


LoginVerdict: TypeAlias = Identity | LoginRefusal


class CurrentUser(NamedTuple):
    """An identity, as shown to its owner. The name is empty if nobody is logged in."""

    name: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]


class Users:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        limits: Limits,
        metrics: Metrics,
        clock: Clock,
        executor: Executor,
        lockout: LockOut,
        user_access: UserAccess,
        audit: Audit,
    ) -> None:
        self._user_access = user_access
        self._audit = audit
        self._state_log = state_log
        self._access = access
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._executor = BoundedExecutor(executor, AT_ONCE)
        self._lockout = lockout
        self.hashing = PasswordHashing(user_access.policy.password_cost)
        # Passwords that were verified before, by a hash that is useless outside this process: argon2 is too slow to
        # repeat when a thousand clients reconnect.
        self._pepper = os.urandom(32)
        self._proved: dict[str, bytes] = {}  # stored hash → process-local hash

    # -- logging in

    def login(self, tenant: str, name: str, password: str, peer: str) -> Deferred[bool | None, LoginVerdict]:
        """The identity of a user. `peer` is its address: too many failures for a name lock out that name from that
        host. From a host with very many failures, for any names, only passwords that were verified before are accepted,
        because verifying others is slow.
        """
        if not self._access.enforced:
            return Deferred(lambda: True, lambda _: ANONYMOUS._replace(peer=peer), ready=True)
        known = self._state_log.current().directory.user(tenant, name)
        stored = None if known is None else known.hash
        host, counted = host_of(peer), _counted(tenant, name)

        def check() -> bool | None:
            # Checked again when the work starts: no time should be spent on a client that is locked out by now.
            return None if self._locked_out(host, counted) else self.hashing.is_right(password, stored)

        def conclude(right: bool | None) -> LoginVerdict:
            if right is None or self._lockout.locked(host, counted, self._clock()):
                verdict: LoginVerdict = LoginRefusal.LOCKED
            else:
                verdict = self._conclude(tenant, name, password, peer, stored if right else None)
            self._note_login(tenant, name, peer, verdict)
            return verdict

        if self._lockout.locked(host, counted, self._clock()):
            return Deferred(lambda: None, conclude, ready=True)
        if self._was_right(password, stored):
            return Deferred(lambda: True, conclude, ready=True)
        if self._lockout.over_limit(host, self._clock()):
            self._lockout.failed(host, counted, self._clock())  # else previously verified passwords could be guessed
            return Deferred(lambda: None, conclude, ready=True)
        return Deferred(check, conclude, executor=self._executor)

    def _locked_out(self, host: str, counted: str) -> bool:
        now = self._clock()
        return self._lockout.locked(host, counted, now) or self._lockout.over_limit(host, now)

    def _conclude(self, tenant: str, name: str, password: str, peer: str, proved: str | None) -> LoginVerdict:
        """`proved` is the stored hash that the password matches; the user's hash may have changed since."""
        found = self._state_log.current().directory.user(tenant, name)
        if found is None or proved != found.hash:
            self._failed(peer, tenant, name)
            return LoginRefusal.WRONG
        self._remember(password, proved)
        if not found.enabled:
            return LoginRefusal.DISABLED
        return Identity(PRINCIPAL + name, tenant, peer, found.created)

    def _note_login(self, tenant: str, name: str, peer: str, verdict: LoginVerdict) -> None:
        who, scope = Identity(PRINCIPAL + name, peer=peer), Scope(tenant, "*")
        if isinstance(verdict, Identity):
            self._audit.note(verdict, "auth.success", action="password")
        else:
            self._audit.note(who, "auth.failure", scope=scope, action="password", result="failure", reason=verdict)

    def _failed(self, peer: str, tenant: str, name: str) -> None:
        self._metrics.authentication_failures += 1
        if self._lockout.failed(host_of(peer), _counted(tenant, name), self._clock()):
            self._metrics.lockouts += 1
            self._audit.note(Identity("", peer=peer), "auth.lockout", action="password", result="denied")
            logger.warning("%s is locked out: too many wrong passwords", peer, extra={"peer": peer})

    def _mark(self, password: str) -> bytes:
        return hmac.digest(self._pepper, passwords.encoded(password), "sha256")

    def _was_right(self, password: str, stored: str | None) -> bool:
        mark = None if stored is None else self._proved.get(stored)
        return mark is not None and hmac.compare_digest(mark, self._mark(password))

    def _remember(self, password: str, stored: str) -> None:
        if len(self._proved) >= self._limits.users:
            self._proved.clear()
        self._proved[stored] = self._mark(password)

    def whoami(self, identity: Identity) -> CurrentUser:
        found = self._user_access.user_of(identity)
        if found is not None:
            return CurrentUser(found.name, found.roles, self.permissions(found))
        if not self._access.enforced:
            return CurrentUser("", (), tuple(ADMINISTRATION))
        grants = self._access.grants_of(identity) or ()
        given = frozenset[Permission]().union(*(grant.permissions for grant in grants))
        implied = ADMINISTRATION if Permission.ADMIN in given else ()
        permissions = tuple(  # for topics only: these clients do not know caches
            name for name, needed in PERMISSIONS.items() if needed - OF_CACHES <= given or name in implied
        )
        return CurrentUser("" if identity.name == ANONYMOUS.name else identity.name, identity.roles, permissions)

    def enabled(self, identity: Identity) -> bool:
        """Whether the identity may still act: False for a user who was disabled or deleted since the login."""
        found = self._user_access.user_of(identity)
        return not identity.name.startswith(PRINCIPAL) if found is None else found.enabled

    # -- users

    def create(
        self, identity: Identity, tenant: str, name: str, password: str, roles: Sequence[str] = ()
    ) -> Deferred[str, tuple[User, CommitGroup]]:
        def decide(hash: str) -> UserSet:  # noqa: A002
            self._require(identity, tenant)
            directory = self._state_log.current().directory
            return user.create(directory, self._limits, tenant, name, hash, roles, self._clock())

        def conclude(hash: str) -> tuple[User, CommitGroup]:  # noqa: A002
            with self._attempt(identity, "user.create", tenant, name):
                group = self._state_log.commit((decide(hash),))
            self._note(identity, "user.create", tenant, name, roles=",".join(roles))
            return self._state_log.state.directory.users[tenant][name], group

        with self._attempt(identity, "user.create", tenant, name):
            decide("")  # fail before hashing, which is slow
            passwords.check(password)
        return Deferred(lambda: self.hashing.hashed(password), conclude, executor=self._executor)

    def update(
        self,
        identity: Identity,
        tenant: str,
        name: str,
        roles: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> CommitGroup:
        """None leaves the roles, or the enabled flag, unchanged."""
        with self._attempt(identity, "user.update", tenant, name):
            self._require(identity, tenant)
            directory, may_lock = self._state_log.current().directory, _by_socket(identity)
            event = user.update(directory, tenant, name, self._clock(), roles=roles, enabled=enabled, may_lock=may_lock)
            group = self._state_log.commit((event,))
        self._note(
            identity, "user.update", tenant, name, roles=",".join(event.roles), enabled=str(event.enabled).lower()
        )
        return group

    def change_password(
        self, identity: Identity, tenant: str, name: str, new: str, old: str = ""
    ) -> Deferred[str | None, CommitGroup]:
        """Change one's own password, given the old one, or another user's as an administrator."""
        is_self = identity.name == PRINCIPAL + name and identity.tenant == tenant
        host = host_of(identity.peer)

        def find() -> User:
            """The user, if the identity may still do this."""
            if not is_self:
                self._require(identity, tenant)
            elif not self.enabled(identity):
                raise AccessDenied(f"'{identity.name}' may not change a password")
            elif self._locked_out(host, _counted(tenant, name)):
                raise WrongPassword(LoginRefusal.LOCKED)
            return user.find(self._state_log.current().directory, tenant, name)

        def change() -> str | None:
            return self.hashing.hashed(new) if not is_self or self.hashing.is_right(old, stored) else None

        def conclude(hash: str | None) -> CommitGroup:  # noqa: A002
            with self._attempt(identity, "password.change", tenant, name):
                found = find()
                if hash is None or (is_self and found.hash != stored):
                    self._failed(identity.peer, tenant, name)
                    raise WrongPassword("The old password is wrong")
                event = user.update(self._state_log.state.directory, tenant, name, self._clock(), hash=hash)
                group = self._state_log.commit((event,))
            self._note(identity, "password.change", tenant, name)
            return group

        with self._attempt(identity, "password.change", tenant, name):
            stored = find().hash
            passwords.check(new)
        return Deferred(change, conclude, executor=self._executor)

    def delete(self, identity: Identity, tenant: str, name: str) -> CommitGroup:
        """Delete a user, effective immediately for open connections."""
        with self._attempt(identity, "user.delete", tenant, name):
            self._require(identity, tenant)
            directory = self._state_log.current().directory
            if identity.name == PRINCIPAL + name and identity.tenant == tenant:
                raise InvalidArgument("cannot delete your own account")
            event = user.remove(directory, tenant, name, may_lock=_by_socket(identity))
            group = self._state_log.commit((event,))
        self._note(identity, "user.delete", tenant, name)
        return group

    def get(self, identity: Identity, tenant: str, name: str) -> User:
        self._require(identity, tenant)
        return user.find(self._state_log.current().directory, tenant, name)

    def list(self, identity: Identity, tenant: str) -> Sequence[User]:
        """All users of the tenant, ordered by name."""
        self._require(identity, tenant)
        users = self._state_log.current().directory.users.get(tenant, {})
        return [users[name] for name in sorted(users)]

    @property
    def count(self) -> int:
        """The number of users in all tenants."""
        return sum(map(len, self._state_log.state.directory.users.values()))

    def permissions(self, of: User) -> tuple[str, ...]:
        """The combined coarse permissions of the user's roles."""
        return self._state_log.state.directory.permissions(of)

    # -- roles

    def set_role(
        self, identity: Identity, tenant: str, name: str, permissions: Sequence[str], description: str = ""
    ) -> CommitGroup:
        with self._attempt(identity, "role.set", tenant, name):
            self._require(identity, tenant)
            directory, may_lock = self._state_log.current().directory, _by_socket(identity)
            event = user.set_role(directory, self._limits, tenant, name, permissions, description, may_lock=may_lock)
            group = self._state_log.commit((event,))
        self._note(identity, "role.set", tenant, name, permissions=",".join(event.permissions))
        return group

    def delete_role(self, identity: Identity, tenant: str, name: str) -> CommitGroup:
        with self._attempt(identity, "role.delete", tenant, name):
            self._require(identity, tenant)
            group = self._state_log.commit((user.remove_role(self._state_log.current().directory, tenant, name),))
        self._note(identity, "role.delete", tenant, name)
        return group

    def list_roles(self, identity: Identity, tenant: str) -> Sequence[Role]:
        """The built-in roles and, for members of the tenant, its own, ordered by name."""
        roles = self._state_log.current().directory.roles.get(tenant, {})
        belongs = identity.tenant == tenant and self.enabled(identity)
        if self._access.enforced and not belongs and identity.name != ADMINISTRATOR.name:
            roles = {}
        return [*BUILT_IN.values(), *(roles[name] for name in sorted(roles))]

    # -- access lists

    @property
    def default_public(self) -> bool:
        """Whether topics without a list are public."""
        return self._user_access.policy.default_public

    def set_acl(self, identity: Identity, scope: Scope, acl: Acl) -> CommitGroup:
        with self._audit.attempt(identity, "acl.set", scope=scope, resource=acl.topic):
            self._require(identity, scope.tenant)
            directory, policy = self._state_log.current().directory, self._user_access.policy
            group = self._state_log.commit((user.set_acl(directory, self._limits, policy, scope, acl),))
        self._audit.note(
            identity,
            "acl.set",
            scope=scope,
            resource=acl.topic,
            action="set",
            public=str(acl.public).lower(),
            restrict=str(acl.restrict).lower(),
            users=",".join(acl.users),
            roles=",".join(acl.roles),
        )
        return group

    def get_acl(self, identity: Identity, scope: Scope, topic: str) -> Acl | None:
        self._require(identity, scope.tenant)
        return self._state_log.current().directory.acls.get(scope, {}).get(topic)

    def delete_acl(self, identity: Identity, scope: Scope, topic: str) -> CommitGroup | None:
        """Delete an access list. If there is none, returns the group that is still pending, or None."""
        with self._audit.attempt(identity, "acl.delete", scope=scope, resource=topic):
            self._require(identity, scope.tenant)
            event = user.remove_acl(self._state_log.current().directory, scope, topic)
            if event is None:
                return self._state_log.pending_commit
            group = self._state_log.commit((event,))
        self._audit.note(identity, "acl.delete", scope=scope, resource=topic, action="delete")
        return group

    def list_acls(self, identity: Identity, scope: Scope) -> Sequence[Acl]:
        """All access lists of the scope, ordered by topic."""
        self._require(identity, scope.tenant)
        acls = self._state_log.current().directory.acls.get(scope, {})
        return [acls[topic] for topic in sorted(acls)]

    def _attempt(self, identity: Identity, what: str, tenant: str, name: str) -> Attempt:
        """The context of a change of a user or a role; a failure is audited."""
        return self._audit.attempt(identity, what, scope=Scope(tenant, "*"), resource=name)

    def _note(self, identity: Identity, what: str, tenant: str, name: str, **details: str) -> None:
        """Audit a change of a user or a role."""
        action = what.partition(".")[2]
        self._audit.note(identity, what, scope=Scope(tenant, "*"), resource=name, action=action, **details)  # type: ignore[arg-type]

    def _require(self, identity: Identity, tenant: str) -> None:
        self._access.require(identity, Permission.ADMIN, Scope(tenant, "*"), "")


def _counted(tenant: str, name: str) -> str:
    """The name for which wrong passwords are counted, whether or not the user exists."""
    return f"{PRINCIPAL}{tenant}/{name}"


def _by_socket(identity: Identity) -> bool:
    """Whether the identity has access to the data directory, and so can always create another administrator."""
    return identity.name == ADMINISTRATOR.name
