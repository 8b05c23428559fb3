"""The log and the broker over it, opened as the configuration says."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from penstock.broker.broker import Broker
from penstock.broker.publications.staging import Staging
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.runtime.executor import ThreadExecutor
from penstock.config import broker as config
from penstock.config.settings import Settings
from penstock.log.committer import ThreadCommitter
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles


def open_broker(
    settings: Settings, data_dir: str, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor
) -> Broker:
    """Raises ConfigError, LogError, StateUnreadable or OSError."""
    engine = FileEngine(
        OsFiles(data_dir), config.log_settings(settings), committer=ThreadCommitter(loop), clock=wall_clock
    )
    try:
        return Broker(
            engine,
            config.broker_settings(settings, data_dir),
            executor=ThreadExecutor(loop, threads),
            scheduler=loop,
            staging=Staging(OsFiles(data_dir)),
        )
    except BaseException:
        engine.close()
        raise
