"""Topics as Arrow tables, over Flight: many records at once, as columns. Flight has its own port, which the
administration API reports."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.connection.errors import TableUnreadable
from penstock.connection.options import ConnectionOptions
from penstock.connection.views import Door

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS: Final = 4  # the Flight process may be starting


def read_table(options: ConnectionOptions, door: Door, topic: str, columns: Sequence[str] | None) -> pa.Table:
    """All current records of a topic. Raises TableUnreadable."""
    import pyarrow as pa  # slow to import, and few need it
    from pyarrow import flight

    host, port = options.address.host, door.address.rpartition(":")[2]
    scheme = "grpc+tls" if options.tls is not None else "grpc"
    client = flight.connect(f"{scheme}://{host}:{port}", **_trust(options.tls))
    authorization = options.credentials.authorization
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    for name, value in ((b"x-penstock-tenant", options.tenant), (b"x-penstock-namespace", options.namespace)):
        if value is not None:
            headers.append((name, value.encode()))
    call = flight.FlightCallOptions(timeout=max(options.timeout, 60.0), headers=headers)
    with client:
        for attempt in range(ATTEMPTS):
            try:
                return _read(client, call, topic, columns)
            except flight.FlightUnavailableError as error:
                if attempt == ATTEMPTS - 1:
                    raise TableUnreadable(str(error)) from error
                time.sleep(options.retry.delay(attempt))
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                raise TableUnreadable(str(error)) from error
    raise AssertionError


def _read(client: Any, call: Any, topic: str, columns: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa
    from pyarrow import flight

    info = client.get_flight_info(flight.FlightDescriptor.for_path(topic), call)
    tickets = [endpoint.ticket for endpoint in info.endpoints]
    if columns is not None:
        wanted = [{**json.loads(ticket.ticket), "columns": list(columns)} for ticket in tickets]
        tickets = [flight.Ticket(json.dumps(ticket)) for ticket in wanted]
    return pa.concat_tables([client.do_get(ticket, call).read_all() for ticket in tickets])


def _trust(tls: ssl.SSLContext | None) -> dict[str, Any]:
    """Arguments for a Flight client that trusts the same certificates as the context."""
    if tls is None:
        return {}
    if tls.verify_mode == ssl.CERT_NONE:
        return {"disable_server_verification": True}
    certificates = "".join([ssl.DER_cert_to_PEM_cert(each) for each in tls.get_ca_certs(binary_form=True)])
    return {"tls_root_certs": certificates} if certificates else {}
