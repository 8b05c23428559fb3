"""Publishing: the choice of a request stream for each batch, and the number of batches in flight."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Iterable, Sequence

from penstock.clients.felix import requests
from penstock.clients.felix.errors import FelixError, PipelineError
from penstock.clients.felix.options import Options
from penstock.clients.felix.pool import RequestStreamPool
from penstock.clients.felix.request_stream import Outcome
from penstock.clients.felix.requests import RequestSpec
from penstock.wire.felix.codec.binary import Batch, encode_batch


class Publisher:
    """All batches for one Felix stream use the same QUIC stream, to preserve their order."""

    def __init__(self, options: Options, streams: RequestStreamPool) -> None:
        self._options = options
        self._streams = streams

    async def publish(
        self, stream: str, payloads: Sequence[bytes], namespace: str | None, key: bytes | None = None
    ) -> int | None:
        """Publish a batch, and wait until it is stored, all or nothing. Returns the offset of the first event, if the
        server reports it."""
        spec = requests.publish(self._options, self._options.scope(namespace, "stream", stream), payloads, key)
        return await self._streams.call(self._slot(stream), spec)

    async def publish_batches(
        self, stream: str, batches: Iterable[Sequence[bytes]], namespace: str | None, window: int
    ) -> int:
        """Publish batches, up to `window` of them in flight; the first failure stops the sending. Returns how many were
        stored."""
        in_flight: deque[tuple[RequestSpec[int | None], asyncio.Future[Outcome]]] = deque()
        results: list[FelixError | None] = []

        async def settle_oldest() -> bool:
            spec, future = in_flight.popleft()
            outcome = await future
            results.append(spec.failure(outcome) if isinstance(outcome, FelixError) else None)
            return results[-1] is None

        failed = False
        for payloads in batches:
            while in_flight and (len(in_flight) >= window or in_flight[0][1].done()):
                failed |= not await settle_oldest()
            if failed:
                break
            try:
                spec = self._spec(stream, payloads, namespace)
                in_flight.append((spec, await self._streams.send(self._slot(stream), spec)))
            except FelixError as error:
                while in_flight:
                    await settle_oldest()
                results.append(error)
                raise PipelineError(results) from error
        while in_flight:
            failed |= not await settle_oldest()
        if failed:
            raise PipelineError(results)
        return len(results)

    async def publish_unacknowledged(self, stream: str, payloads: Sequence[bytes], namespace: str | None) -> None:
        """Publish without a reply; waits only for room to send."""
        data = encode_batch(Batch(*self._options.scope(namespace, "stream", stream), list(payloads)))
        await self._streams.send_unacknowledged(self._slot(stream), data)

    def _spec(self, stream: str, payloads: Sequence[bytes], namespace: str | None) -> RequestSpec[int | None]:
        return requests.publish(self._options, self._options.scope(namespace, "stream", stream), payloads)

    def _slot(self, stream: str) -> int:
        return zlib.crc32(stream.encode()) % len(self._streams)
