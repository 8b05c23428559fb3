"""The settings of worker processes and of the transport, as the configuration says them."""

from __future__ import annotations

from penstock.config.layers import load
from penstock.config.transport import connection_limits, quic_settings
from penstock.config.workers import flight_settings, sql_settings, table_settings


def test_workers_get_their_keys_and_how_to_log() -> None:
    flags = {
        "flight.streams": "3",
        "sql.rows": "7",
        "log_level": "error",
        "log_format": "text",
        "log.durability": "memory",
    }
    settings = load(flags=flags).settings
    flight = flight_settings(settings, "/data", "::1", 8815)
    assert (flight.host, flight.port, flight.streams, flight.calls) == ("::1", 8815, 3, 12)
    assert flight.durability == "memory"
    sql = sql_settings(settings, "/data")
    assert (sql.rows, sql.threads, sql.data_dir) == (7, settings.sql.threads, "/data")
    for worker in (flight, sql, table_settings(settings, "/data")):
        assert (worker.data_dir, worker.log_level, worker.log_format) == ("/data", "error", "text")


def test_the_transport_gets_its_limits() -> None:
    settings = load(flags={"limits.connections": "5", "limits.idle_seconds": "7", "felix.streams": "9"}).settings
    limits = connection_limits(settings)
    assert (limits.connections, limits.idle_seconds) == (5, 7)
    quic = quic_settings(settings)
    assert (quic.streams, quic.half_open, quic.handshake_seconds) == (9, 5, settings.limits.handshake_seconds)
