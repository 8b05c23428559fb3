"""Administration: topics, groups, users, keys, access lists, roles, schemas and tenants, over `/api/v1`.

Each resource is a class of procedures, written once; `Admin` and `AsyncAdmin` have one instance of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from penstock.clients import http
from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients.http.requests import call, change
from penstock.connection import views as v
from penstock.connection.admin_delivery import Caches, DeadLetterTopics, Delayed, Queues, Transactions
from penstock.connection.admin_requests import all_pages, ask

T = TypeVar("T")


class Topics:
    """Topics and their settings: `schema`, `rejected`, `retention_seconds`, `retention_bytes`, `expiry_seconds`,
    `fetch_wait_seconds`, `table`, `data_class`; None selects the default."""

    @procedure_method
    def list(self, prefix: str = "") -> Procedure[list[v.TopicInfo]]:
        """All topics, or those whose name starts with `prefix`."""
        return (yield from all_pages(v.TopicInfo, "topics", prefix=prefix))

    @procedure_method
    def create(self, /, name: str, partitions: int = 1, **settings: Any) -> Procedure[v.TopicInfo]:
        """Create a topic. Raises Conflict if it exists."""
        body = {"name": name, "partitions": partitions, "settings": settings}
        return (yield from ask(call("POST", "topics", body=body, reply=v.TopicInfo)))

    @procedure_method
    def get(self, name: str) -> Procedure[v.TopicDetails]:
        """Partitions, settings and groups of a topic."""
        return (yield from ask(call("GET", "topics", name, reply=v.TopicDetails)))

    @procedure_method
    def set(self, /, name: str, **settings: Any) -> Procedure[dict[str, Any]]:
        """Change some settings. Returns all of them."""
        return (yield from ask(call("PATCH", "topics", name, body=settings, reply=dict[str, Any], idempotent=True)))

    @procedure_method
    def delete(self, name: str) -> Procedure[None]:
        """Delete a topic and its records."""
        yield from ask(change("DELETE", "topics", name))


class Groups:
    """Consumer groups."""

    @procedure_method
    def list(self) -> Procedure[list[v.Group]]:
        """All groups with their lag: one entry per group and topic."""
        return (yield from all_pages(v.Group, "groups"))

    @procedure_method
    def get(self, group: str, topic: str) -> Procedure[v.Group]:
        return (yield from ask(call("GET", "groups", group, topic, reply=v.Group)))

    @procedure_method
    def reset(
        self,
        group: str,
        topic: str,
        to: Literal["earliest", "latest"] | int | datetime,
        *,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Procedure[v.OffsetMoves]:
        """Move the committed offsets of a group, in one partition or in all. With `dry_run`, only report what would
        change."""
        body: dict[str, Any] = {"dry_run": dry_run, "partition": partition}
        if isinstance(to, datetime):
            body["time"] = round(to.timestamp() * 1_000_000)
        else:
            body["to" if isinstance(to, str) else "offset"] = to
        return (yield from ask(call("POST", "groups", group, topic, "offsets", body=body, reply=v.OffsetMoves)))

    @procedure_method
    def delete(self, group: str, topic: str) -> Procedure[None]:
        """Delete a group's offsets in a topic."""
        yield from ask(change("DELETE", "groups", group, topic))


class Users:
    """Users, who log in with a password."""

    @procedure_method
    def list(self) -> Procedure[list[v.User]]:
        return (yield from all_pages(v.User, "users"))

    @procedure_method
    def create(self, name: str, password: str, roles: Sequence[str] = ()) -> Procedure[v.User]:
        """Create a user. Raises Conflict if it exists."""
        body = {"name": name, "password": password, "roles": tuple(roles)}
        return (yield from ask(call("POST", "users", body=body, reply=v.CreatedUser))).user

    @procedure_method
    def get(self, name: str) -> Procedure[v.User]:
        return (yield from ask(call("GET", "users", name, reply=v.User)))

    @procedure_method
    def update(self, name: str, *, roles: Sequence[str] | None = None, enabled: bool | None = None) -> Procedure[None]:
        """Set the roles, and whether the user may log in; None means no change."""
        body = {"roles": None if roles is None else tuple(roles), "enabled": enabled}
        yield from ask(change("PATCH", "users", name, body=body))

    @procedure_method
    def set_password(self, name: str, password: str, old: str = "") -> Procedure[None]:
        """Set a password. Users who change their own password must give the old one."""
        yield from ask(change("PUT", "users", name, "password", body={"password": password, "old": old}))

    @procedure_method
    def delete(self, name: str) -> Procedure[None]:
        yield from ask(change("DELETE", "users", name))


