"""Metrics of the process and its environment: disk, memory, descriptors, workers. Collected at each scrape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.broker.runtime.exposition import PREFIX


class Restarted(Protocol):
    """The restart counts of the workers."""

    def restarts(self) -> dict[str, int]:
        """Kind of process → number of restarts."""


class ProcessFigures:
    def __init__(self, data_dir: str, workers: Restarted) -> None:
        self._data_dir = data_dir
        self._workers = workers
        self._process = ProcessCollector(namespace="penstock", registry=CollectorRegistry())

    def collect(self) -> Iterator[Metric]:
        disk = os.statvfs(self._data_dir)
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        yield GaugeMetricFamily(PREFIX + "disk_free_bytes", "Room for the broker on the data directory's disk.", free)
        yield GaugeMetricFamily(PREFIX + "disk_size_bytes", "Size of the data directory's disk.", size)
        restarts = CounterMetricFamily(
            PREFIX + "worker_restarts", "Worker processes that ended and were started again.", labels=("worker",)
        )
        for name, count in self._workers.restarts().items():
            restarts.add_metric((name,), count)
        yield restarts
        yield from self._process.collect()
