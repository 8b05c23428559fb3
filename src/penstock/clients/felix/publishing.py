"""Publishing: which stream a batch goes by, in which form, and how many are under way."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Iterable, Sequence

from penstock.clients.felix.connection import Exchanges
from penstock.clients.felix.errors import FelixError, OutcomeUnknown, PipelineError, TimedOut
from penstock.clients.felix.exchange import Exchange, Lost, Outcome
from penstock.clients.felix.options import Options, name
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Batch, encode_batch
from penstock.wire.felix.frames import ACKED


class Publisher:
    """What is published to one stream goes by one QUIC stream, so that its order is kept."""

    def __init__(self, options: Options, exchanges: Exchanges) -> None:
        self._options = options
        self._exchanges = exchanges

    async def publish(self, stream: str, payloads: Sequence[bytes], namespace: str | None) -> None:
        """Returns when they are stored, all or none."""
        outcome = await (await self._begin(stream, payloads, namespace))
        if isinstance(outcome, FelixError):
            raise _verdict(outcome)

    async def publish_batches(
        self, stream: str, batches: Iterable[Sequence[bytes]], namespace: str | None, window: int
    ) -> int:
        """Up to `window` of them under way; the first failure stops the sending. How many were stored."""
        futures: deque[asyncio.Future[Outcome]] = deque()
        results: list[FelixError | None] = []
        failed = False
        for payloads in batches:
            while futures and (len(futures) >= window or futures[0].done()):
                failed |= not _settle(await futures.popleft(), results)
            if failed:
                break
            try:
                futures.append(await self._begin(stream, payloads, namespace))
            except FelixError as error:
                while futures:
                    _settle(await futures.popleft(), results)
                results.append(error)
                raise PipelineError(results) from error
        while futures:
            failed |= not _settle(await futures.popleft(), results)
        if failed:
            raise PipelineError(results)
        return len(results)

    async def tell(self, stream: str, payloads: Sequence[bytes], namespace: str | None) -> None:
        """Without an acknowledgement. Waits only for room to send."""
        scope = self._scope(stream, namespace)
        data = encode_batch(Batch(*scope, list(payloads)))
        while True:
            exchange = await self._exchange(stream)
            if exchange.full:
                await exchange.room()
            if exchange.lost is None:
                exchange.tell(data)
                return

    async def _begin(self, stream: str, payloads: Sequence[bytes], namespace: str | None) -> asyncio.Future[Outcome]:
        """Send as soon as there is room. The future is done when the acknowledgement has come."""
        scope = self._scope(stream, namespace)
        while True:
            exchange = await self._exchange(stream)
            number = exchange.next_id()
            data = self._request(exchange, number, scope, payloads)
            if exchange.full:
                await exchange.room()
            if exchange.lost is None:
                return exchange.ask(number, data)

    def _scope(self, stream: str, namespace: str | None) -> tuple[str, str, str]:
        own = self._options
        return own.tenant, own.namespace if namespace is None else name("namespace", namespace), name("stream", stream)

    async def _exchange(self, stream: str) -> Exchange:
        at = zlib.crc32(stream.encode()) % len(self._exchanges)
        return self._exchanges.ready(at) or await self._exchanges.get(at)

    def _request(
        self, exchange: Exchange, number: int | str, scope: tuple[str, str, str], payloads: Sequence[bytes]
    ) -> bytes:
        own = self._options
        if own.original and own.encoding == "binary" and exchange.flags & ACKED and isinstance(number, int):
            return encode_batch(Batch(*scope, list(payloads), number))
        if len(payloads) == 1:
            return m.encode(m.Publish(*scope, payloads[0], number, "per_message"))
        return m.encode(m.PublishBatch(*scope, list(payloads), number, "per_batch"))


def _verdict(outcome: FelixError) -> FelixError:
    """Of a publish that was sent. It is never sent again: it might be stored twice."""
    if isinstance(outcome, Lost):
        return OutcomeUnknown(f"what was published may be stored, or not: {outcome}")
    if isinstance(outcome, TimedOut):
        return TimedOut(f"what was published may be stored, or not: {outcome}")
    return outcome


def _settle(outcome: Outcome, results: list[FelixError | None]) -> bool:
    results.append(_verdict(outcome) if isinstance(outcome, FelixError) else None)
    return results[-1] is None
