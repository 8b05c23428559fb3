"""Requests to publish, and batches of those to one stream that follow each other and are appended as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.wire.felix.codec.binary import Batch
from penstock.wire.felix.codec.dialects import Dialect, RequestId
from penstock.wire.felix.messages import Publish, PublishBatch

BATCH_BYTES: Final = 1 << 20  # a batch accepts no more publications once it has so much
OVERHEAD: Final = 16  # bytes that a value takes besides its own: there are 16 MiB of empty ones too

StreamNames: TypeAlias = tuple[str, str, str]  # tenant, namespace, stream


class Publication(NamedTuple):
    """One request to publish, whatever its encoding."""

    names: StreamNames
    values: Sequence[bytes]
    request_id: RequestId
    acked: bool
    binary: bool = False
    request_name: str = "publish"  # for error texts

    def acknowledgement(self, dialect: Dialect) -> bytes:
        return dialect.published(self.request_id, binary=self.binary) if self.acked else b""


def _single(request: Publish) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(names, (request.payload,), request.request_id, request.acked)


def _several(request: PublishBatch) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(names, request.payloads, request.request_id, request.acked, request_name="publish batch")


def _binary(request: Batch) -> Publication:
    names = (request.tenant, request.namespace, request.stream)
    return Publication(names, request.payloads, request.request_id, request.ack, binary=True)


PUBLICATIONS: Final[dict[type, Callable[[Any], Publication]]] = {
    Publish: _single,
    PublishBatch: _several,
    Batch: _binary,
}
"""How each kind of request becomes a publication."""


class ProduceBatch:
    """Publications to one stream that follow each other."""

    __slots__ = ("names", "publications", "size", "values")

    def __init__(self, first: Publication) -> None:
        self.names = first.names
        self.publications = [first]
        self.values = list(first.values)
        self.size = sum(map(len, first.values), OVERHEAD * len(first.values))

    def add(self, publication: Publication) -> bool:
        """Add a publication. False if it has to go into another batch: another stream, or this one is full."""
        if publication.names != self.names or self.size >= BATCH_BYTES:
            return False
        self.publications.append(publication)
        self.values += publication.values
        self.size += sum(map(len, publication.values), OVERHEAD * len(publication.values))
        return True

    def split(self) -> list[ProduceBatch]:
        """A batch for each of them."""
        return [ProduceBatch(publication) for publication in self.publications]

    def acknowledgement(self, dialect: Dialect) -> bytes:
        publications = self.publications
        if len(publications) == 1:
            return publications[0].acknowledgement(dialect)
        return b"".join([publication.acknowledgement(dialect) for publication in publications])
