"""Limits: the most of each resource that the broker accepts. Each is a field of `Limits`, with its default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 8  # counted for each header of a record, in addition to its name and value


def headers_size(headers: Iterable[tuple[str, bytes]]) -> int:
    """The bytes counted for the headers of a record."""
    return sum([len(name.encode()) + len(value) + HEADER_BYTES for name, value in headers])


@dataclass(frozen=True, slots=True)
class Limits:
    # Of one record: its key, its value and the headers set by its producer, not those that the broker adds. Equal to
    # the largest frame of any door. A door with smaller frames accepts less, and reports records that it cannot send
    # (`fetch/unsendable`).
    record_bytes: int = 32 << 20
    partitions_per_topic: int = 1_000
    topics: int = 10_000  # across all tenants
    groups_per_scope: int = 10_000
    offsets_per_group: int = 10_000
    group_offsets: int = 200_000  # across all groups: about 40 MB of memory
    queues: int = 100_000
    delay_us: int = 86_400_000_000  # the longest delay of a record
    delayed: int = 1_000_000  # records scheduled and not due yet, across all tenants: 340 MB of memory
    removed_per_partition: int = 10_000  # records removed individually from the middle of a partition
    removed: int = 100_000  # the same, across all partitions
    users: int = 10_000  # across all tenants, as are the next two
    roles: int = 1_000  # in addition to the built-in ones
    acls: int = 10_000
    memberships: int = 100_000  # of clients in groups
    memberships_per_owner: int = 1_000  # of one connection
    transactions: int = 10_000  # open at the same time
    transactions_per_owner: int = 100
    transaction_records: int = 20_000  # of one: its commit is a single step that blocks the event loop
    transaction_bytes: int = 64 << 20  # of one; at most the largest entry of the log
    transactions_bytes: int = 256 << 20  # of all open ones together
    transaction_us: int = 60_000_000  # timeout, from its beginning
    publishing_apps: int = 100_000  # applications whose last publication is remembered: 30 MB of memory
    publication_refs: int = 10_000  # staged files of one publication
    publication_entry_bytes: int = 8 << 20  # of one that is appended in one step; at most the largest entry of the log
    publications_waiting: int = 1_000  # requested and not begun yet
    staged_bytes: int = 16 << 30  # of all staged files together
    staged_stream_bytes: int = 8 << 30  # of one staged file
    staged_files: int = 100_000  # in total
    staged_topics: int = 1_000  # in one staged file
    schema_definition_bytes: int = 256 << 10  # of one version
    schema_versions: int = 1_000  # under one name
    schema_subjects: int = 10_000  # names, across all tenants
    schema_bytes: int = 64 << 20  # of all versions together
    login_requests: int = 64  # of a connection that is required to log in and has not
    login_bytes: int = 256 << 10  # likewise
    tenants: int = 10_000  # registered ones; see `Tenants`
    connections: int = 10_000  # of all tenants together; only connections that are counted towards a tenant
    # A tenant's share of each limit that applies to all tenants together: this fraction of what the others leave.
    tenant_share: float = 0.5
    # The next four are per tenant; 0 means no limit besides its share.
    tenant_connections: int = 1_000  # at doors whose clients name their tenant
    tenant_requests: float = 0  # per second, at the same doors
    tenant_topics: int = 0  # not counting internal ones
    tenant_bytes: int = 0  # stored in all its topics, including tables
    schema_record_bytes: int = 1 << 20  # of a value validated against a schema, which blocks the event loop
