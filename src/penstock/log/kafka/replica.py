"""A replica: a journal, and the engine whose segments are its cache. Reads, follows and claims the journal.

Everything here blocks, and happens before a broker uses the engine; afterwards `committer.py` takes over.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from penstock.log.errors import LogDamaged, LogUnavailable
from penstock.log.group_format import GroupDamaged
from penstock.log.kafka.checkpoint import WrongJournal
from penstock.log.kafka.engine import ReplicatedEngine
from penstock.log.kafka.fencing import JournalView, Kind, Stamp, Verdict, claim, read
from penstock.log.kafka.journal import SALT, Journal, JournalProducer, JournalReader, JournalRecord, JournalTrimmed
from penstock.log.kafka.landmarks import Landmark, landmark
from penstock.log.recovery import ForeignGroup, foreign_group

logger = logging.getLogger(__name__)

READ_SECONDS: Final = 10.0  # maximum wait for a record that is known to exist
CLAIM_SECONDS: Final = 10.0
_STEP: Final = 0.25
_SPEAKING: Final = frozenset({Verdict.COUNTS, Verdict.BEGINS, Verdict.ALIVE})


def advance(view: JournalView, record: JournalRecord) -> tuple[JournalView, Verdict]:
    """Process one record. Offsets have no gaps."""
    if record.offset != view.offset:
        raise WrongJournal(f"offset {record.offset} of the journal's topic where offset {view.offset} belongs")
    if record.stamp is None:
        return view._replace(offset=view.offset + 1), Verdict.STALE
    return read(view, record.stamp)


def decode(record: JournalRecord) -> ForeignGroup:
    try:
        return foreign_group(record.value, SALT)
    except GroupDamaged as error:
        raise LogDamaged("the journal on Kafka", record.offset, str(error)) from None


def records_until(
    reader: JournalReader, view: JournalView, end: int
) -> Iterator[tuple[JournalView, JournalRecord, Verdict]]:
    """The records up to the offset `end`, which must exist, each with the view after it. Raises LogUnavailable."""
    give_up = time.monotonic() + READ_SECONDS
    while view.offset < end:
        records = reader.read(_STEP)
        if records:
            give_up = time.monotonic() + READ_SECONDS
        elif time.monotonic() > give_up:
            raise LogUnavailable(f"Kafka does not give offset {view.offset} of the journal, which ends at {end}")
        for record in records:
            if record.offset < view.offset:
                continue  # a reader may start with a batch that begins earlier
            view, verdict = advance(view, record)
            yield view, record, verdict


def read_until(
    reader: JournalReader, view: JournalView, end: int, found: Callable[[JournalView, JournalRecord, Verdict], None]
) -> JournalView:
    """Read up to the offset `end`, which must exist. Raises LogUnavailable."""
    for behind, record, verdict in records_until(reader, view, end):
        found(behind, record, verdict)
        view = behind
    return view


def claim_term(
    journal: Journal,
    reader: JournalReader,
    view: JournalView,
    owner: str,
    value: bytes,
    found: Callable[[JournalView, JournalRecord, Verdict], None],
) -> tuple[JournalView, JournalProducer | None]:
    """Claim the next term, and read the journal up to the claim: the producer if the claim succeeded and no later one
    followed, None if another owner was faster. Raises LogUnavailable."""
    stamp = claim(view, owner)
    producer = journal.producer()
    try:
        offset = _send_and_wait(producer, stamp, value)
        view = read_until(reader, view, max(offset + 1, journal.bounds()[1]), found)
        if view.term == stamp.term:
            return view, producer
    except BaseException:
        producer.close()
        raise
    producer.close()
    return view, None


def _send_and_wait(producer: JournalProducer, stamp: Stamp, value: bytes) -> int:
    answers: list[tuple[int, str]] = []
    producer.send(stamp, value, lambda offset, reason: answers.append((offset, reason)))
    give_up = time.monotonic() + CLAIM_SECONDS
    while not answers:
        if time.monotonic() > give_up:
            raise LogUnavailable("Kafka does not answer a claim")
        producer.poll(_STEP)
    offset, reason = answers[0]
    if offset < 0:
        raise LogUnavailable(f"a claim could not be written to Kafka: {reason}")
    return offset


def _run_here(ingest: Callable[[], None]) -> None:
    """The default of `Replica.ingest_by`."""
    ingest()


def _ignore(group: ForeignGroup) -> None:
    """The default of `Replica.watch`."""


class Replica:
    """A journal and its cache, before this broker owns it."""

    def __init__(
        self,
        journal: Journal,
        engine: ReplicatedEngine,
        view: JournalView,
        owner: bytes = b"",
        landmarks: Sequence[Landmark] = (),
    ) -> None:
        self.journal = journal
        self.engine = engine
        self.view = view
        self.owner = owner  # the value of the current claim
        self.landmarks = list(landmarks)  # of the segments
        self.heard = time.monotonic()  # time of the last sign of life from the owner
        self._run: Callable[[Callable[[], None]], None] = _run_here
        self._on_group: Callable[[ForeignGroup], None] = _ignore
        self._reader: JournalReader | None = None

    def ingest_by(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Commit groups to the engine by this function: on the loop, if the engine is read there."""
        self._run = run

    def watch(self, on_group: Callable[[ForeignGroup], None]) -> None:
        """Call back with each group, where it was committed."""
        self._on_group = on_group

    def unwatch(self) -> None:
        """Commit groups here again, and call back no more."""
        self._run, self._on_group = _run_here, _ignore

    def catch_up(self) -> None:
        """Read to the end. Raises LogUnavailable, JournalTrimmed, WrongJournal or the errors of
        `ReplicatedEngine.ingest`."""
        first, end = self.journal.bounds()
        if self.view.offset < first:
            raise JournalTrimmed(
                f"the journal on Kafka begins at offset {first}, and this data directory ends at {self.view.offset}"
            )
        if self.view.offset > end:
            raise WrongJournal(
                f"the journal on Kafka ends at offset {end}, and this data directory has it up to {self.view.offset}"
            )
        self.view = read_until(self._open_reader(), self.view, end, self._take)
        if self.engine.last_group > self.view.group:
            raise WrongJournal(
                f"the data directory has commit groups up to {self.engine.last_group}, and the journal on Kafka up to "
                f"{self.view.group}: they do not belong together"
            )

    def follow(self, seconds: float) -> None:
        """Read records that arrive within that time. Raises as `catch_up`."""
        for record in self._open_reader().read(seconds):
            if record.offset >= self.view.offset:
                self.view, verdict = advance(self.view, record)
                self._take(self.view, record, verdict)

    def claim(self, value: bytes) -> JournalProducer | None:
        """See `claim_term`. Raises as `catch_up`."""
        owner = secrets.token_hex(8)
        self.view, producer = claim_term(self.journal, self._open_reader(), self.view, owner, value, self._take)
        return producer

    def _take(self, view: JournalView, record: JournalRecord, verdict: Verdict) -> None:
        before, self.view = self.view, view
        if verdict in _SPEAKING:
            self.heard = time.monotonic()
        if verdict is Verdict.BEGINS:
            self.owner = record.value
        if verdict is not Verdict.COUNTS:
            if record.stamp is not None and record.stamp.kind is Kind.GROUP:
                logger.info("offset %d of the journal was passed over: %s", record.offset, verdict.name.lower())
            return
        engine, group = self.engine, decode(record)
        if group.number > engine.last_group:
            self._run(lambda: self._ingest(group))
            if engine.newest_segment.first_group == group.number:
                self.landmarks.append(landmark(before, group.position, self.owner))
        elif group.number == engine.last_group and group.position + group.advance != engine.position:
            raise WrongJournal(
                f"commit group {group.number} ends at position {group.position + group.advance} in the journal on "
                f"Kafka, and at {engine.position} in the data directory: they do not belong together"
            )

    def _ingest(self, group: ForeignGroup) -> None:
        self.engine.ingest(group)
        self._on_group(group)

    def _open_reader(self) -> JournalReader:
        if self._reader is None:
            self._reader = self.journal.reader(self.view.offset)
        return self._reader

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            with closing(self._reader):
                self._reader = None