class Keys:
    """API keys, for programs."""

    @procedure_method
    def list(self) -> Procedure[list[v.Key]]:
        return (yield from all_pages(v.Key, "keys"))

    @procedure_method
    def create(
        self,
        name: str,
        permissions: Sequence[str] = (),
        *,
        topics: Sequence[str] = ("*",),
        roles: Sequence[str] = (),
        expires: datetime | None = None,
    ) -> Procedure[v.NewKey]:
        """Create a key. It grants `permissions` on topics that match the patterns in `topics`, and the permissions of
        `roles`. The result is the only place where its secret appears."""
        body = {
            "name": name, "permissions": list(permissions), "topics": tuple(topics), "roles": tuple(roles),
            "expires": None if expires is None else round(expires.timestamp() * 1_000_000),
        }  # fmt: skip
        return (yield from ask(call("POST", "keys", body=body, reply=v.NewKey)))

    @procedure_method
    def rotate(self, id: int) -> Procedure[v.NewKey]:  # noqa: A002 - it is the key's id
        """Replace a key by a new one with the same permissions, and revoke the old one."""
        return (yield from ask(call("POST", "keys", str(id), "rotate", reply=v.NewKey)))

    @procedure_method
    def revoke(self, id: int) -> Procedure[None]:  # noqa: A002 - it is the key's id
        yield from ask(change("DELETE", "keys", str(id)))


class Acls:
    """Access lists: who may use a topic in addition to those whose roles allow it; with `restrict`, nobody else may."""

    @procedure_method
    def list(self) -> Procedure[list[v.Acl]]:
        return (yield from all_pages(v.Acl, "acls"))

    @procedure_method
    def get(self, topic: str) -> Procedure[v.Acl]:
        return (yield from ask(call("GET", "acls", topic, reply=v.Acl)))

    @procedure_method
    def set(
        self,
        topic: str,
        *,
        users: Sequence[str] = (),
        roles: Sequence[str] = (),
        public: bool = False,
        restrict: bool = False,
    ) -> Procedure[None]:
        body = {"public": public, "users": tuple(users), "roles": tuple(roles), "restrict": restrict}
        yield from ask(change("PUT", "acls", topic, body=body))

    @procedure_method
    def delete(self, topic: str) -> Procedure[None]:
        yield from ask(change("DELETE", "acls", topic))


class Roles:
    """Roles: named sets of permissions."""

    @procedure_method
    def list(self) -> Procedure[list[v.Role]]:
        return (yield from all_pages(v.Role, "roles"))

    @procedure_method
    def set(self, name: str, permissions: Sequence[str], description: str = "") -> Procedure[None]:
        """Create or replace a role."""
        body = {"permissions": tuple(permissions), "description": description}
        yield from ask(change("PUT", "roles", name, body=body))

    @procedure_method
    def delete(self, name: str) -> Procedure[None]:
        yield from ask(change("DELETE", "roles", name))


class Schemas:
    """The schema registry."""

    @procedure_method
    def list(self) -> Procedure[list[v.Schema]]:
        """All versions of all schemas."""
        return (yield from all_pages(v.Schema, "schemas"))

    @procedure_method
    def register(
        self, name: str, definition: bytes | str, kind: Literal["json", "avro", "protobuf"] = "json"
    ) -> Procedure[v.Schema]:
        """Register the next version. Raises Conflict if it is incompatible with earlier versions."""
        text = definition.encode() if isinstance(definition, str) else definition
        body = {"kind": kind, "definition": text}
        return (yield from ask(call("POST", "schemas", name, body=body, reply=v.Schema)))

    @procedure_method
    def get(self, name: str, version: int) -> Procedure[v.SchemaText]:
        """One version with its definition."""
        return (yield from ask(call("GET", "schemas", name, str(version), reply=v.SchemaText)))

    @procedure_method
    def validate(self, name: str, version: int, value: bytes) -> Procedure[v.SchemaVerdict]:
        """Validate a value against this version."""
        spec = call("POST", "schemas", name, str(version), body={"message": value}, reply=v.SchemaVerdict)
        return (yield from ask(spec))

    @procedure_method
    def set_compatibility(self, name: str, mode: Literal["none", "backward", "forward", "full"]) -> Procedure[None]:
        """Set how versions of a schema must be compatible with each other."""
        yield from ask(change("PUT", "schemas", name, body={"mode": mode}))

    @procedure_method
    def delete(self, name: str) -> Procedure[None]:
        """Delete all versions of a schema."""
        yield from ask(change("DELETE", "schemas", name))


