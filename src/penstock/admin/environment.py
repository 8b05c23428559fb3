"""The environment of the administration API: information about the process around the broker.

The server fills it in; without a server (the command line on a stopped broker's directory), it is empty."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec


class DoorView(msgspec.Struct):
    """An open door."""

    name: str
    address: str  # host:port
    transport: str  # tcp, udp
    tls: str  # off, offered or required
    pinned: bool  # no other door is served at this address
    fingerprint: str = ""  # SHA-256 of the certificate for QUIC clients
    certificate: str = ""  # the certificate, as PEM


class ConnectionView(msgspec.Struct):
    """An open connection."""

    id: int
    door: str  # empty until it is detected from the first bytes
    peer: str
    identity: str  # that has logged in; empty: none
    since: int  # µs since 1970
    received: int  # bytes
    sent: int
    held: int  # bytes that the broker holds for it
    encrypted: bool
    request: str  # the kind of the last one


class PipelinePartition(msgspec.Struct):
    """The offset of a pipeline's query in a partition."""

    topic: str
    partition: int
    position: int  # the next offset to read
    lag: int | None  # records not read yet; null: unknown


class PipelineQuery(msgspec.Struct):
    """A query of a pipeline, from its checkpoint and the state of the run."""

    name: str
    state: str  # in the current or last run; empty: unknown
    rows: int | None  # since its first start; null: it does not read topics
    rate: float | None  # rows a second, over the last batches
    batch: int | None  # the last completed one
    committed: float | None  # time of its completion: seconds since 1970
    lag: int | None
    eta: float | None  # seconds until it has caught up, at its recent rate
    partitions: list[PipelinePartition]
    restarts: int = 0  # in the current or last run
    error: str = ""  # the essential line of its last failure in that run


class PipelineView(msgspec.Struct):
    """A pipeline whose project folder is known to this broker."""

    name: str
    kind: str  # declarative or continuous
    directory: str
    running: bool
    phase: str  # starting, running, completed, stopped, failed; killed; empty: it has never run
    started: float | None  # seconds since 1970
    ended: float | None
    error: str
    queries: list[PipelineQuery]
    unreadable: str = ""  # the reason why its folder could not be read


class PipelineRestart(msgspec.Struct):
    """A pipeline that is being restarted."""

    name: str
    process: int  # that is asked to end; the next one continues from its checkpoint


class ConfigValue(msgspec.Struct):
    """One configuration key with its effective value."""

    key: str
    value: Any
    origin: str  # default, file, environment or flag


Ends: TypeAlias = Callable[[tuple[str, str], Collection[str]], Mapping[tuple[str, int], int] | None]
"""The ends of topics in a tenant and namespace, by topic and partition: the next offset. None: unknown."""


def _nothing() -> Sequence[Any]:
    return ()


def _no_pipelines(ends: Ends) -> Sequence[PipelineView]:  # noqa: ARG001 - the shape of `Environment.pipelines`
    return ()


def _no_pipeline(name: str) -> int | None:
    raise LookupError(name)


def _closes_nothing(id: int) -> bool:  # noqa: A002, ARG001 - the shape of `Environment.close_connection`
    return False


@dataclass(slots=True)
class Environment:
    durability: str = "synced"  # meaning of an acknowledgement: `log.durability`, or "replicated" by Kafka
    enforced: bool | None = None  # whether security is on, for a broker that is opened for a single request
    started: int = 0  # µs since 1970
    doors: Callable[[], Sequence[DoorView]] = _nothing
    connections: Callable[[], Sequence[ConnectionView]] = _nothing
    close_connection: Callable[[int], bool] = _closes_nothing
    config: Callable[[], Sequence[ConfigValue]] = _nothing
    data_dir: str = ""  # of a running broker
    pipelines: Callable[[Ends], Sequence[PipelineView]] = _no_pipelines  # reads files: on a thread
    pipeline_scopes: Callable[[], Collection[tuple[str, str]]] = _nothing  # of their topics; reads files too
    restart_pipeline: Callable[[str], int | None] = _no_pipeline  # the same; None: it is not running
    api: object = None  # the API of this broker, created on first use
