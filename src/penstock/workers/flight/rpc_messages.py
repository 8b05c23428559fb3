"""Messages between the broker and the Flight process. Both sides import them, and they import neither."""

from __future__ import annotations

import msgspec

from penstock.broker.names import Scope
from penstock.broker.queries.query import Value
from penstock.broker.security.access import Identity
from penstock.log.engine import Durability
from penstock.structured_logging import LogFormat


class FlightSettings(msgspec.Struct, frozen=True):
    """Settings of the Flight process."""

    data_dir: str
    host: str
    port: int
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    tls_min_version: str = "1.3"
    streams: int = 64  # concurrent reads and puts
    calls: int = 256  # concurrent calls of all kinds
    log_level: str = "info"
    log_format: LogFormat = "auto"
    durability: Durability = Durability.SYNCED  # of staged files
    share: float = 0.5  # of streams and calls, for one tenant or caller; see `broker.tenancy.fair_share`
    standby: bool = False  # of the journal: reads only, which may lag
    unread_seconds: float = 300.0  # after which the client of a stalled stream is disconnected


class Login(msgspec.Struct, array_like=True):
    """A login with a password (`user` is set) or a key."""

    peer: str
    tenant: str
    user: str | None
    secret: str


class LoggedIn(msgspec.Struct, array_like=True):
    identity: Identity | None
    refusal: str = ""


class ScopedRequest(msgspec.Struct, array_like=True):
    """A request on behalf of a client, in a scope."""

    identity: Identity
    scope: Scope


class BoundsRequest(ScopedRequest):
    names: list[str]


class ReadViewRequest(ScopedRequest):
    topic: str
    partition: int | None = None


class SchemaRequest(ScopedRequest):
    subject: str
    version: int | None = None


class CommitRequest(ScopedRequest):
    group: str
    offsets: list[tuple[str, int, int]]  # topic, partition, offset


class QueryRequest(ScopedRequest):
    sql: str
    params: list[Value]
    position: int | None = None


class QueryRows(msgspec.Struct, array_like=True):
    columns: list[str]
    rows: list[list[Value]]
    position: int  # of the log, up to which they are true


class Topics(msgspec.Struct, array_like=True):
    topics: dict[str, int]
    typed: list[str] = []  # names of typed tables


class Bounds(msgspec.Struct, array_like=True):
    bounds: dict[str, list[tuple[int, int]]]


class ReadViewPartition(msgspec.Struct, array_like=True):
    """See `penstock.broker.fetch.read_view`."""

    number: int
    start: int
    end: int
    deleted_below: int
    deleted: list[int]  # single offsets


class TableLocation(msgspec.Struct, array_like=True):
    url: str
    options: dict[str, str]
    ends: dict[int, int]  # as known to the broker; the table may have more


class ReadViewMessage(msgspec.Struct, array_like=True):
    topic: int  # its id
    name: str
    now: int
    horizon: int
    partitions: list[ReadViewPartition]
    table: TableLocation | None = None


class TypedView(msgspec.Struct, array_like=True):
    """The reply to a request for a typed table: the read view of its topic; None if a topic has that name."""

    view: ReadViewMessage | None


class Schema(msgspec.Struct, array_like=True):
    format: str
    definition: str
    version: int
    id: int


# -- staging and publishing


class StagingRequest(ScopedRequest):
    """A request to stage records of these topics; without `app`, to be published once."""

    app: str | None
    batch: int
    names: list[str]


class StagingTarget(msgspec.Struct, array_like=True):
    """A topic; see `penstock.broker.publications.partition_split.Target`."""

    id: int
    name: str
    partitions: int
    checked: bool


class StagingPermit(msgspec.Struct, array_like=True):
    """The reply to a `StagingRequest`: the target topics and the limits."""

    app: str
    key: bytes
    targets: list[StagingTarget]  # in the order of the names
    sync: bool  # staged files must survive a power failure
    chunk_bytes: int
    record_bytes: int
    topics: int  # this and the following are limits; see `penstock.broker.limits`
    stream_bytes: int
    staged_bytes: int
    staged_files: int
    share: float = 1.0  # of the last two, per tenant


class PublicationRequest(ScopedRequest):
    app: str
    batch: int
    refs: list[str]


class PublishedRows(msgspec.Struct, array_like=True):
    rows: int
    repeated: bool
