"""The settings of a broker: one object with the policies of all its services. `config` makes it from the configuration;
a program that embeds a broker constructs it directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.limits import Limits
from penstock.broker.queries.queries import QueryPolicy
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import AccessPolicy
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.token import TokenPolicy
from penstock.broker.security.user import UserPolicy
from penstock.broker.tables.table import TablePolicy
from penstock.log.engine import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    access: AccessPolicy = field(default_factory=AccessPolicy)
    limits: Limits = field(default_factory=Limits)
    default_retention: Retention = field(default_factory=Retention)  # for topics without their own
    auto_create_topics: bool = True  # a topic is created when a client first uses it
    queues: QueuePolicy = field(default_factory=QueuePolicy)
    users: UserPolicy = field(default_factory=UserPolicy)
    lockout: LockoutPolicy = field(default_factory=LockoutPolicy)
    tokens: TokenPolicy = field(default_factory=TokenPolicy)
    audit: AuditPolicy = field(default_factory=AuditPolicy)
    tables: TablePolicy = field(default_factory=TablePolicy)
    queries: QueryPolicy = field(default_factory=QueryPolicy)
    caches: CachePolicy = field(default_factory=CachePolicy)
    topic_series: int = 100  # topics with their own time series in the metrics
