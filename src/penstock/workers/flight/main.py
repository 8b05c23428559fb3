"""The Flight process: `python -m penstock.workers.flight.main DESCRIPTOR`, started only by the broker."""

from __future__ import annotations

import logging
import os
import sys

from penstock.structured_logging import configure_logging
from penstock.workers.flight.rpc_messages import FlightSettings
from penstock.workers.import_guard import without_pandas
from penstock.workers.priority import lower_priority
from penstock.workers.rpc import RpcClient
from penstock.workers.supervisor import fetch_settings, prefer_as_oom_victim, report_ready

logger = logging.getLogger(__name__)

# gRPC has no setting for the minimum TLS version, only for the cipher suites below 1.3. This suite needs a pre-shared
# key, and there is none: so no handshake below 1.3 can succeed.
ONLY_TLS_1_3 = "ECDHE-PSK-AES128-CBC-SHA"


def main(descriptor: str) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is loaded: we report its errors ourselves
    client = RpcClient.inherited(descriptor)
    settings = fetch_settings(client, FlightSettings)
    configure_logging(settings.log_level, settings.log_format)
    if settings.tls_min_version == "1.3":
        os.environ["GRPC_SSL_CIPHER_SUITES"] = ONLY_TLS_1_3  # read when gRPC is loaded
    lower_priority()
    prefer_as_oom_victim()

    without_pandas()

    import pyarrow as pa

    from penstock.flight.reading import Reader
    from penstock.log.files import OsFiles
    from penstock.log.tailer import Tailer
    from penstock.workers.flight.errors import hide_tracebacks
    from penstock.workers.flight.server import FlightServer
    from penstock.workers.table_damage import damage_reporter

    hide_tracebacks()
    reader = Reader(Tailer(OsFiles(settings.data_dir)), on_damage=damage_reporter(client))
    try:
        server = FlightServer(settings, client, reader)
    except (pa.ArrowException, OSError) as error:
        logger.error("Arrow Flight cannot listen on %s:%d: %s", settings.host, settings.port, error)
        sys.exit(1)
    report_ready(client, str(server.port))
    import penstock.workers.flight.put  # noqa: F401 - after `ready`: the first writer need not wait for the import

    server.serve()


if __name__ == "__main__":
    main(sys.argv[1])
