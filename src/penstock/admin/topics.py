"""Topics' settings as a resource of the admin socket: `/topics/default/default/orders`.

Only settings that something acts on can be changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply
from penstock.admin.resources import Handler, ResourceTree, document
from penstock.broker.names import scope
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.topics.topic_settings import TopicSettings

MAX_SECONDS = 100 * 365 * 86_400

Seconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]


class TopicChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PATCH /topics/TENANT/NAMESPACE/NAME`. What is not there stays as it is; null is the default."""

    schema: Annotated[str, Meta(min_length=1)] | UnsetType | None = UNSET
    rejected: Literal["error", "dead-letter"] | UnsetType | None = UNSET
    retention_seconds: Seconds | UnsetType | None = UNSET
    retention_bytes: Annotated[int, Meta(gt=0, lt=1 << 62)] | UnsetType | None = UNSET
    expiry_seconds: Seconds | UnsetType | None = UNSET
    fetch_wait_seconds: Annotated[float, Meta(ge=0, le=9)] | UnsetType | None = UNSET
    table: bool | UnsetType | None = UNSET
    data_class: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType | None = UNSET


class TopicResource(ResourceTree):
    root = b"topics"
    operations: ClassVar = {(3, b"PATCH"): "topic.alter"}

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {3: {b"GET": self._get, b"PATCH": self._change}}

    def _get(self, _body: bytes, tenant: str, namespace: str, name: str) -> Outcome:
        return self._reply(self._settings(tenant, namespace, name))

    def _change(self, body: bytes, tenant: str, namespace: str, name: str) -> Outcome:
        request = msgspec.json.decode(body, type=TopicChange)
        where = scope(tenant, namespace)
        with self._broker.audit.attempt(ADMINISTRATOR, "topic.alter", scope=where, resource=name):
            if isinstance(request.schema, str):  # a mistyped name would reject every record
                self._broker.schemas.get(ADMINISTRATOR, where, request.schema)
            changes = {key: value for key, value in msgspec.structs.asdict(request).items() if value is not UNSET}
            settings = msgspec.structs.replace(self._settings(tenant, namespace, name), **changes)
            group = self._broker.topics.change(ADMINISTRATOR, where, name, settings)
        return PendingHttpReply(group, HttpReply(200, document(settings), JSON))

    def _settings(self, tenant: str, namespace: str, name: str) -> TopicSettings:
        return self._broker.topics.describe(ADMINISTRATOR, scope(tenant, namespace), name).topic.settings
