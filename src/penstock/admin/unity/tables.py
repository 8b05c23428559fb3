"""Finding tables for the API: by catalog, schema and name, and by id. Every way checks that the topic may be read."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from penstock.admin.unity.errors import CatalogNotFound
from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, InvalidName, TableNotFound, TopicNotFound, TypedTableNotFound
from penstock.broker.names import Scope, scope
from penstock.broker.security.access import Identity, Permission
from penstock.doors.http.router import Request
from penstock.log.tables.location import TYPED_SUFFIX, TableRef, local_folder, typed_ref

CATALOG: Final = "penstock"
_TOPIC_BITS: Final = 61
_MISSING: Final = (AccessDenied, TableNotFound, TopicNotFound, TypedTableNotFound)


class CatalogTable(NamedTuple):
    name: str
    ref: TableRef
    catalog: str
    schema: str
    typed: bool

    @property
    def id(self) -> str:
        return table_id(self.ref, typed=self.typed)

    @property
    def location(self) -> str:
        folder = local_folder(self.ref.url)
        return self.ref.url if folder is None else f"file://{folder}"


def table_id(ref: TableRef, *, typed: bool) -> str:
    """A UUID of version 8 from the table's location, with the topic's id at its end."""
    place = int.from_bytes(sha256(ref.url.encode()).digest()[:8])
    number = (place << 64 | ref.topic << 1 | typed) & ~(0xF << 76 | 0x3 << 62)
    return str(uuid.UUID(int=number | 0x8 << 76 | 0x2 << 62))


def topic_of_id(given: str) -> tuple[int, bool] | None:
    """The topic's id and whether it is its typed table; None if this is no table's id."""
    try:
        number = uuid.UUID(given).int
    except ValueError:
        return None
    return number >> 1 & (1 << _TOPIC_BITS) - 1, bool(number & 1)


class CatalogTables:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def tenant(self, request: Request, catalog: str) -> str:
        """The tenant of a catalog: `penstock` is that of the request, any other name is a tenant's own."""
        return request.tenant if catalog == CATALOG else catalog

    def schemas(self, request: Request, catalog: str) -> Sequence[str]:
        """The schemas in which the caller may see topics. Raises AccessDenied if there are none, CatalogNotFound for
        another tenant without topics that the caller may see."""
        tenant, topics = self.tenant(request, catalog), self._broker.topics
        found = topics.namespaces(request.identity, tenant)
        if tenant != request.tenant and not any(topics.list(request.identity, scope(tenant, name)) for name in found):
            raise CatalogNotFound(catalog)
        return found

    def list(self, request: Request, catalog: str, schema: str) -> list[CatalogTable]:
        """The tables that the caller may read, by name."""
        place, identity = scope(self.tenant(request, catalog), schema), request.identity
        found = []
        for topic in self._broker.topics.list(identity, place):
            if not self._broker.access.allows(identity, Permission.READ, place, topic.name):
                continue
            table = self._broker.tables.describe(identity, place, topic.name)
            if table is None:
                continue
            found.append(CatalogTable(topic.name, table.ref, catalog, schema, typed=False))
            if (name := self._broker.tables.typed_name(topic)) is not None:
                found.append(CatalogTable(name, typed_ref(table.ref), catalog, schema, typed=True))
        return sorted(found, key=lambda table: table.name)

    def find(self, request: Request, catalog: str, schema: str, name: str) -> CatalogTable:
        """Raises AccessDenied, or one of the errors for a table that does not exist."""
        place = scope(self.tenant(request, catalog), schema)
        return self._find(request.identity, place, name, catalog)

    def _find(self, identity: Identity, place: Scope, name: str, catalog: str) -> CatalogTable:
        tables = self._broker.tables
        topic = tables.typed_topic(identity, place, name)
        found = tables.describe(identity, place, name if topic is None else topic.name)
        if found is None or (topic is not None and tables.typed_name(topic) != name):
            raise TableNotFound(name)
        ref = found.ref if topic is None else typed_ref(found.ref)
        return CatalogTable(name, ref, catalog, place.namespace, typed=topic is not None)

    def named(self, request: Request, full_name: str) -> CatalogTable:
        """A table by `catalog.schema.table`. Names of schemas and tables may have dots: the first way to divide them
        that gives a table counts. Raises as `find` does for the first one."""
        catalog, _, rest = full_name.replace("`", "").partition(".")
        schema, _, name = rest.partition(".")
        if not name:
            raise InvalidName(f"'{full_name[:200]}' is not catalog.schema.table")
        parts = rest.split(".")
        for at in range(2, len(parts)):
            longer, last = ".".join(parts[:at]), ".".join(parts[at:])
            if longer in self.schemas(request, catalog):
                try:
                    return self.find(request, catalog, longer, last)
                except _MISSING:
                    continue
        return self.find(request, catalog, schema, name)

    def with_id(self, identity: Identity, given: str) -> CatalogTable:
        """A table by its id. Raises TableNotFound, also for one that the caller may not read."""
        known = topic_of_id(given)
        topic = None if known is None else self._broker.tables.readable(identity, known[0])
        if known is None or topic is None:
            raise TableNotFound(given[:200])
        name = f"{topic.name}{TYPED_SUFFIX}" if known[1] else topic.name
        table = self._find(identity, topic.scope, name, CATALOG)
        if table.id != given.lower():
            raise TableNotFound(given[:200])
        return table
