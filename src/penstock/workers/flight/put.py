"""Puts: a stream of Arrow record batches is staged in a file by the Flight process. The broker permits the target
topics, and publishes the file later; it never handles a record batch."""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from penstock.broker.errors import BrokerError
from penstock.broker.publications.partition_split import PartitionSplitter, SplitLimits, TargetTopic
from penstock.broker.publications.staging import DIRECTORY, Staged, StagedWriter, new_ref
from penstock.broker.tenancy.fair_share import allowance
from penstock.flight import wire
from penstock.log.arrow import UnusableColumns
from penstock.log.files import OsFiles
from penstock.workers.flight.callers import Caller
from penstock.workers.flight.errors import Refused, TooMany
from penstock.workers.flight.rpc_messages import (
    FlightSettings,
    PublicationRequest,
    PublishedRows,
    StagingPermit,
    StagingRequest,
)
from penstock.workers.rpc import RemoteError, RpcClient
from penstock.workers.supervisor import Empty

USAGE_CHECK_BYTES: Final = 64 << 20  # of a stream, between checks of the total usage


def put(
    broker: RpcClient,
    settings: FlightSettings,
    caller: Caller,
    command: wire.PutCommand,
    reader: Any,
    writer: Any,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Stage the records of a stream; without an application, publish them too. A broken stream leaves nothing behind:
    `cancelled` says whether the end of the stream was a break."""
    with _refusals():
        client = _StagingClient(broker, caller, command)
        first = client.prepare([] if command.topic is None else [command.topic])
        ref = new_ref(first.key, command.batch, time.time_ns() // 1000, secrets.token_bytes)
        quota = _StagingQuota(os.path.join(settings.data_dir, DIRECTORY), first, caller.scope.tenant)
        quota.check(0)
        staged = StagedWriter(OsFiles(settings.data_dir), ref, sync=first.sync)
        try:
            done = _stage(staged, client, command.topic, first, quota, reader, cancelled)
        except BaseException:
            staged.abandon()
            raise
    if command.app is not None:
        answer: wire.Message = wire.Staged(done.ref, done.rows)
    else:
        message = PublicationRequest(caller.identity, caller.scope, first.app, command.batch, [done.ref])
        try:
            published = broker.call("publish.publish", message, PublishedRows)
        except RemoteError:
            broker.call("publish.discard", message, Empty)
            raise
        answer = wire.Published(published.rows, published.repeated)
    writer.write(pa.py_buffer(wire.encode(answer)))


def publish(broker: RpcClient, caller: Caller, request: wire.Publication) -> wire.Published:
    message = PublicationRequest(caller.identity, caller.scope, request.app, request.batch, list(request.refs))
    found = broker.call("publish.publish", message, PublishedRows)
    return wire.Published(found.rows, found.repeated)


def discard(broker: RpcClient, caller: Caller, request: wire.Publication) -> None:
    message = PublicationRequest(caller.identity, caller.scope, request.app, request.batch, list(request.refs))
    broker.call("publish.discard", message, Empty)


class _StagingClient:
    """The broker's permission to stage, for one stream."""

    def __init__(self, broker: RpcClient, caller: Caller, command: wire.PutCommand) -> None:
        self._broker = broker
        self._caller = caller
        self._batch = command.batch
        self._app = command.app

    def prepare(self, names: Sequence[str]) -> StagingPermit:
        message = StagingRequest(self._caller.identity, self._caller.scope, self._app, self._batch, list(names))
        return self._broker.call("publish.prepare", message, StagingPermit)

    def targets(self, names: Sequence[str]) -> list[TargetTopic]:
        return [
            TargetTopic(found.id, found.name, found.partitions, found.checked) for found in self.prepare(names).targets
        ]


def _stage(
    staged: StagedWriter,
    client: _StagingClient,
    topic: str | None,
    limits: StagingPermit,
    quota: _StagingQuota,
    reader: Any,
    cancelled: Callable[[], bool],
) -> Staged:
    def emit(target: TargetTopic, partition: int, columns: Any) -> None:
        staged.add(target.id, target.name, partition, columns)
        quota.check(staged.byte_size)

    splitter = PartitionSplitter(
        reader.schema,
        topic,
        SplitLimits(limits.record_bytes, limits.topics, limits.chunk_bytes),
        client.targets,
        emit,
        turn=secrets.randbelow,
    )
    for chunk in reader:
        if chunk.data is not None:
            splitter.add(chunk.data)
    if cancelled():
        raise Refused("Broken", "the stream broke off")
    splitter.finish()
    return staged.finish()


class _StagingQuota:
    """The staging quotas of one stream, of its tenant, and of all together. Usage is measured on disk, since the broker
    removes files. The tenants of files that were staged before this process started are unknown; they count as other
    tenants'."""

    _lock = threading.Lock()
    _tenants: ClassVar[dict[str, str]] = {}  # by the key in file names

    def __init__(self, directory: str, limits: StagingPermit, tenant: str) -> None:
        self._directory = directory
        self._limits = limits
        self._tenant = tenant
        self._checked_at = -USAGE_CHECK_BYTES

    def check(self, written: int) -> None:
        """Raises Refused or TooMany if a quota is exceeded."""
        limits = self._limits
        if written > limits.stream_bytes:
            raise Refused("LimitReached", f"A stream of more than {limits.stream_bytes} bytes: use more of them")
        if written - self._checked_at < USAGE_CHECK_BYTES:
            return
        self._checked_at = written
        with self._lock:
            usage = _usage(self._directory)
            self._tenants[limits.key.hex()] = self._tenant
            for tenant in self._tenants.keys() - usage.keys() - {limits.key.hex()}:
                del self._tenants[tenant]
            mine = [used for key, used in usage.items() if self._tenants.get(key) == self._tenant]
        files, size = sum(used.files for used in usage.values()), sum(used.size for used in usage.values())
        my_files, my_size = sum(used.files for used in mine), sum(used.size for used in mine)
        room = allowance(limits.staged_bytes, size - my_size, limits.share)
        if my_size >= room or my_files > allowance(limits.staged_files, files - my_files, limits.share):
            raise TooMany(
                f"{my_size} bytes in {my_files} files of this tenant are staged and not published yet, which is its "
                "limit: publish or discard them, or try again later"
            )


class _Used(NamedTuple):
    files: int
    size: int


def _usage(directory: str) -> dict[str, _Used]:
    """The number and bytes of staged files, by the key in their names."""
    found: dict[str, _Used] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    key = entry.name.partition("-")[0]
                    used = found.get(key, _Used(0, 0))
                    found[key] = _Used(used.files + 1, used.size + entry.stat().st_size)
                except FileNotFoundError:
                    continue  # it was published meanwhile
    except FileNotFoundError:
        pass
    return found


@contextmanager
def _refusals() -> Iterator[None]:
    """Convert errors of a stream to errors of this door."""
    try:
        yield
    except (BrokerError, UnusableColumns) as error:
        raise Refused(type(error).__name__, str(error)) from error
    except pa.ArrowInvalid as error:
        raise Refused("UnusableColumns", f"the record batches cannot be read: {error}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Refused("LogFull", "the broker's disk has no room for what is to be staged") from error
