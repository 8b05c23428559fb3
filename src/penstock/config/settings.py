"""The broker's configuration: every key with its default and its range.

Values come from a TOML file, from environment variables and from flags, each stronger than the one before; the
`settings` of a `Config` are complete and valid, and `origins` says where each value came from. How the layers are
read and refused is in `penstock.config.layers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.broker.limits import Limits
from penstock.broker.security.access import Permission
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.tables.table import TablePolicy
from penstock.log.engine import Durability
from penstock.log.file_engine import LogSettings
from penstock.structured_logging import LogFormat

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DAY = 86_400

# `extra={"unit": …}` lets a key be written as "64MiB" or "7d" as well as as a number.
SIZE = {"unit": "size"}
DURATION = {"unit": "duration"}

Address = Annotated[str, Meta(extra={"unit": "address"}, max_length=300)]
"""`host:port`, `[v6]:port`, or `off`."""

PRINCIPAL_OF_DOOR = "^(rustlog|http)=[A-Za-z0-9_.-]{1,200}$"
"""Only doors without a login; and no name that a key, a user, a certificate or the admin socket can have."""


_LOG = LogSettings()
_AUDIT = AuditPolicy()
_TABLES = TablePolicy()


class LogSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[log]`: how the journal keeps what it is given."""

    durability: Durability = _LOG.durability
    file_bytes: Annotated[int, Meta(ge=64 * KIB, le=4 * GIB, extra=SIZE)] = _LOG.file_bytes
    entry_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = _LOG.entry_bytes
    group_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = _LOG.group_bytes
    tail_bytes: Annotated[int, Meta(ge=0, le=64 * GIB, extra=SIZE)] = _LOG.tail_bytes
    cache_bytes: Annotated[int, Meta(ge=0, le=64 * GIB, extra=SIZE)] = _LOG.cache_bytes
    snapshot_bytes: Annotated[int, Meta(ge=64 * KIB, le=64 * GIB, extra=SIZE)] = _LOG.snapshot_bytes
    roll_seconds: Annotated[float, Meta(ge=1, le=3650 * DAY, extra=DURATION)] = _LOG.roll_seconds


class ListenSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[listen]`: where each door is. Doors with the same address share one port and are told apart by first bytes."""

    rustlog: Address = "127.0.0.1:9092"
    blipmq: Address = "127.0.0.1:5555"
    flymq: Address = "127.0.0.1:9092"
    kimberlite: Address = "127.0.0.1:5432"
    felix: Address = "127.0.0.1:5000"
    http: Address = "127.0.0.1:8080"
    flight: Address = "127.0.0.1:8815"
    flymq_admin: Address = "127.0.0.1:9096"  # FlyMQ's administration over HTTP, for its command line
    pinned: tuple[str, ...] = ()  # doors whose port serves them alone, without looking at the first bytes
    # DOOR=PRINCIPAL: whom `security.grants` are for, of clients that have no way to say who they are.
    principals: tuple[Annotated[str, Meta(pattern=PRINCIPAL_OF_DOOR)], ...] = ()


DOOR_NAMES = tuple(name for name in ListenSection.__struct_fields__ if name not in ("pinned", "principals"))
UDP_DOORS = ("felix",)  # share no port with the others, whatever its number


class TlsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[tls]`: PEM files. With a certificate, every stream port takes TLS beside plain text."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""  # with it, TLS clients must show a certificate that it signed
    required: bool = False  # refuse plain text
    min_version: Literal["1.3", "1.2"] = "1.3"  # of TLS that a client must speak; QUIC always has 1.3


class LimitsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[limits]`: what one client, and all of them together, can make the broker hold."""

    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    # What one address may have of them while security is on: this part of what others leave; 1: all, behind a proxy.
    address_share: Annotated[float, Meta(ge=0.01, le=1)] = 0.5
    connection_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 16 * MIB
    total_bytes: Annotated[int, Meta(ge=16 * MIB, le=1024 * GIB, extra=SIZE)] = 512 * MIB
    record_bytes: Annotated[int, Meta(ge=1, le=GIB, extra=SIZE)] = Limits().record_bytes
    idle_seconds: Annotated[float, Meta(ge=0.1, le=30 * DAY, extra=DURATION)] = 600
    handshake_seconds: Annotated[float, Meta(ge=0.1, le=3600, extra=DURATION)] = 10
    keepalive_seconds: Annotated[float, Meta(ge=0, le=DAY, extra=DURATION)] = 60  # silence before TCP probes; 0: none
    keepalive_interval_seconds: Annotated[float, Meta(ge=1, le=3600, extra=DURATION)] = 15  # between two of them
    keepalive_probes: Annotated[int, Meta(ge=1, le=127)] = 4  # without an answer: the connection is closed
    shutdown_seconds: Annotated[float, Meta(ge=0, le=3600, extra=DURATION)] = 10
    login_requests: Annotated[int, Meta(ge=8, le=1_000_000)] = Limits().login_requests  # before a login that is needed
    login_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = Limits().login_bytes  # the same
    topics: Annotated[int, Meta(ge=1, le=1_000_000)] = Limits().topics  # of all tenants together
    # What one tenant may have of each limit of all together: this part of what the others leave; 1: all of it.
    tenant_share: Annotated[float, Meta(ge=0.01, le=1)] = Limits().tenant_share
    tenant_connections: Annotated[int, Meta(ge=0, le=1_000_000)] = 1_000  # of one tenant at a door with tenants
    tenant_requests_per_second: Annotated[float, Meta(ge=0, le=1e9)] = 0  # the same; 0: no limit, as in the next two
    tenant_topics: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    tenant_bytes: Annotated[int, Meta(ge=0, le=1 << 60, extra=SIZE)] = 0  # in its topics, tables too


class PerformanceSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[performance]`: processor time for speed."""

    busy_poll_us: Annotated[int, Meta(ge=0, le=10_000)] = 100  # look for more before going to sleep; 0: sleep at once
    # The event loop is held up for longer: log who did it; 0: never.
    stall_seconds: Annotated[float, Meta(ge=0, le=60, extra=DURATION)] = 0.1


class Grant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One entry of `security.grants`. The topic, or the cache for permissions of caches, is a pattern: `*` stands for
    anything."""

    principal: Annotated[str, Meta(min_length=1, max_length=255)]
    permissions: Annotated[tuple[Permission, ...], Meta(min_length=1)]
    tenant: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    topic: Annotated[str, Meta(min_length=1, max_length=255)] = "*"


class SecuritySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[security]`: off means that anybody who can connect is administrator of every tenant."""

    mode: Literal["off", "on"] = "off"
    insecure_ok: bool = False  # open doors beyond loopback although security is off
    grants: Annotated[tuple[Grant, ...], Meta(max_length=10_000)] = ()
    lockout_failures: Annotated[int, Meta(ge=0, le=1000)] = 5  # wrong secrets of a host for one name; 0: no lock-out
    lockout_seconds: Annotated[float, Meta(ge=1, le=DAY, extra=DURATION)] = 60  # within which, and how long at first
    audit: Literal["auto", "on", "off"] = "auto"  # auto: an audit log is kept while `mode` is on
    audit_retention_seconds: Annotated[float, Meta(ge=60, le=36_500 * DAY, extra=DURATION)] = _AUDIT.seconds
    audit_retention_bytes: Annotated[int, Meta(ge=MIB, le=1 << 60, extra=SIZE)] = _AUDIT.bytes  # of each tenant
    default_public: bool = False  # topics without an access list are for every user who logged in
    allow_anonymous: bool = False  # public topics are also for those who did not
    token_keys: tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...] = ()  # files: secret (HS256), PEM, JWKS
    token_issuer: Annotated[str, Meta(max_length=255)] = ""  # `iss` that a JWT must have; empty: any
    token_audience: Annotated[str, Meta(max_length=255)] = ""  # the same of `aud`


class TopicsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[topics]`: what a topic gets that says nothing itself. Zero retention means: keep for ever."""

    auto_create_topics: bool = True
    retention_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = 0
    retention_bytes: Annotated[int, Meta(ge=0, le=1 << 60, extra=SIZE)] = 0
    transaction_seconds: Annotated[float, Meta(ge=1, le=DAY, extra=DURATION)] = 60  # from its beginning to its commit
    max_delay_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = DAY  # of a delayed record


class QueuesSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[queues]`: how long and how often a queue tries to get a message delivered. Zero means: no limit."""

    capacity: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 1024  # messages; beyond it the oldest waiting are dropped
    ttl_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = 60
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 3  # deliveries in all, then the message is a dead letter
    backoff_seconds: Annotated[float, Meta(ge=0.001, le=DAY, extra=DURATION)] = 0.1  # doubled with each attempt
    idle_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = DAY  # unused for so long, it ends


class FlyMqSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[flymq]`: what this door can do in more than one way."""

    auth_reply: Literal["both", "spec", "original"] = "both"  # the order in which the reply to a login is told
    fetch_wait_seconds: Annotated[float, Meta(ge=0, le=9, extra=DURATION)] = 0  # of a FETCH that finds nothing
    node: Annotated[str, Meta(min_length=1, max_length=64)] = "penstock"  # what this node is called
    advertised: Annotated[str, Meta(max_length=300)] = ""  # where clients reach it, if that is not `listen.flymq`


class KimberliteSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kimberlite]`: what this door can do in more than one way."""

    assume: Literal["auto", "seed", "v0.1", "v0.4", "5a", "5b"] = "auto"  # whose numbers a client uses, if not told
    tenants: tuple[Annotated[str, Meta(pattern="^[0-9]+=")], ...] = ()  # NUMBER=NAME; others are named by their number
    auto_create_tenants: bool = True  # a tenant comes into being with its first stream
    push_events: Annotated[int, Meta(ge=1, le=10_000)] = 1  # in one frame; the original's clients take only the first
    read_bytes: Annotated[int, Meta(ge=4 * KIB, le=16 * MIB, extra=SIZE)] = 120 * KIB  # of a reply from version 2 on


class FelixSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[felix]`: QUIC, and what this door can do in more than one way."""

    require_auth: bool = False  # refuse streams that do not begin with `auth`, also with security off
    auto_create_tenants: bool = True  # a tenant comes into being with its first stream
    cache_tenant: Annotated[str, Meta(min_length=1, max_length=64)] = "default"  # of cache messages that name none
    cache_namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    cache: Annotated[str, Meta(min_length=1, max_length=256)] = "default"
    max_frame_bytes: Annotated[int, Meta(ge=64 * KIB, le=256 * MIB, extra=SIZE)] = 16 * MIB
    batch_events: Annotated[int, Meta(ge=1, le=10_000)] = 512  # of one event frame
    batch_bytes: Annotated[int, Meta(ge=KIB, le=16 * MIB, extra=SIZE)] = 64 * KIB  # a larger event goes alone
    subscriptions: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096  # of one connection
    slow: Literal["keep", "drop_new", "drop_old"] = "keep"  # what a subscriber loses that does not keep up
    queue_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 32_768  # by how many it may lag before it loses some
    datagram_bytes: Annotated[int, Meta(ge=0, le=65_000)] = 0  # of what is sent; 0: large on loopback, else 1200
    connection_window: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 4 * MIB  # not taken yet, of a client
    stream_window: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 4 * MIB
    streams: Annotated[int, Meta(ge=1, le=60_000)] = 1024  # that a client may have open at once, of each kind
    idle_seconds: Annotated[float, Meta(ge=1, le=3600, extra=DURATION)] = 30
    keep_alive_seconds: Annotated[float, Meta(ge=0, le=3600, extra=DURATION)] = 10  # between pings; 0: none


class CacheSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[cache]`: values under keys, for a time."""

    max_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB, extra=SIZE)] = 256 * MIB  # of all that are not journalled
    max_entries: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1_000_000
    value_bytes: Annotated[int, Meta(ge=1, le=256 * MIB, extra=SIZE)] = MIB
    key_bytes: Annotated[int, Meta(ge=1, le=64 * KIB, extra=SIZE)] = 4 * KIB
    journalled: tuple[Annotated[str, Meta(pattern="^[^/]+/[^/]+/[^/]+$")], ...] = ()  # TENANT/NAMESPACE/CACHE patterns
    journalled_bytes: Annotated[int, Meta(ge=MIB, le=GIB, extra=SIZE)] = 16 * MIB  # of those that survive a restart


class SqlSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sql]`: queries, in processes of their own."""

    enabled: bool = True
    # With the first client that has SQL, or only when it asks, or before any door opens.
    start: Literal["connection", "statement", "broker"] = "connection"
    seconds: Annotated[float, Meta(ge=0.01, le=DAY, extra=DURATION)] = 30  # that one statement may take
    memory_bytes: Annotated[int, Meta(ge=16 * MIB, le=1024 * GIB, extra=SIZE)] = 512 * MIB  # of one statement
    rows: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000  # of one result
    # Besides that, of the process that carries it out; together the most that the system lets it have.
    overhead_bytes: Annotated[int, Meta(ge=64 * MIB, le=1024 * GIB, extra=SIZE)] = 256 * MIB
    threads: Annotated[int, Meta(ge=1, le=64)] = 4  # statements at the same time, each in a process of its own


class FlightSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[flight]`: the Arrow Flight endpoint."""

    streams: Annotated[int, Meta(ge=1, le=10_000)] = 128  # reads and puts at the same time; each takes some MiB
    unread_seconds: Annotated[float, Meta(ge=0.1, le=DAY, extra=DURATION)] = 300  # of a stream: then it is closed
    staged_bytes: Annotated[int, Meta(ge=MIB, le=1 << 60, extra=SIZE)] = Limits().staged_bytes  # not published yet
    # Up to this size a publication appears at once; larger ones in steps, so that others need not wait for them.
    atomic_bytes: Annotated[int, Meta(ge=MIB, le=GIB, extra=SIZE)] = Limits().publication_entry_bytes


class TablesSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[tables]`: closed segments become Delta tables, one for each topic."""

    enabled: bool = True  # for topics that do not say it themselves
    url: Annotated[str, Meta(max_length=4096)] = ""  # a folder or any URL that deltalake takes; "": in `data_dir`
    options: tuple[Annotated[str, Meta(pattern="^[^=]+=")], ...] = ()  # NAME=VALUE, for the object store
    file_bytes: Annotated[int, Meta(ge=64 * KIB, le=64 * GIB, extra=SIZE)] = _TABLES.file_bytes  # of merged files
    keep_seconds: Annotated[float, Meta(ge=0, le=30 * DAY, extra=DURATION)] = _TABLES.keep_us / 1e6  # replaced files
    # Between two looks at a table:
    care_seconds: Annotated[float, Meta(ge=0.1, le=DAY, extra=DURATION)] = _TABLES.maintenance_us / 1e6


class TelemetrySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[telemetry]`: what monitoring is told."""

    topic_series: Annotated[int, Meta(ge=0, le=100_000)] = 100  # topics with metrics of their own: the busiest


class PipelineSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[pipeline]`: what `penstock up` runs beside the broker."""

    directory: Annotated[str, Meta(max_length=4096)] = ""  # its project folder; empty: `pipeline` in the data directory
    memory_bytes: Annotated[int, Meta(ge=512 * MIB, le=1024 * GIB, extra=SIZE)] = 768 * MIB  # heap, in a new project
    events_per_second: Annotated[float, Meta(ge=0, le=100_000)] = 20  # of the generator; 0: none


LogLevel = Literal["debug", "info", "warning", "error"]


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole configuration; the sections are the tables of the TOML file."""

    data_dir: Annotated[str, Meta(min_length=1, max_length=4096)] = "./data"
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"  # of log lines; auto: text on a terminal, else JSON
    log: LogSection = LogSection()
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    performance: PerformanceSection = PerformanceSection()
    security: SecuritySection = SecuritySection()
    topics: TopicsSection = TopicsSection()
    queues: QueuesSection = QueuesSection()
    flymq: FlyMqSection = FlyMqSection()
    pipeline: PipelineSection = PipelineSection()
    tables: TablesSection = TablesSection()
    flight: FlightSection = FlightSection()
    kimberlite: KimberliteSection = KimberliteSection()
    sql: SqlSection = SqlSection()
    felix: FelixSection = FelixSection()
    cache: CacheSection = CacheSection()
    telemetry: TelemetrySection = TelemetrySection()


@dataclass(frozen=True, slots=True)
class Config:
    settings: Settings
    origins: dict[str, str]  # full key → where its value came from

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")


class ConfigError(Exception):
    """The configuration cannot be used. The text names the key and where it came from."""
