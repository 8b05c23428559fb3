"""Opens the log and the broker on top of it, according to the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.publications.staging import Staging
from penstock.broker.runtime.executor import ThreadExecutor, ThreadPool
from penstock.config import broker as config
from penstock.config.settings import Settings
from penstock.log.files import OsFiles
from penstock.server.storage import Standby, open_engine
from penstock.transport.endpoint import Endpoint


async def open_broker(
    settings: Settings,
    data_dir: str,
    loop: asyncio.AbstractEventLoop,
    threads: ThreadPool,
    standby: Standby,
    doors: Mapping[str, Endpoint],
) -> Broker:
    """The open broker. `doors` are the endpoints on which it listens. Raises ConfigError, LogError, StateUnreadable,
    StartFailed or OSError."""
    engine = await open_engine(settings, data_dir, loop, threads, standby, doors)
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
