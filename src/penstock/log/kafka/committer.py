"""The committer of an owner: sends groups to Kafka, several at a time; they are committed when Kafka has stored them at
the expected offsets.

One thread handles Kafka's delivery reports, writes committed groups to the local segments, and sends heartbeats; the
event loop completes the groups. When a report proves nothing (see `fencing.py`), no group is completed until another
thread has read the journal, and has claimed a new term if necessary. This can take as long as Kafka is unavailable:
then the log refuses writes meanwhile, and resumes by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.log.committer import Worker
from penstock.log.errors import LogError, LogReadOnly, LogUnavailable, NotOwner
from penstock.log.kafka.engine import ReplicatedEngine
from penstock.log.kafka.fencing import GroupOutcome, JournalView, Kind, Stamp, Term, Verdict, acknowledged, outcome
from penstock.log.kafka.journal import Journal, JournalProducer, JournalRecord, JournalTrimmed, group_value
from penstock.log.kafka.landmarks import Landmark, landmark, thinned
from penstock.log.kafka.replica import claim_term, decode, read_until
from penstock.log.open_group import PendingGroup
from penstock.retry import RetryPolicy, no_jitter

logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 5  # groups, the maximum of an idempotent producer's requests in flight; more only if they are full
IN_FLIGHT_BYTES: Final = 64 << 20
GROUP_BYTES: Final = 2 << 20  # Kafka takes, replicates and acknowledges several such records sooner than a large one
RETRY: Final = RetryPolicy(base=0.1, cap=2.0, random=no_jitter)  # of reading the journal, until it succeeds
UNKNOWN: Final = Term(-1, "")  # of an owner whose claim is no longer in the journal
AWAY: Final = "Kafka does not answer: {}; reads go on, and writes will when it answers again"
FENCED: Final = "another broker owns the journal now (term {}); this one takes no writes"
LEFT_BEHIND: Final = "another broker owns the journal now, and has for long; this one takes no writes"


@dataclass(frozen=True, slots=True)
class CommitterSettings:
    heartbeat_seconds: float = 1.0  # 0: none
    unknown_after_seconds: float = 2.0  # of doubt, after which waiting clients are told that the outcome is unknown
    checkpoint_seconds: float = 5.0
    upkeep_seconds: float = 5.0  # 0: none; see `upkeep.py`
    poll_seconds: float = 0.1  # maximum wait for delivery reports before the timers are checked


@dataclass(slots=True, eq=False)
class InFlightRecord:
    """A record without a delivery report. A heartbeat has no group."""

    stamp: Stamp
    group: PendingGroup | None
    size: int
    settled: bool = False  # its outcome was found in the journal: a later report is ignored


@dataclass(slots=True)
class ReadBack:
    """The outcome of the records without a report, from reading the journal."""

    view: JournalView
    counted: int  # last group of the term that counts
    records: dict[int, JournalRecord] = field(default_factory=dict)  # groups of the term that count, by number
    producer: JournalProducer | None = None  # of a new term


class KafkaCommitter:
    """See `penstock.log.committer.Committer`. Call `begin` when the journal is owned; nothing is appended before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: CommitterSettings | None = None,
        *,
        journal_id: str = "",
        checkpoint: Callable[[JournalView, bytes, Sequence[Landmark]], object] = lambda *_: None,
        upkeep: Callable[[Sequence[Landmark], int], None] = lambda *_: None,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`journal_id` identifies the journal. `checkpoint` stores the progress of the segments, which have been
        synced, and its term. `upkeep`: see `Upkeep.run`. `on_lost` is called on the loop, when the log accepts no more
        writes until a restart."""
        self._loop = loop
        self._settings = settings or CommitterSettings()
        self._journal_id = journal_id
        self._checkpoint = checkpoint
        self._upkeep = upkeep
        self._upkeeper: Worker | None = None
        self._at_upkeep = False
        self._on_lost = on_lost
        self._engine: ReplicatedEngine | None = None
        self._journal: Journal | None = None
        self._producer: JournalProducer | None = None
        self._claim = b""
        self._claims: set[str] = set()  # owner names of terms that were claimed, perhaps successfully
        self._lock = threading.Lock()  # protects the following
        self._view = JournalView()  # the journal up to the last report, all of which is in the segments
        self._landmarks: list[Landmark] = []
        self._sent: deque[InFlightRecord] = deque()
        self._bytes_sent = 0
        self._doubt = ""  # the reason why nothing may be acknowledged before the journal is read
        self._written: deque[tuple[PendingGroup, Exception | None]] = deque()  # to be completed
        self._writing: PendingGroup | None = None  # to the segments
        self._completing = False  # a call of `_complete` is scheduled
        # Used on the loop only:
        self._scheduled = self._settling = self._abandoned = self._stopped = False
        self._lost = False
        self._read_back: ReadBack | None = None
        self._background = Worker("penstock-background")
        self._answers = threading.Thread(target=self._hear, name="penstock-kafka", daemon=True)
        self._last_sent = self._last_checkpoint = self._last_upkeep = time.monotonic()

    def attach(self, log: object) -> None:
        assert isinstance(log, ReplicatedEngine)
        self._engine = log

    def begin(
        self,
        journal: Journal,
        producer: JournalProducer,
        view: JournalView,
        claim: bytes,
        landmarks: Sequence[Landmark] = (),
    ) -> None:
        """Start as the owner of the current term, with everything up to `view` in the segments. `landmarks` are
        theirs."""
        self._journal, self._producer, self._view, self._claim = journal, producer, view, claim
        self._landmarks = list(landmarks)
        self._name_owner(view)
        self._upkeeper = Worker("penstock-upkeep") if self._settings.upkeep_seconds else None
        self._answers.start()

    def _name_owner(self, view: JournalView) -> None:
        assert self._engine is not None
        self._engine.owner_term = (self._journal_id, view.term.number) if self._journal_id else None

    @property
    def term(self) -> Term:
        return self._view.term

    # -- on the loop

    def request(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._send_groups)

    def _send_groups(self) -> None:
        self._scheduled = False
        engine = self._engine
        assert engine is not None
        while engine.waiting or not self._sent:
            if self._doubt or self._lost or self._bytes_sent > IN_FLIGHT_BYTES:
                return
            if len(self._sent) >= IN_FLIGHT and not engine.has_full_group:
                return
            group = engine.seal()
            if group is None:
                return
            value = group_value(group)
            self._send(InFlightRecord(Stamp(Kind.GROUP, self._view.term, group.number), group, len(value)), value)

    def _send(self, sent: InFlightRecord, value: bytes) -> None:
        """Send a record, in the order of the groups, on any thread."""
        with self._lock:
            producer = self._producer
            assert producer is not None
            if sent.group is None and (self._doubt or self._sent):
                return  # an unnecessary heartbeat
            self._sent.append(sent)
            self._bytes_sent += sent.size
            self._last_sent = time.monotonic()
            if self._doubt:
                return  # not sent: it will not be found in the journal
            try:
                producer.send(sent.stamp, value, lambda offset, reason: self._stored(producer, sent, offset, reason))
            except LogUnavailable as error:
                self._doubt = str(error)
                self._schedule_completion()

    def _complete(self) -> None:
        """Complete what other threads have prepared."""
        self._completing = False
        engine = self._engine
        assert engine is not None
        self._complete_written(engine)
        if self._read_back is not None:
            read_back, self._read_back = self._read_back, None
            self._settling = False
            self._settle(read_back)
        in_doubt = self._doubt and self._writing is None and not self._lost and not self._stopped
        if in_doubt and not self._settling:
            self._settling = True
            threading.Thread(target=self._find_out, name="penstock-kafka-settle", daemon=True).start()
        if not self._stopped:
            self._send_groups()

    def _complete_written(self, engine: ReplicatedEngine) -> None:
        while self._written:
            group, error = self._written[0]  # under way until it is completed
            if not self._lost:
                if error is None:
                    engine.complete(group, None)
                else:
                    self._disk_failed(error)
            self._written.popleft()

    def _disk_failed(self, error: Exception) -> None:
        """Stop writing: the journal has the group, but the cache cannot store it. Only a restart can fix this."""
        self._lose(LogReadOnly(f"the log is read-only until the broker is started again: the cache failed: {error}"))

    def _lose(self, cause: LogError) -> None:
        assert self._engine is not None
        self._lost = True
        self._engine.abandon(cause, self._under_way())
        self._on_lost(str(cause))

    def _under_way(self) -> list[PendingGroup]:
        """The groups that were sent and are not completed: they are in the journal, or may be."""
        with self._lock:
            groups = [*(group for group, _ in self._written), self._writing, *(sent.group for sent in self._sent)]
        return [group for group in groups if group is not None]

    def _give_up_for_now(self) -> None:
        """Fail the waiting groups with an unknown outcome: Kafka has been unavailable for too long."""
        engine = self._engine
        assert engine is not None
        if self._doubt and self._read_back is None and not self._abandoned and not self._lost:
            self._complete_written(engine)
            self._abandoned = True
            engine.abandon(LogUnavailable(AWAY.format(self._doubt)), self._under_way())

    def _settle(self, read_back: ReadBack) -> None:
        """Settle each group without a report after the journal was read: it is stored, or never will be. Only if the
        part of the journal that would tell has been trimmed, nobody knows."""
        engine = self._engine
        assert engine is not None
        late = 0
        try:
            for sent in self._sent:
                if sent.group is None:
                    continue
                found = outcome(read_back.view, sent.stamp.term, read_back.counted, sent.stamp.group)
                if found is not GroupOutcome.STORED:
                    break
                if self._abandoned:
                    engine.ingest(decode(read_back.records[sent.stamp.group]))
                    late += 1
                else:
                    engine.write(sent.group)
                    engine.complete(sent.group, None)
        except (OSError, LogError) as error:
            self._disk_failed(error)
            return
        own = read_back.producer is not None or read_back.view.term == self._view.term
        trimmed = read_back.view.term == UNKNOWN
        unknown = self._under_way() if trimmed else []
        fenced = LEFT_BEHIND if trimmed else FENCED.format(read_back.view.term.number)
        cause: LogError = NotOwner(fenced)
        if own:
            cause = LogUnavailable(f"Kafka did not take it: {self._doubt}")
        with self._lock:
            for sent in self._sent:
                sent.settled = True
            self._sent.clear()
            self._bytes_sent = 0
            self._doubt = "" if own else fenced
            if read_back.producer is not None:
                self._producer = read_back.producer
            self._view = read_back.view
        if own:
            self._name_owner(read_back.view)
        else:
            self._lost = True
        if not own or engine.in_flight:
            engine.abandon(cause, unknown)  # other groups that are not in the journal never will be
        if late:
            engine.committed_late()
        if own:
            self._abandoned = False
            engine.resume()
            view = read_back.view
            logger.info("the journal on Kafka goes on at offset %d, in term %d", view.offset, view.term.number)
        else:
            self._on_lost(str(cause))

    # -- on the thread for delivery reports

    def _hear(self) -> None:
        while not self._stopped:
            producer = self._producer
            assert producer is not None
            try:
                producer.poll(self._settings.poll_seconds)
                self._by_the_clock(time.monotonic())
            except Exception:
                logger.exception("hearing Kafka's answers failed")
                time.sleep(self._settings.poll_seconds)

    def _by_the_clock(self, now: float) -> None:
        settings = self._settings
        if settings.heartbeat_seconds and now - self._last_sent >= settings.heartbeat_seconds and not self._lost:
            self._send(InFlightRecord(Stamp(Kind.HEARTBEAT, self._view.term), None, 0), b"")
        if now - self._last_checkpoint >= settings.checkpoint_seconds:
            self._last_checkpoint = now
            self._background.put(self._store_checkpoint)
        due = settings.upkeep_seconds and now - self._last_upkeep >= settings.upkeep_seconds
        if due and self._upkeeper is not None and not self._at_upkeep and not self._lost and not self._doubt:
            self._last_upkeep, self._at_upkeep = now, True
            self._upkeeper.put(self._keep_up)

    def _stored(self, producer: JournalProducer, sent: InFlightRecord, offset: int, reason: str) -> None:
        with self._lock:
            if self._doubt or sent.settled or producer is not self._producer:
                return  # it will be looked up in the journal
            behind = acknowledged(self._view.offset, offset) if offset >= 0 and self._sent[0] is sent else None
            if behind is None:
                self._doubt = reason or f"a record was stored at offset {offset} instead of {self._view.offset}"
                self._schedule_completion()
                return
            self._sent.popleft()
            self._bytes_sent -= sent.size
            group = sent.group
            if group is None:
                self._view = self._view._replace(offset=behind)
                return
            self._writing = group
        error: Exception | None = None
        engine = self._engine
        assert engine is not None
        try:
            engine.write(group)
        except Exception as failure:  # noqa: BLE001 - any error means that the cache failed, which the loop must handle
            error = failure
        with self._lock:
            if error is None and group.file.first_group == group.number:
                self._landmarks.append(landmark(self._view, group.position, self._claim))
            self._view = JournalView(behind, self._view.term, group.number)
            self._writing = None
            self._written.append((group, error))
            self._schedule_completion()

    def _schedule_completion(self) -> None:
        if not self._completing:
            self._completing = True
            with contextlib.suppress(RuntimeError):  # the loop may be closed: `drain` completes the rest
                self._loop.call_soon_threadsafe(self._complete)

    # -- on a separate thread

    def _find_out(self) -> None:
        """Read the journal, retrying until it succeeds."""
        began, failures, reported = time.monotonic(), 0, False
        while not self._stopped:
            try:
                self._read_back = self._look()
            except JournalTrimmed as error:
                # Other owners have written so much that the journal now begins after our last offset.
                logger.warning("the journal on Kafka has gone on without this broker: %s", error)
                self._read_back = ReadBack(self._view._replace(term=UNKNOWN), self._view.group)
                break
            except Exception as error:  # noqa: BLE001 - it is logged and retried
                logger.warning("the journal on Kafka cannot be read: %s", error)
            else:
                break
            if not reported and time.monotonic() - began >= self._settings.unknown_after_seconds:
                reported = True
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._give_up_for_now)
            time.sleep(RETRY.delay(failures))
            failures += 1
        with self._lock:
            self._schedule_completion()

    def _look(self) -> ReadBack:
        """Read the journal from the last known offset, and claim a new term if necessary. Raises LogError."""
        journal, start = self._journal, self._view
        assert journal is not None
        read_back = ReadBack(start, start.group)

        def found(view: JournalView, record: JournalRecord, verdict: Verdict) -> None:
            read_back.view = view
            if verdict is Verdict.COUNTS and record.stamp is not None and record.stamp.term == start.term:
                read_back.counted = record.stamp.group
                read_back.records[record.stamp.group] = record

        reader = journal.reader(start.offset)
        try:
            read_back.view = read_until(reader, start, journal.bounds()[1], found)
            last = max((sent.stamp.group for sent in self._sent), default=0)
            missing = last > read_back.counted or not self._all_answered()
            missing = missing and read_back.view.term == start.term
            # The claim that is quicker may be an earlier one of ours, which was given up and only late.
            while read_back.producer is None and (missing or read_back.view.term.owner in self._claims):
                missing = False
                owner = secrets.token_hex(8)
                self._claims.add(owner)
                read_back.view, read_back.producer = claim_term(
                    journal, reader, read_back.view, owner, self._claim, found
                )
            if read_back.producer is not None and self._producer is not None:
                self._producer.close()
        finally:
            reader.close()
        return read_back

    def _all_answered(self) -> bool:
        """Whether the producer is still usable: its records were stored, but at other offsets than expected."""
        return self._doubt.startswith("a record was stored")

    # -- background work and shutdown

    def run_in_background(self, work: Callable[[], None]) -> None:
        if self._stopped:
            work()
        else:
            self._background.put(work)

    def _store_checkpoint(self) -> None:
        engine = self._engine
        assert engine is not None
        with self._lock:
            view = self._view
            landmarks = self._landmarks = thinned(self._landmarks, engine.first_group)
        if not self._lost and engine.sync_segments():
            try:
                self._checkpoint(view, self._claim, landmarks)
            except OSError as error:
                logger.warning("a checkpoint could not be written: %s", error)

    def _keep_up(self) -> None:
        engine = self._engine
        assert engine is not None
        with self._lock:
            landmarks = list(self._landmarks)
        try:
            self._upkeep(landmarks, engine.first_group)
        except (LogError, OSError) as error:
            logger.warning("snapshots could not be kept on Kafka, or the journal not trimmed: %s", error)
        finally:
            self._at_upkeep = False

    def drain(self) -> None:
        engine = self._engine
        assert engine is not None
        if self._stopped:
            return
        if self._producer is not None:
            give_up = time.monotonic() + self._settings.unknown_after_seconds
            self._complete()
            while (self._under_way() or engine.waiting) and not self._lost and not self._abandoned:
                if time.monotonic() > give_up:
                    self._doubt = self._doubt or "the broker was stopped while groups were on their way"
                    self._give_up_for_now()
                    break
                time.sleep(0.001)
                self._complete()
            self._stopped = True
            self._answers.join()
            self._producer.close()
        self._stopped = True
        self._background.stop()
        if self._upkeeper is not None:
            self._upkeeper.put(None)  # its work in progress is not awaited: Kafka may be unavailable
        if self._producer is not None:
            self._store_checkpoint()
