"""The broker's configuration: every key with its default and its range.

Values come from a TOML file, from environment variables and from flags, later ones overriding earlier ones; the
`settings` of a `Config` are complete and valid, and `origins` has the origin of each value. `penstock.config.layers`
reads and validates the layers.
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
"""Only for doors without a login; excludes names of keys, users, certificates and the admin socket."""


_LOG = LogSettings()
_AUDIT = AuditPolicy()
_TABLES = TablePolicy()


class LogSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[log]`: the journal, and what an acknowledgement means."""

    durability: Durability = _LOG.durability
    """The meaning of an acknowledgement: `synced` (on disk), `written` (handed to the operating system, on disk within
    a second) or `memory`."""
    file_bytes: Annotated[int, Meta(ge=64 * KIB, le=4 * GIB, extra=SIZE)] = _LOG.file_bytes
    """Size of a segment. A full segment is closed and moved to tables."""
    entry_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = _LOG.entry_bytes
    """Largest atomic append: one batch, one transaction or one step of a publication."""
    group_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = _LOG.group_bytes
    """Size at which a commit group takes no further appends."""
    tail_bytes: Annotated[int, Meta(ge=0, le=64 * GIB, extra=SIZE)] = _LOG.tail_bytes
    """Newest records kept in memory, so that consumers at the end of a topic never touch the disk."""
    cache_bytes: Annotated[int, Meta(ge=0, le=64 * GIB, extra=SIZE)] = _LOG.cache_bytes
    """Memory for records that were read back from disk."""
    snapshot_bytes: Annotated[int, Meta(ge=64 * KIB, le=64 * GIB, extra=SIZE)] = _LOG.snapshot_bytes
    """Journal bytes between two snapshots of the state. Smaller values make restarts faster."""
    roll_seconds: Annotated[float, Meta(ge=1, le=3650 * DAY, extra=DURATION)] = _LOG.roll_seconds
    """Age at which a segment is closed even if it is not full."""


class StorageSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[storage]`: where the journal is kept."""

    url: Annotated[str, Meta(max_length=4096)] = ""
    """`kafka://HOST:PORT,…/NAME?OPTION=VALUE`: the journal is a topic of Apache Kafka, and the data directory a cache
    of it. Empty: the journal is in the data directory."""
    takeover_seconds: Annotated[float, Meta(ge=1.5, le=3600, extra=DURATION)] = 3
    """Time without a sign of the journal's owner after which a standby takes over. An owner whose doors refuse
    connections is taken over from after 1.5 s."""
    stale_reads: bool = False
    """As a standby, serve reads through Arrow Flight from the local disk, instead of forwarding the Flight door to the
    owner. They may lag behind the owner."""
    advertise: Annotated[str, Meta(max_length=255)] = ""
    """Host by which other brokers of the journal reach this one. Empty: the host of each door, and the machine's name
    for doors that are open on every interface."""


class ListenSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[listen]`: the address of each door, or `off`. Doors with the same address share a port."""

    rustlog: Address = "127.0.0.1:9092"
    """Address of the RustLog door."""
    blipmq: Address = "127.0.0.1:5555"
    """Address of the BlipMQ door."""
    flymq: Address = "127.0.0.1:9092"
    """Address of the FlyMQ door."""
    kimberlite: Address = "127.0.0.1:5432"
    """Address of the Kimberlite door."""
    felix: Address = "127.0.0.1:5000"
    """Address of the Felix door. QUIC, so this is a UDP port."""
    http: Address = "127.0.0.1:8080"
    """Address of health checks, metrics and the administration API."""
    flight: Address = "127.0.0.1:8815"
    """Address of the Arrow Flight endpoint. It needs a port of its own."""
    flymq_admin: Address = "127.0.0.1:9096"
    """Address of FlyMQ's administration over HTTP, for FlyMQ's own command line."""
    pinned: tuple[str, ...] = ()
    """Doors whose port serves their protocol alone. Other ports detect the protocol from the first bytes."""
    principals: tuple[Annotated[str, Meta(pattern=PRINCIPAL_OF_DOOR)], ...] = ()
    """`DOOR=PRINCIPAL` for clients of `rustlog` and `http`, which have no login: the principal that `security.grants`
    apply to."""


DOOR_NAMES = tuple(name for name in ListenSection.__struct_fields__ if name not in ("pinned", "principals"))
UDP_DOORS = ("felix",)  # share no port with TCP doors, even with the same number


class TlsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[tls]`: certificates. With one, every TCP port accepts TLS beside plain text."""

    cert: str = ""
    """PEM file with the certificate chain. It turns TLS on at every port."""
    key: str = ""
    """PEM file with the private key of `tls.cert`."""
    client_ca: str = ""
    """PEM file of an authority. TLS clients must then present a certificate that it signed."""
    required: bool = False
    """Refuse clients that do not use TLS."""
    min_version: Literal["1.3", "1.2"] = "1.3"
    """Oldest TLS version that clients may use. QUIC always uses 1.3."""


class LimitsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[limits]`: bounds on what clients can make the broker hold."""

    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Open connections, all doors together."""
    address_share: Annotated[float, Meta(ge=0.01, le=1)] = 0.5
    """Share of the free connections that one client address may take while security is on. Set 1 behind a proxy, where
    all clients have one address."""
    connection_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 16 * MIB
    """Memory that one connection may hold in requests and unsent replies. Above it, the broker stops reading from that
    client."""
    total_bytes: Annotated[int, Meta(ge=16 * MIB, le=1024 * GIB, extra=SIZE)] = 512 * MIB
    """Memory that all connections together may hold."""
    record_bytes: Annotated[int, Meta(ge=1, le=GIB, extra=SIZE)] = Limits().record_bytes
    """Largest record: key, value and headers."""
    idle_seconds: Annotated[float, Meta(ge=0.1, le=30 * DAY, extra=DURATION)] = 600
    """Time without a byte after which a stuck client is disconnected: half a request, unread replies, or no login."""
    handshake_seconds: Annotated[float, Meta(ge=0.1, le=3600, extra=DURATION)] = 10
    """Time for a TLS or QUIC handshake."""
    keepalive_seconds: Annotated[float, Meta(ge=0, le=DAY, extra=DURATION)] = 60
    """Silence before TCP keep-alive probes start. 0 turns them off."""
    keepalive_interval_seconds: Annotated[float, Meta(ge=1, le=3600, extra=DURATION)] = 15
    """Time between two keep-alive probes."""
    keepalive_probes: Annotated[int, Meta(ge=1, le=127)] = 4
    """Unanswered probes after which a connection is closed."""
    shutdown_seconds: Annotated[float, Meta(ge=0, le=3600, extra=DURATION)] = 10
    """Time that clients get to finish when the broker stops."""
    login_requests: Annotated[int, Meta(ge=8, le=1_000_000)] = Limits().login_requests
    """Requests that a client may send before it logs in, where a login is required."""
    login_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = Limits().login_bytes
    """Bytes that a client may send before it logs in, where a login is required."""
    topics: Annotated[int, Meta(ge=1, le=1_000_000)] = Limits().topics
    """Topics, all tenants together."""
    tenant_share: Annotated[float, Meta(ge=0.01, le=1)] = Limits().tenant_share
    """Share of each broker-wide limit that one tenant may take from what the other tenants leave. 1 turns sharing
    off."""
    tenant_connections: Annotated[int, Meta(ge=0, le=1_000_000)] = 1_000
    """Connections of one tenant at doors with tenants. 0: no limit."""
    tenant_requests_per_second: Annotated[float, Meta(ge=0, le=1e9)] = 0
    """Requests per second of one tenant at doors with tenants. 0: no limit."""
    tenant_topics: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Topics of one tenant. 0: no limit."""
    tenant_bytes: Annotated[int, Meta(ge=0, le=1 << 60, extra=SIZE)] = 0
    """Stored bytes of one tenant, tables included. 0: no limit."""


class PerformanceSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[performance]`: processor time traded for latency."""

    busy_poll_us: Annotated[int, Meta(ge=0, le=10_000)] = 100
    """Microseconds that the event loop polls for more requests before it sleeps. It lowers latency and costs processor
    time. 0 turns it off."""
    stall_seconds: Annotated[float, Meta(ge=0, le=60, extra=DURATION)] = 0.1
    """Log who held up the event loop for longer than this. 0: never."""