class Tenants:
    """Tenants; for administrators of all tenants."""

    @procedure_method
    def list(self) -> Procedure[list[v.Tenant]]:
        return (yield from all_pages(v.Tenant, "tenants"))

    @procedure_method
    def create(self, name: str, label: str | None = None) -> Procedure[v.Tenant]:
        return (yield from ask(call("PUT", "tenants", name, body={"label": label}, reply=v.Tenant, idempotent=False)))

    @procedure_method
    def delete(self, name: str) -> Procedure[None]:
        """Delete a tenant and everything in it."""
        yield from ask(change("DELETE", "tenants", name))


class Broker:
    """The broker itself."""

    @procedure_method
    def info(self) -> Procedure[v.BrokerInfo]:
        """Version, health, doors, and the position of the log."""
        return (yield from ask(call("GET", "broker", reply=v.BrokerInfo)))

    @procedure_method
    def doors(self) -> Procedure[list[v.Door]]:
        return (yield from all_pages(v.Door, "doors"))

    @procedure_method
    def identity(self) -> Procedure[v.Identity]:
        """The identity of this connection, and its permissions."""
        return (yield from ask(call("GET", "identity", reply=v.Identity)))


class _Blocking:
    def __init__(self, client: http.Client) -> None:
        self._client = client

    def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)


class _Async:
    def __init__(self, client: http.AsyncClient) -> None:
        self._client = client

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)


class BlockingTopics(Topics, _Blocking): ...


class BlockingGroups(Groups, _Blocking): ...


class BlockingUsers(Users, _Blocking): ...


class BlockingKeys(Keys, _Blocking): ...


class BlockingAcls(Acls, _Blocking): ...


class BlockingRoles(Roles, _Blocking): ...


class BlockingSchemas(Schemas, _Blocking): ...


class BlockingTenants(Tenants, _Blocking): ...


class BlockingQueues(Queues, _Blocking): ...


class BlockingDeadLetterTopics(DeadLetterTopics, _Blocking): ...


class BlockingDelayed(Delayed, _Blocking): ...


class BlockingTransactions(Transactions, _Blocking): ...


class BlockingCaches(Caches, _Blocking): ...


class AsyncTopics(Topics, _Async): ...


class AsyncGroups(Groups, _Async): ...


class AsyncUsers(Users, _Async): ...


class AsyncKeys(Keys, _Async): ...


class AsyncAcls(Acls, _Async): ...


class AsyncRoles(Roles, _Async): ...


class AsyncSchemas(Schemas, _Async): ...


class AsyncTenants(Tenants, _Async): ...


class AsyncQueues(Queues, _Async): ...


class AsyncDeadLetterTopics(DeadLetterTopics, _Async): ...


class AsyncDelayed(Delayed, _Async): ...


class AsyncTransactions(Transactions, _Async): ...


class AsyncCaches(Caches, _Async): ...


class Admin(Broker, _Blocking):
    """Administration of a broker: `connection.admin.topics.create("orders", partitions=3)`."""

    def __init__(self, client: http.Client) -> None:
        super().__init__(client)
        self.topics = BlockingTopics(client)
        self.groups = BlockingGroups(client)
        self.users = BlockingUsers(client)
        self.keys = BlockingKeys(client)
        self.acls = BlockingAcls(client)
        self.roles = BlockingRoles(client)
        self.schemas = BlockingSchemas(client)
        self.tenants = BlockingTenants(client)
        self.queues = BlockingQueues(client)
        self.dead_letters = BlockingDeadLetterTopics(client)
        self.delayed = BlockingDelayed(client)
        self.transactions = BlockingTransactions(client)
        self.caches = BlockingCaches(client)


class AsyncAdmin(Broker, _Async):
    """`Admin` for asyncio: every method is a coroutine."""

    def __init__(self, client: http.AsyncClient) -> None:
        super().__init__(client)
        self.topics = AsyncTopics(client)
        self.groups = AsyncGroups(client)
        self.users = AsyncUsers(client)
        self.keys = AsyncKeys(client)
        self.acls = AsyncAcls(client)
        self.roles = AsyncRoles(client)
        self.schemas = AsyncSchemas(client)
        self.tenants = AsyncTenants(client)
        self.queues = AsyncQueues(client)
        self.dead_letters = AsyncDeadLetterTopics(client)
        self.delayed = AsyncDelayed(client)
        self.transactions = AsyncTransactions(client)
        self.caches = AsyncCaches(client)
