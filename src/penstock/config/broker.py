"""The configuration as the settings of the log and the policies of the broker."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.limits import Limits
from penstock.broker.queries.queries import QueryPolicy
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ADMINISTRATION, AccessPolicy, Grant
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.user import UserPolicy
from penstock.broker.settings import BrokerSettings
from penstock.broker.tables.table import TablePolicy
from penstock.config.settings import ConfigError, Settings
from penstock.config.tokens import token_policy
from penstock.log.engine import Durability, Retention
from penstock.log.file_engine import LogSettings


def data_directory(settings: Settings) -> str:
    """The data directory as an absolute path."""
    return os.path.abspath(os.path.expanduser(settings.data_dir))


def log_settings(settings: Settings, durability: Durability | None = None) -> LogSettings:
    """`[log]`; `durability` overrides the configured level."""
    options = msgspec.structs.asdict(settings.log)
    if durability is not None:
        options["durability"] = durability
    return LogSettings(**options)


def broker_settings(settings: Settings, data_dir: str) -> BrokerSettings:
    """The policies of all services. Raises ConfigError for key files of tokens, or of an object store, that cannot be
    read."""
    return BrokerSettings(
        access=access_policy(settings),
        limits=limits(settings),
        default_retention=default_retention(settings),
        auto_create_topics=settings.topics.auto_create_topics,
        queues=queue_policy(settings),
        users=user_policy(settings),
        lockout=lockout_policy(settings),
        tokens=token_policy(settings),
        audit=audit_policy(settings),
        tables=table_policy(settings, data_dir),
        queries=query_policy(settings),
        caches=cache_policy(settings),
        topic_series=settings.telemetry.topic_series,
    )


def administration_settings(settings: Settings) -> BrokerSettings:
    """The settings of a broker that is opened for one administrative request, without doors."""
    return BrokerSettings(
        access=AccessPolicy(True, [ADMINISTRATION]), users=user_policy(settings), audit=audit_policy(settings)
    )


def access_policy(settings: Settings) -> AccessPolicy:
    """`[security]`: enforcement, and the configured grants besides the administrator's."""
    grants = [
        Grant(grant.principal, frozenset(grant.permissions), grant.tenant, grant.namespace, grant.topic)
        for grant in settings.security.grants
    ]
    return AccessPolicy(settings.security.mode == "on", [*grants, ADMINISTRATION])


def limits(settings: Settings) -> Limits:
    return Limits(
        record_bytes=settings.limits.record_bytes,
        transaction_us=int(settings.topics.transaction_seconds * 1_000_000),
        delay_us=int(settings.topics.max_delay_seconds * 1_000_000),
        transaction_bytes=min(Limits().transaction_bytes, settings.log.entry_bytes),
        staged_bytes=settings.flight.staged_bytes,
        publication_entry_bytes=settings.flight.atomic_bytes,
        login_requests=settings.limits.login_requests,
        login_bytes=settings.limits.login_bytes,
        topics=settings.limits.topics,
        connections=settings.limits.connections,
        tenant_share=settings.limits.tenant_share,
        tenant_connections=settings.limits.tenant_connections,
        tenant_requests=settings.limits.tenant_requests_per_second,
        tenant_topics=settings.limits.tenant_topics,
        tenant_bytes=settings.limits.tenant_bytes,
    )


def default_retention(settings: Settings) -> Retention:
    return Retention(settings.topics.retention_seconds or None, settings.topics.retention_bytes or None)


def queue_policy(settings: Settings) -> QueuePolicy:
    queues = settings.queues
    return QueuePolicy(
        capacity=queues.capacity,
        ttl=int(queues.ttl_seconds * 1_000_000),
        attempts=queues.attempts,
        backoff=int(queues.backoff_seconds * 1_000_000),
        idle=int(queues.idle_seconds * 1_000_000),
    )


def lockout_policy(settings: Settings) -> LockoutPolicy:
    return LockoutPolicy(settings.security.lockout_failures, settings.security.lockout_seconds)


def user_policy(settings: Settings) -> UserPolicy:
    return UserPolicy(settings.security.default_public, settings.security.allow_anonymous)


def audit_policy(settings: Settings) -> AuditPolicy:
    security = settings.security
    enabled = security.mode == "on" if security.audit == "auto" else security.audit == "on"
    return AuditPolicy(enabled, security.audit_retention_seconds, security.audit_retention_bytes, settings.flymq.node)


def query_policy(settings: Settings) -> QueryPolicy:
    sql = settings.sql
    return QueryPolicy(
        sql.enabled,
        sql.start != "statement",
        sql.seconds,
        at_once=sql.threads,
        tenant_share=settings.limits.tenant_share,
    )


def cache_policy(settings: Settings) -> CachePolicy:
    return CachePolicy(**msgspec.structs.asdict(settings.cache))


def object_store_options(given: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE`, and `NAME.file=PATH` for a value in a file. Raises ConfigError."""
    options = {}
    for option in given:
        name, value = option.split("=", 1)
        if name.endswith(".file"):
            name = name.removesuffix(".file")
            try:
                with open(os.path.expanduser(value), encoding="utf-8") as file:
                    value = file.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"tables.options: {name}.file: {value} cannot be read: {error}") from None
        options[name] = value
    return options


def table_policy(settings: Settings, data_dir: str) -> TablePolicy:
    tables = settings.tables
    return TablePolicy(
        enabled=tables.enabled,
        root=tables.url or os.path.join(data_dir, "tables"),
        options=object_store_options(tables.options),
        file_bytes=tables.file_bytes,
        keep_us=int(tables.keep_seconds * 1_000_000),
        maintenance_us=int(tables.care_seconds * 1_000_000),
        typed=tables.typed,
    )