class Grant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One entry of `security.grants`."""

    principal: Annotated[str, Meta(min_length=1, max_length=255)]
    """Who gets the permissions: `anonymous`, `*` for everyone, a principal of `listen.principals`, or `cert:NAME`."""
    permissions: Annotated[tuple[Permission, ...], Meta(min_length=1)]
    """A list such as `["read", "describe"]`."""
    tenant: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    """The tenant that the grant is for."""
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    """The namespace that the grant is for."""
    topic: Annotated[str, Meta(min_length=1, max_length=255)] = "*"
    """A pattern of topics, or of caches for `cache-read` and `cache-write`. `*` matches anything."""


class SecuritySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[security]`: authentication, authorization and the audit log."""

    mode: Literal["off", "on"] = "off"
    """`on` requires a login at every door and denies what nothing allows. `off` makes everyone an administrator."""
    insecure_ok: bool = False
    """Allow doors on addresses other than loopback while security is off."""
    grants: Annotated[tuple[Grant, ...], Meta(max_length=10_000)] = ()
    """Permissions of principals without a user or key: tables with `principal`, `permissions`, and optionally `tenant`,
    `namespace` and `topic`."""
    lockout_failures: Annotated[int, Meta(ge=0, le=1000)] = 5
    """Wrong secrets from one host for one name before it is locked out. 0: never."""
    lockout_seconds: Annotated[float, Meta(ge=1, le=DAY, extra=DURATION)] = 60
    """Window in which failures count, and length of the first lock-out. It doubles every time."""
    audit: Literal["auto", "on", "off"] = "auto"
    """Audit log. `auto` keeps one while `security.mode` is `on`."""
    audit_retention_seconds: Annotated[float, Meta(ge=60, le=36_500 * DAY, extra=DURATION)] = _AUDIT.seconds
    """Age at which audit events are deleted."""
    audit_retention_bytes: Annotated[int, Meta(ge=MIB, le=1 << 60, extra=SIZE)] = _AUDIT.bytes
    """Size of the audit log of one tenant above which its oldest events are deleted."""
    default_public: bool = False
    """Topics without an access list are open to every user who has logged in."""
    allow_anonymous: bool = False
    """Public topics are open without a login, too."""
    token_keys: tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...] = ()
    """Files with keys that may sign JSON Web Tokens: a secret (HS256), an Ed25519 public key as PEM, or a JWKS."""
    token_issuer: Annotated[str, Meta(max_length=255)] = ""
    """Required `iss` of a token. Empty: any."""
    token_audience: Annotated[str, Meta(max_length=255)] = ""
    """Required `aud` of a token. Empty: any."""


class TopicsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[topics]`: defaults of topics."""

    auto_create_topics: bool = True
    """Create a topic when a client first writes to it."""
    retention_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = 0
    """Age at which records are deleted, for topics without a setting of their own. 0: keep everything."""
    retention_bytes: Annotated[int, Meta(ge=0, le=1 << 60, extra=SIZE)] = 0
    """Size of a topic above which its oldest records are deleted, for topics without a setting of their own. 0: no
    limit."""
    transaction_seconds: Annotated[float, Meta(ge=1, le=DAY, extra=DURATION)] = 60
    """Time from the beginning of a transaction after which it is aborted."""
    max_delay_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = DAY
    """Longest delay of a delayed record."""


class QueuesSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[queues]`: defaults of work queues."""

    capacity: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 1024
    """Messages waiting in a queue. Beyond it, the oldest are dropped. 0: no limit."""
    ttl_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = 60
    """Time that a message waits in a queue before it expires. 0: for ever."""
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    """Deliveries of a message before it becomes a dead letter. 0: no limit."""
    backoff_seconds: Annotated[float, Meta(ge=0.001, le=DAY, extra=DURATION)] = 0.1
    """Pause before the second delivery. It doubles with every attempt."""
    idle_seconds: Annotated[float, Meta(ge=0, le=36_500 * DAY, extra=DURATION)] = DAY
    """Time after which an unused queue is deleted. 0: never."""


class FlyMqSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[flymq]`: the FlyMQ door."""

    auth_reply: Literal["both", "spec", "original"] = "both"
    """Field order of a login's reply: `spec`, `original`, or `both` for bytes that clients of either understand."""
    fetch_wait_seconds: Annotated[float, Meta(ge=0, le=9, extra=DURATION)] = 0
    """Time that a FETCH waits for records when there are none."""
    node: Annotated[str, Meta(min_length=1, max_length=64)] = "penstock"
    """Name of this node, as clients see it."""
    advertised: Annotated[str, Meta(max_length=300)] = ""
    """Address that clients are told to connect to. Empty: `listen.flymq`."""


class KimberliteSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kimberlite]`: the Kimberlite door."""

    assume: Literal["auto", "seed", "v0.1", "v0.4", "5a", "5b"] = "auto"
    """Dialect of clients that do not say which one they speak. `auto` detects it from their requests."""
    tenants: tuple[Annotated[str, Meta(pattern="^[0-9]+=")], ...] = ()
    """`NUMBER=NAME` pairs. Kimberlite's clients name tenants by number; a tenant without a pair is named by its
    number."""
    auto_create_tenants: bool = True
    """Create a tenant with its first stream."""
    push_events: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Events in one frame of a subscription. The original's clients read only the first."""
    read_bytes: Annotated[int, Meta(ge=4 * KIB, le=16 * MIB, extra=SIZE)] = 120 * KIB
    """Largest reply to a read, from protocol version 2 on."""


class FelixSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[felix]`: the Felix door and its QUIC transport."""

    require_auth: bool = False
    """Refuse streams that do not begin with `auth`, even while security is off."""
    auto_create_tenants: bool = True
    """Create a tenant with its first stream."""
    cache_tenant: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    """Tenant of cache requests that name none."""
    cache_namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    """Namespace of cache requests that name none."""
    cache: Annotated[str, Meta(min_length=1, max_length=256)] = "default"
    """Cache of cache requests that name none."""
    max_frame_bytes: Annotated[int, Meta(ge=64 * KIB, le=256 * MIB, extra=SIZE)] = 16 * MIB
    """Largest frame."""
    batch_events: Annotated[int, Meta(ge=1, le=10_000)] = 512
    """Events in one event frame."""
    batch_bytes: Annotated[int, Meta(ge=KIB, le=16 * MIB, extra=SIZE)] = 64 * KIB
    """Bytes in one event frame. A larger event is sent alone."""
    subscriptions: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    """Subscriptions of one connection."""
    slow: Literal["keep", "drop_new", "drop_old"] = "keep"
    """Treatment of subscribers that fall behind: `keep` every event, `drop_new` or `drop_old`."""
    queue_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 32_768
    """Events that a subscriber may be behind before `felix.slow` drops any."""
    datagram_bytes: Annotated[int, Meta(ge=0, le=65_000)] = 0
    """Size of datagrams to send. 0: 1,200, and larger on loopback."""
    connection_window: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 4 * MIB
    """Flow-control window of a connection."""
    stream_window: Annotated[int, Meta(ge=64 * KIB, le=GIB, extra=SIZE)] = 4 * MIB
    """Flow-control window of a stream."""
    streams: Annotated[int, Meta(ge=1, le=60_000)] = 1024
    """Streams of each kind that a client may have open."""
    idle_seconds: Annotated[float, Meta(ge=1, le=3600, extra=DURATION)] = 30
    """Time without a packet after which a connection ends."""
    keep_alive_seconds: Annotated[float, Meta(ge=0, le=3600, extra=DURATION)] = 10
    """Time between pings on an idle connection. 0: none."""


class CacheSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[cache]`: caches."""

    max_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB, extra=SIZE)] = 256 * MIB
    """Memory for all values that are not journalled."""
    max_entries: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1_000_000
    """Values that are not journalled, all caches together; and as many journalled ones."""
    value_bytes: Annotated[int, Meta(ge=1, le=256 * MIB, extra=SIZE)] = MIB
    """Largest value."""
    key_bytes: Annotated[int, Meta(ge=1, le=64 * KIB, extra=SIZE)] = 4 * KIB
    """Longest key."""
    journalled: tuple[Annotated[str, Meta(pattern="^[^/]+/[^/]+/[^/]+$")], ...] = ()
    """`TENANT/NAMESPACE/CACHE` patterns of caches that survive a restart."""
    journalled_bytes: Annotated[int, Meta(ge=MIB, le=GIB, extra=SIZE)] = 16 * MIB
    """Size of all journalled values together."""


class SqlSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sql]`: SQL statements, which run in processes beside the broker."""

    enabled: bool = True
    """Serve SQL."""
    start: Literal["connection", "statement", "broker"] = "connection"
    """Start of the first SQL process: with the first client that can send statements (`connection`), with the first
    `statement`, or with the `broker`."""
    seconds: Annotated[float, Meta(ge=0.01, le=DAY, extra=DURATION)] = 30
    """Time limit of a statement."""
    memory_bytes: Annotated[int, Meta(ge=16 * MIB, le=1024 * GIB, extra=SIZE)] = 512 * MIB
    """Memory limit of a statement."""
    rows: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Rows of one result or one INSERT."""
    overhead_bytes: Annotated[int, Meta(ge=64 * MIB, le=1024 * GIB, extra=SIZE)] = 256 * MIB
    """Memory of a SQL process on top of `sql.memory_bytes`."""
    threads: Annotated[int, Meta(ge=1, le=64)] = 4
    """Statements that run at the same time, each in a process of its own."""


class FlightSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[flight]`: the Arrow Flight endpoint."""

    streams: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Reads and writes at the same time. Each takes a few MiB."""
    unread_seconds: Annotated[float, Meta(ge=0.1, le=DAY, extra=DURATION)] = 300
    """Time after which a stream that its client does not read is closed."""
    staged_bytes: Annotated[int, Meta(ge=MIB, le=1 << 60, extra=SIZE)] = Limits().staged_bytes
    """Disk space for records that are staged and not yet published."""
    atomic_bytes: Annotated[int, Meta(ge=MIB, le=GIB, extra=SIZE)] = Limits().publication_entry_bytes
    """Largest publication that becomes visible at one moment. Larger ones become visible in steps."""


class TablesSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[tables]`: Delta tables, one for each topic."""

    enabled: bool = True
    """Move closed segments to Delta tables, for topics without a setting of their own."""
    url: Annotated[str, Meta(max_length=4096)] = ""
    """Location of tables: a directory, or any URL that `deltalake` accepts. Empty: `tables` in the data directory."""
    options: tuple[Annotated[str, Meta(pattern="^[^=]+=")], ...] = ()
    """`NAME=VALUE` options for the object store, such as its region; `NAME.file=PATH` for a credential that is in a
    file. Credentials in the environment work too."""
    file_bytes: Annotated[int, Meta(ge=64 * KIB, le=64 * GIB, extra=SIZE)] = _TABLES.file_bytes
    """Size to which small files are merged."""
    keep_seconds: Annotated[float, Meta(ge=0, le=30 * DAY, extra=DURATION)] = _TABLES.keep_us / 1e6
    """Time that old versions of tables stay, for time travel, and with them the files that were replaced since: each
    record takes its space once more for each merge in this time. A topic with retention keeps them for that time at
    most; one that is limited in bytes, for an hour."""
    care_seconds: Annotated[float, Meta(ge=0.1, le=DAY, extra=DURATION)] = _TABLES.maintenance_us / 1e6
    """Time between two maintenance runs on a table."""
    typed: bool = _TABLES.typed
    """Keep a typed table beside the table of each topic with a schema."""


class TelemetrySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[telemetry]`: metrics and traces."""

    topic_series: Annotated[int, Meta(ge=0, le=100_000)] = 100
    """Topics with metric series of their own. The busiest have them; the others share one."""
    otlp_endpoint: Annotated[str, Meta(max_length=2048, pattern="^(https?://.*)?$")] = ""
    """URL that traces are sent to, by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. Empty: none are made.
    Needs `penstock[otel]`."""
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """Part of turns, commits and HTTP requests that become traces of their own. Records and requests with the context
    of a sampled trace are part of that one in any case."""
    service_name: Annotated[str, Meta(min_length=1, max_length=256)] = "penstock"
    """Name of this broker in traces (`service.name`)."""


class PipelineSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[pipeline]`: what `penstock up` runs beside the broker."""

    directory: Annotated[str, Meta(max_length=4096)] = ""
    """Project directory of the pipeline. Empty: `pipeline` in the data directory."""
    memory_bytes: Annotated[int, Meta(ge=512 * MIB, le=1024 * GIB, extra=SIZE)] = 768 * MIB
    """Java heap of a new project."""
    events_per_second: Annotated[float, Meta(ge=0, le=100_000)] = 20
    """Rate of the event generator. 0: no generator."""


LogLevel = Literal["debug", "info", "warning", "error"]


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole configuration; the sections are the tables of the TOML file."""

    data_dir: Annotated[str, Meta(min_length=1, max_length=4096)] = "./data"
    """Directory of the journal, the tables and the admin socket."""
    log_level: LogLevel = "info"
    """Least severe log lines to print."""
    log_format: LogFormat = "auto"
    """Format of log lines. `auto`: text on a terminal, JSON elsewhere."""
    log: LogSection = LogSection()
    storage: StorageSection = StorageSection()
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
    origins: dict[str, str]  # full key → origin of its value

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")


class ConfigError(Exception):
    """The configuration is invalid. The text names the key and its origin."""
