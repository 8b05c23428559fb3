"""The SQL process: `python -m penstock.workers.sql.main DESCRIPTOR`, started only by the broker.

It requests a statement, executes it and reports the outcome, one after the other. It may be killed at any moment: all
changes are made by the broker. The system limits its memory (`memory`).
"""

from __future__ import annotations

import sys
import threading

from penstock.structured_logging import configure_logging
from penstock.workers.import_guard import without_pandas
from penstock.workers.priority import lower_priority
from penstock.workers.rpc import RpcClient
from penstock.workers.sql.memory import MemoryLimit, return_freed_memory
from penstock.workers.sql.rpc_messages import SqlSettings, Stopped
from penstock.workers.supervisor import Empty, fetch_settings, prefer_as_oom_victim, report_ready


def main(descriptor: str) -> None:
    client = RpcClient.inherited(descriptor)
    settings = fetch_settings(client, SqlSettings)
    configure_logging(settings.log_level, settings.log_format)
    if not settings.first:
        lower_priority()
    prefer_as_oom_victim()
    without_pandas()
    return_freed_memory()

    from penstock.flight.reading import Reader
    from penstock.log.files import OsFiles
    from penstock.log.tailer import Tailer
    from penstock.workers.sql.executor import StatementExecutor
    from penstock.workers.table_damage import damage_reporter

    reader = Reader(Tailer(OsFiles(settings.data_dir)), on_damage=damage_reporter(client))
    executor = StatementExecutor(client, settings, reader)
    if settings.first:
        import penstock.log.tables.table
    limit = MemoryLimit(settings.memory_bytes, settings.overhead_bytes)
    if settings.first:
        lower_priority()
    threading.Thread(target=executor.serve, args=[limit], name="sql", daemon=True).start()
    report_ready(client)
    import penstock.log.tables.table  # noqa: F401 - after `ready`: no statement need wait for the import

    while True:
        executor.stop(client.call("sql.stopped", Empty(), Stopped).numbers)


if __name__ == "__main__":
    main(sys.argv[1])
