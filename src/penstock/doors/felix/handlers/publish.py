"""Publishing: what follows each other to one stream is appended as one, and acknowledged when it is committed.

A client that does not wait for acknowledgements costs one append and one reply for all that came at once. If they are
refused together, the session tries each alone, so that each gets its own verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.broker.errors import TopicNotFound
from penstock.broker.security.access import Permission
from penstock.doors.felix.errors import Names, RequestRefused
from penstock.doors.felix.request_context import RequestContext
from penstock.doors.felix.stream_names import ensure_topic, locate
from penstock.doors.reply import Reply
from penstock.log.engine import Appended
from penstock.wire.felix.codec.binary import MAX_PAYLOADS, Batch
from penstock.wire.felix.codec.dialects import Dialect, RequestId
from penstock.wire.felix.messages import Publish, PublishBatch

RUN_BYTES: Final = 1 << 20  # a run takes no more publications once it has so much
OVERHEAD: Final = 16  # bytes that a value takes besides its own: there are 16 MiB of empty ones too


class Publication(NamedTuple):
    """One request to publish, in whatever form it came."""

    names: Names
    values: Sequence[bytes]
    request_id: RequestId
    acked: bool
    binary: bool = False
    what: str = "publish"  # how a client would call it

    def acknowledgement(self, dialect: Dialect) -> bytes:
        return dialect.published(self.request_id, binary=self.binary) if self.acked else b""


def _single(request: Publish) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(names, (request.payload,), request.request_id, request.acked)


def _several(request: PublishBatch) -> Publication:
    names = (request.tenant_id, request.namespace, request.stream)
    return Publication(names, request.payloads, request.request_id, request.acked, what="publish batch")


def _binary(request: Batch) -> Publication:
    names = (request.tenant, request.namespace, request.stream)
    return Publication(names, request.payloads, request.request_id, request.ack, binary=True)


PUBLICATIONS: Final[dict[type, Callable[[Any], Publication]]] = {
    Publish: _single,
    PublishBatch: _several,
    Batch: _binary,
}
"""How each kind of request becomes a publication."""


class Run:
    """Publications to one stream that follow each other."""

    __slots__ = ("names", "publications", "size", "values")

    def __init__(self, first: Publication) -> None:
        self.names = first.names
        self.publications = [first]
        self.values = list(first.values)
        self.size = sum(map(len, first.values), OVERHEAD * len(first.values))

    def take(self, publication: Publication) -> bool:
        """Whether it belongs here too, which it does then."""
        if publication.names != self.names or self.size >= RUN_BYTES:
            return False
        self.publications.append(publication)
        self.values += publication.values
        self.size += sum(map(len, publication.values), OVERHEAD * len(publication.values))
        return True

    def split(self) -> list[Run]:
        """A run for each of them."""
        return [Run(publication) for publication in self.publications]

    def acknowledgement(self, dialect: Dialect) -> bytes:
        publications = self.publications
        if len(publications) == 1:
            return publications[0].acknowledgement(dialect)
        return b"".join([publication.acknowledgement(dialect) for publication in publications])


def publish(call: RequestContext, run: Run) -> Reply:
    several = len(run.publications) > 1
    _check(run, original=call.original)
    tenant, namespace, stream = run.names
    scope = call.scope(tenant, namespace, len(run.publications))
    topic, partition = locate(call, scope, stream, Permission.WRITE)
    reply = run.acknowledgement(call.dialect)
    if not run.values:
        call.broker.access.require(call.identity, Permission.WRITE, scope, topic)
        return Reply(reply)

    def produce() -> Appended:
        return call.broker.produce.append(
            call.identity, scope, topic, partition or 0, run.values, allow_dead_letters=not several
        )

    try:
        appended = produce()
    except TopicNotFound:
        ensure_topic(call, scope, topic)
        appended = produce()
    return Reply(reply, appended.group)


def _check(run: Run, *, original: bool) -> None:
    """The original's clients tell acknowledgements apart by nothing but their ids."""
    for publication in run.publications:
        if original and publication.acked and publication.request_id is None:
            raise RequestRefused(f"missing request_id for acked {publication.what}")
        if (count := len(publication.values)) > MAX_PAYLOADS:
            raise RequestRefused(f"a batch of {count} payloads; the most is {MAX_PAYLOADS}: send several")
