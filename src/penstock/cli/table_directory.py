"""Tables of a data directory, read without a broker or beside a running one: verification and repair in this process.

`table_jobs` does the same over the network.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.failure import fail

if TYPE_CHECKING:  # what reads tables takes a while to load: only when it is needed
    from penstock.broker.state.offline import OfflineLog
    from penstock.broker.state.state import Topic
    from penstock.broker.tables.table import RepairReport, TablePolicy, TypedReport
    from penstock.config.settings import Settings
    from penstock.log.tables.location import TableRef
    from penstock.log.tables.verify import Verification

_TRIES: Final = 5  # a running broker changes files while they are read

Progress = Callable[[int, int], None]  # records done, total


class TableDirectory(NamedTuple):
    """A data directory, and the location of its tables."""

    log: OfflineLog
    policy: TablePolicy

    def ref(self, topic: Topic) -> TableRef:
        from penstock.log.tables.location import table_ref

        return table_ref(self.policy.root, self.policy.options, *topic.scope, topic.name, topic.id)

    def topics(self) -> list[Topic]:
        return sorted(self.log.state.topics_by_id.values(), key=lambda topic: (topic.scope, topic.name))

    def topic(self, tenant: str | None, namespace: str | None, name: str) -> Topic:
        from penstock.broker.names import Scope

        tenant, namespace = tenant or "default", namespace or "default"
        found = self.log.state.topics.get(Scope(tenant, namespace), {}).get(name)
        if found is None:
            fail(f"there is no topic {name!r} in {tenant}/{namespace}")
        return found


def open_directory(settings: Settings) -> TableDirectory:
    """The current log of the directory, whether or not a broker is writing it."""
    from penstock.broker.state.offline import OfflineLog
    from penstock.config.broker import table_policy
    from penstock.log.errors import LogError
    from penstock.log.files import OsFiles

    root = settings.data_dir
    for left in reversed(range(_TRIES)):
        try:
            return TableDirectory(OfflineLog(OsFiles(root), root, lambda: None), table_policy(settings, root))
        except (LogError, OSError):
            if not left:
                raise
            time.sleep(0.1)
    raise AssertionError


@contextlib.contextmanager
def report_read_errors() -> Iterator[None]:
    from penstock.broker.errors import BrokerError
    from penstock.log.errors import LogError

    try:
        yield
    except (LogError, BrokerError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename or 'reading'}: {error.strerror or error}")


def verified(directory: TableDirectory, topic: Topic, progress: Progress | None) -> Verification:
    from penstock.log.engine import partition_id
    from penstock.log.tables.verify import verify as verify_table

    log = directory.log
    partitions = {number: partition_id(topic.id, number) for number in range(topic.partitions)}
    while True:
        starts = {number: log.bounds(partition).start for number, partition in partitions.items()}
        table_ends = {number: log.table_end(partition) for number, partition in partitions.items()}
        outcome = verify_table(directory.ref(topic), log.tailer, starts, table_ends, progress)
        if outcome.sound:
            return outcome
        log.refresh()  # retention of a running broker may have removed records meanwhile
        if starts == {number: log.bounds(partition).start for number, partition in partitions.items()}:
            return outcome


def verified_typed(directory: TableDirectory, topic: Topic) -> TypedReport | None:
    from penstock.broker.tables.table import typed_rows
    from penstock.workers.tables.typed_verify import verify_typed

    while True:
        typed = typed_rows(directory.log.state, directory.log.bounds, topic)
        report = None if typed is None else verify_typed(directory.ref(topic), typed)
        if report is None or report.sound:
            return report
        directory.log.refresh()  # a running broker may have removed records meanwhile
        if typed_rows(directory.log.state, directory.log.bounds, topic) == typed:
            return report


def repaired(directory: TableDirectory, topic: Topic, progress: Progress | None, *, checksums: bool) -> RepairReport:
    from penstock.broker.tables.table import RepairJob
    from penstock.log.engine import partition_id
    from penstock.workers.tables.repair import repair_table

    log = directory.log
    log.refresh()
    partitions = {number: partition_id(topic.id, number) for number in range(topic.partitions)}
    starts = {number: log.bounds(partition).start for number, partition in partitions.items()}
    ends = {number: log.table_end(partition) for number, partition in partitions.items()}
    return repair_table(RepairJob(0, directory.ref(topic), starts, ends, checksums), log.tailer, progress)
