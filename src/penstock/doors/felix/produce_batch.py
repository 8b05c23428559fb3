"""Requests to publish, and batches of those to one stream that follow each other and are appended as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from penstock.wire.felix.codec.binary import Batch
from penstock.wire.felix.codec.dialects import Dialect, RequestId
from penstock.wire.felix.messages import Publish, PublishBatch

BATCH_BYTES: Final = 1 << 20  # a batch accepts no more publications once it has so much
OVERHEAD: Final = 16  # bytes that a value takes besides its own: there are 16 MiB of empty ones too
KEY_BYTE: Final = 16  # bytes that a byte of a key counts for: hashing it takes as long as storing so many

StreamNames: TypeAlias = tuple[str, str, str]  # tenant, namespace, stream


class Publication(msgspec.Struct, frozen=True):
    """One request to publish, whatever its encoding."""

    names: StreamNames
    values: Sequence[bytes]
    request_id: RequestId
    acked: bool
    binary: bool = False
    request_name: str = "publish"  # for error texts
    key: bytes | None = None  # of all values
    shard: int | None = None  # the partition that is asked for

    @property
    def size(self) -> int:
        keys = 0 if self.key is None else KEY_BYTE * len(self.key)
        return sum(map(len, self.values), OVERHEAD * len(self.values)) + keys

    def acknowledgement(self, dialect: Dialect, offset: int | None = None) -> bytes:
        return dialect.published(self.request_id, binary=self.binary, offset=offset) if self.acked else b""


def _single(request: Publish) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(
        names, (request.payload,), request.request_id, request.acked, key=request.key, shard=request.shard
    )


def _several(request: PublishBatch) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(
        names, request.payloads, request.request_id, request.acked,
        request_name="publish batch", key=request.key, shard=request.shard,
    )  # fmt: skip


def _binary(request: Batch) -> Publication:
    names = (request.tenant, request.namespace, request.stream)
    return Publication(names, request.payloads, request.request_id, request.ack, binary=True, key=request.key)


PUBLICATIONS: Final[dict[type, Callable[[Any], Publication]]] = {
    Publish: _single,
    PublishBatch: _several,
    Batch: _binary,
}
"""How each kind of request becomes a publication."""


class ProduceBatch:
    """Publications to one stream that follow each other."""

    __slots__ = ("directed", "names", "publications", "size", "values")

    def __init__(self, first: Publication) -> None:
        self.names = first.names
        self.publications = [first]
        self.values = list(first.values)
        self.size = first.size
        self.directed = first.key is not None or first.shard is not None  # some have a key or name a partition

    def add(self, publication: Publication) -> bool:
        """Add a publication. False if it has to go into another batch: another stream, or this one is full."""
        if publication.names != self.names or self.size >= BATCH_BYTES:
            return False
        self.publications.append(publication)
        self.values += publication.values
        self.size += publication.size
        self.directed = self.directed or publication.key is not None or publication.shard is not None
        return True

    def split(self) -> list[ProduceBatch]:
        """A batch for each of them."""
        return [ProduceBatch(publication) for publication in self.publications]

    def acknowledgement(self, dialect: Dialect, offset: int | None = None) -> bytes:
        """`offset`: of the first value, if all are stored one behind the other."""
        publications = self.publications
        if len(publications) == 1:
            return publications[0].acknowledgement(dialect, offset)
        if offset is None:
            return b"".join([publication.acknowledgement(dialect) for publication in publications])
        replies = []
        for publication in publications:
            replies.append(publication.acknowledgement(dialect, offset))
            offset += len(publication.values)
        return b"".join(replies)

    def acknowledgement_of_each(self, dialect: Dialect, offsets: Sequence[int]) -> bytes:
        """`offsets`: of all values."""
        replies, at = [], 0
        for publication in self.publications:
            count = len(publication.values)
            replies.append(publication.acknowledgement(dialect, offsets[at] if count else None))
            at += count
        return b"".join(replies)
