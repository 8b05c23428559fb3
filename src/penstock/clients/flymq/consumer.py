"""Consumers: records of topics one after the other, from where their group stands. What they do is in `consuming`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from penstock.clients.flymq.asynchronous import AsyncClient
from penstock.clients.flymq.blocking import Client
from penstock.clients.flymq.consuming import Consuming, Record

_ITERATION_SECONDS: Final = 1.0  # how long one poll of an endless iteration lasts

C = TypeVar("C", Client, AsyncClient)


class _Reading(Generic[C]):
    """What both kinds of consumer are made of."""

    def __init__(
        self,
        client: C,
        topics: str | Iterable[str],
        *,
        group: str = "",
        mode: str | None = None,
        partitions: Sequence[int] | None = None,
        filter: str = "",  # noqa: A002 - its name
        prefetch: int = 500,
        auto_commit: bool = True,
        commit_seconds: float = 1.0,
        refresh_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client: C = client
        self._auto_commit = auto_commit and bool(group)
        self._state = Consuming(
            topics,
            group,
            mode,
            partitions,
            filter,
            prefetch,
            commit_seconds if self._auto_commit else None,
            refresh_seconds,
            clock,
            lambda: client.connections,
        )

    def positions(self) -> dict[tuple[str, int], int]:
        """The offset of the next record, by topic and partition; empty before the first poll."""
        return self._state.positions()


class Consumer(_Reading[Client]):
    """Reads topics through a blocking client.

    `topics` are names, or patterns: `+` is one level, `#` all further ones, `/` is between levels; topics that match
    are looked for again every `refresh_seconds`. All partitions are read, or those in `partitions`: the broker does
    not share them out among the members of a group, so consumers that share a topic are given different ones.

    `mode` says where to start: `commit`, where the group stands, is the default with a group; `latest` without;
    `earliest`. With `auto_commit`, what was handed out counts as done when more is asked for, and is committed at
    most every `commit_seconds`, and on `close`: every record is seen at least once. Leave a `with` block by an
    exception and nothing is committed on the way out. Positions survive a reconnect.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()

    def close(self) -> None:
        """Commit, if that is automatic. The client stays open."""
        if self._auto_commit:
            self.commit()

    def poll(self, most: int = 500, timeout: float = 1.0) -> list[Record]:
        """Up to `most` records; none only if none come within `timeout` seconds."""
        return self._client.carry_out(self._state.poll(most, timeout))

    def __iter__(self) -> Iterator[Record]:
        """Records as they come, without end. Each counts as done when the next one is asked for."""
        while True:
            yield from self.poll(1, _ITERATION_SECONDS)

    def commit(self) -> None:
        """Keep where the group stands: behind the last record that was handed out."""
        self._client.carry_out(self._state.commit())

    def seek(self, topic: str, partition: int, to: int | str) -> None:
        """Go on from an offset, or from `earliest` or `latest`."""
        self._client.carry_out(self._state.seek(topic, partition, to))

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on, in all partitions, from the first record that is not older."""
        self._client.carry_out(self._state.seek_to_time(timestamp_ms))


class AsyncConsumer(_Reading[AsyncClient]):
    """The same as `Consumer` through an asyncio client; for one task at a time."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()

    async def close(self) -> None:
        """Commit, if that is automatic. The client stays open."""
        if self._auto_commit:
            await self.commit()

    async def poll(self, most: int = 500, timeout: float = 1.0) -> list[Record]:  # noqa: ASYNC109 - not a deadline
        """Up to `most` records; none only if none come within `timeout` seconds."""
        return await self._client.carry_out(self._state.poll(most, timeout))

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records as they come, without end. Each counts as done when the next one is asked for."""
        while True:
            for record in await self.poll(1, _ITERATION_SECONDS):
                yield record

    async def commit(self) -> None:
        """Keep where the group stands: behind the last record that was handed out."""
        await self._client.carry_out(self._state.commit())

    async def seek(self, topic: str, partition: int, to: int | str) -> None:
        """Go on from an offset, or from `earliest` or `latest`."""
        await self._client.carry_out(self._state.seek(topic, partition, to))

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on, in all partitions, from the first record that is not older."""
        await self._client.carry_out(self._state.seek_to_time(timestamp_ms))
