"""Opening the engine of a replica: as the cache of its journal, and then as its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.log import identity
from penstock.log.engine import Durability
from penstock.log.files import Files
from penstock.log.kafka import checkpoint
from penstock.log.kafka.checkpoint import JournalSource
from penstock.log.kafka.committer import GROUP_BYTES, CommitterSettings, KafkaCommitter
from penstock.log.kafka.engine import ReplicatedEngine
from penstock.log.kafka.filling import Progress, ensure_filled
from penstock.log.kafka.journal import Journal
from penstock.log.kafka.replica import Replica
from penstock.log.kafka.upkeep import Upkeep
from penstock.log.settings import LogSettings


class ReplicaOpening:
    """A replica whose engine is open, and accepts no appends before `own`. All methods block, and raise LogError."""

    def __init__(
        self,
        journal: Journal,
        source: JournalSource,
        files: Files,
        settings: LogSettings,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        committing: CommitterSettings | None = None,
        on_lost: Callable[[str], None] = lambda _: None,
        progress: Progress = lambda _done, _all: None,
    ) -> None:
        files.make_directory("")
        found = ensure_filled(journal, source, files, settings.file_bytes, clock(), progress)
        self._committer = KafkaCommitter(
            loop,
            committing,
            journal_id=source.topic,
            checkpoint=partial(checkpoint.store, files, source),
            upkeep=Upkeep(journal, source.cell, files).run,
            on_lost=on_lost,
        )
        # Kafka makes a group durable. The segments are synced within a second, and restored from Kafka if they are
        # lost.
        group_bytes = min(settings.group_bytes, GROUP_BYTES)
        cached = replace(settings, durability=Durability.WRITTEN, group_bytes=group_bytes)
        self.engine = ReplicatedEngine(files, cached, committer=self._committer, clock=clock)
        self.replica = Replica(journal, self.engine, found.view, found.owner.encode(), found.landmarks)
        self.identity = identity.read(files)
        """The id of the data directory, for the owner's claim."""

    def own(self, value: bytes) -> bool:
        """Claim the journal, and read it to its end: whether this broker owns it now. `value` tells other brokers who
        the owner is."""
        producer = self.replica.claim(value)
        if producer is None:
            return False
        self.replica.close()
        self._committer.begin(self.replica.journal, producer, self.replica.view, value, self.replica.landmarks)
        return True
