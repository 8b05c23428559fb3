"""`[flight]`, `[sql]` and `[tables]` as the settings of the worker processes."""

from __future__ import annotations

from penstock.config.broker import table_policy
from penstock.config.settings import Settings
from penstock.workers.flight.rpc_messages import FlightSettings
from penstock.workers.sql.rpc_messages import SqlSettings
from penstock.workers.tables.rpc_messages import TableSettings

CALLS_PER_STREAM = 4


def flight_settings(settings: Settings, data_dir: str, host: str, port: int) -> FlightSettings:
    """`port`: the one reserved for the process; `listen.flight` may leave the choice to the system."""
    tls, streams = settings.tls, settings.flight.streams
    return FlightSettings(
        data_dir=data_dir,
        host=host,
        port=port,
        cert=tls.cert,
        key=tls.key,
        client_ca=tls.client_ca,
        tls_min_version=tls.min_version,
        streams=streams,
        calls=CALLS_PER_STREAM * streams,
        log_level=settings.log_level,
        log_format=settings.log_format,
        durability=settings.log.durability,
        share=settings.limits.tenant_share,
        unread_seconds=settings.flight.unread_seconds,
    )


def sql_settings(settings: Settings, data_dir: str) -> SqlSettings:
    sql = settings.sql
    return SqlSettings(
        data_dir=data_dir,
        log_level=settings.log_level,
        log_format=settings.log_format,
        seconds=sql.seconds,
        memory_bytes=sql.memory_bytes,
        rows=sql.rows,
        threads=sql.threads,
        overhead_bytes=sql.overhead_bytes,
    )


def table_settings(settings: Settings, data_dir: str) -> TableSettings:
    return TableSettings(
        data_dir=data_dir,
        log_level=settings.log_level,
        log_format=settings.log_format,
        root=table_policy(settings, data_dir).root,
    )
