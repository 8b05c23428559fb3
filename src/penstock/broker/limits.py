"""Limits: how much of everything the broker accepts. Each is a field here, with its default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 8  # that a header of a record counts for, besides its name and its value


def headers_size(headers: Iterable[tuple[str, bytes]]) -> int:
    """Bytes that the headers of a record count for."""
    return sum([len(name.encode()) + len(value) + HEADER_BYTES for name, value in headers])


@dataclass(frozen=True, slots=True)
class Limits:
    # Of one record: its key, its value and the headers that its producer gave it, not those that the broker adds. As
    # much as the largest frame of any door: one with smaller frames takes less, and says so of a record that it cannot
    # send (`fetch/unsendable`).
    record_bytes: int = 32 << 20
    partitions_per_topic: int = 1_000
    topics: int = 10_000  # in all tenants together
    groups_per_scope: int = 10_000
    offsets_per_group: int = 10_000
    group_offsets: int = 200_000  # in all groups together: about 40 MB of memory
    queues: int = 100_000
    delay_us: int = 86_400_000_000  # how far ahead a record may be scheduled
    delayed: int = 1_000_000  # records scheduled and not due yet, in all tenants together: 340 MB of memory
    removed_per_partition: int = 10_000  # single records that are removed from the midst of a partition
    removed: int = 100_000  # the same, in all partitions together
    users: int = 10_000  # in all tenants together, as the next two
    roles: int = 1_000  # beside the built-in ones
    acls: int = 10_000
    memberships: int = 100_000  # of clients in groups
    memberships_per_owner: int = 1_000  # of one connection
    transactions: int = 10_000  # open at the same time
    transactions_per_owner: int = 100
    transaction_records: int = 20_000  # of one: its commit is a single step, during which nobody else is served
    transaction_bytes: int = 64 << 20  # of one; not more than the log takes as one entry
    transactions_bytes: int = 256 << 20  # of all that are open
    transaction_us: int = 60_000_000  # from its beginning until it is given up
    publishing_apps: int = 100_000  # applications whose last publication is remembered: 30 MB of memory
    publication_refs: int = 10_000  # staged files of one publication
    publication_entry_bytes: int = 8 << 20  # of one that appears at once; not more than the log takes as one entry
    publications_waiting: int = 1_000  # asked for and not begun yet
    staged_bytes: int = 16 << 30  # of all staged files
    staged_stream_bytes: int = 8 << 30  # of one
    staged_files: int = 100_000  # in all
    staged_topics: int = 1_000  # in one
    schema_definition_bytes: int = 256 << 10  # of one version
    schema_versions: int = 1_000  # under one name
    schema_subjects: int = 10_000  # names, in all tenants together
    schema_bytes: int = 64 << 20  # of all versions together
    login_requests: int = 64  # of a connection that has to log in and has not
    login_bytes: int = 256 << 10  # the same
    tenants: int = 10_000  # that are registered; see `Tenants`
    connections: int = 10_000  # of all tenants together, of those that are counted for one
    # What a tenant may have of each of the limits that are of all tenants together: this part of what others leave.
    tenant_share: float = 0.5
    # The next four are those of one tenant; 0 is none besides its share.
    tenant_connections: int = 1_000  # at doors whose clients say which tenant they are of
    tenant_requests: float = 0  # in a second, at the same doors
    tenant_topics: int = 0  # without the broker's own
    tenant_bytes: int = 0  # stored in all its topics, tables too
    schema_record_bytes: int = 1 << 20  # of a value that is checked against a schema: nobody else is served meanwhile
