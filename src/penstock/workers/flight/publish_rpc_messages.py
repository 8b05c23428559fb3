"""What the Flight process asks the broker in order to stage and publish records, rpc_messages."""

from __future__ import annotations

import msgspec

from penstock.workers.flight.rpc_messages import ScopedRequest


class StagingRequest(ScopedRequest):
    """To stage records of these topics; without `app`, to be published once."""

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
    app: str
    key: bytes
    places: list[StagingTarget]  # in the order of the names
    sync: bool  # what is staged has to survive a loss of power
    chunk_bytes: int
    record_bytes: int
    topics: int  # these are limits; see `penstock.broker.limits`
    stream_bytes: int
    staged_bytes: int
    staged_files: int


class PublicationRequest(ScopedRequest):
    app: str
    batch: int
    refs: list[str]


class PublishedRows(msgspec.Struct, array_like=True):
    rows: int
    repeated: bool
