"""Publish requests, and batches of adjacent requests to one stream that are appended together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from penstock.equal_values import EqualValues
from penstock.wire.felix.codec.binary import Batch
from penstock.wire.felix.codec.dialects import Dialect, RequestId
from penstock.wire.felix.messages import Publish, PublishBatch

BATCH_BYTES: Final = 1 << 20  # a batch of this size accepts no more publications
OVERHEAD: Final = 16  # bytes of memory for a value besides its own: a batch may consist of empty values
KEY_BYTE: Final = 16  # weight of a byte of a key: hashing it takes as long as storing that many bytes

StreamNames: TypeAlias = tuple[str, str, str]  # tenant, namespace, stream


class PublishRequest(msgspec.Struct, frozen=True):
    """One publish request, in any encoding."""

    names: StreamNames
    values: Sequence[bytes]
    request_id: RequestId
    acked: bool
    binary: bool = False
    request_name: str = "publish"  # for error texts
    key: bytes | None = None  # of all values
    shard: int | None = None  # the requested partition

    @property
    def size(self) -> int:
        values = self.values
        size = values.size if isinstance(values, EqualValues) else sum(map(len, values))
        keys = 0 if self.key is None else KEY_BYTE * len(self.key)
        return size + OVERHEAD * len(values) + keys

    def acknowledgement(self, dialect: Dialect, offset: int | None = None) -> bytes:
        return dialect.published(self.request_id, binary=self.binary, offset=offset) if self.acked else b""


def _single(request: Publish) -> PublishRequest:
    names = (request.tenant_id, request.namespace, request.stream)
    return PublishRequest(
        names, (request.payload,), request.request_id, request.acked, key=request.key, shard=request.shard
    )


def _several(request: PublishBatch) -> PublishRequest:
    names = (request.tenant_id, request.namespace, request.stream)
    return PublishRequest(
        names, request.payloads, request.request_id, request.acked,
        request_name="publish batch", key=request.key, shard=request.shard,
    )  # fmt: skip


def _binary(request: Batch) -> PublishRequest:
    names = (request.tenant, request.namespace, request.stream)
    return PublishRequest(names, request.payloads, request.request_id, request.ack, binary=True, key=request.key)


PUBLICATIONS: Final[dict[type, Callable[[Any], PublishRequest]]] = {
    Publish: _single,
    PublishBatch: _several,
    Batch: _binary,
}
"""The conversion of each request type to a publication."""


class ProduceBatch:
    """Adjacent publications to one stream."""

    __slots__ = ("directed", "names", "publications", "size")

    def __init__(self, first: PublishRequest) -> None:
        self.names = first.names
        self.publications = [first]
        self.size = first.size
        self.directed = first.key is not None or first.shard is not None  # some have a key or name a partition

    def add(self, publication: PublishRequest) -> bool:
        """Add a publication. False if it belongs in another batch: it is for another stream, or this batch is full."""
        if publication.names != self.names or self.size >= BATCH_BYTES:
            return False
        self.publications.append(publication)
        self.size += publication.size
        self.directed = self.directed or publication.key is not None or publication.shard is not None
        return True

    def values(self) -> Sequence[bytes]:
        """The values of all publications."""
        publications = self.publications
        if len(publications) == 1:
            return publications[0].values
        blocks = [each.values for each in publications if isinstance(each.values, EqualValues)]
        if len(blocks) == len(publications) and all(block.length == blocks[0].length for block in blocks):
            return EqualValues.merged(blocks)
        return list(chain.from_iterable([each.values for each in publications]))

    def split(self) -> list[ProduceBatch]:
        """A batch for each publication."""
        return [ProduceBatch(publication) for publication in self.publications]

    def acknowledgement(self, dialect: Dialect, offset: int | None = None) -> bytes:
        """`offset`: of the first value, if all values have consecutive offsets."""
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
