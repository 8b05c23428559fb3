"""Copies a journal from files to Kafka and back, while no broker writes to it, and compares both.

A group keeps its number, position and time, and every byte of its entries, so records, offsets and state are identical.
An interrupted copy resumes where it stopped, and no broker uses an incomplete one: it is marked by a key of
`NAME.snapshots` on Kafka, and by the checkpoint and the file `COPY` in a data directory. A copy is complete after it
was compared.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from penstock.log import identity, segment, snapshots
from penstock.log.errors import LogError, LogUnavailable
from penstock.log.files import Files, replace
from penstock.log.kafka import checkpoint
from penstock.log.kafka.checkpoint import COPY, JournalSource, refuse_cache
from penstock.log.kafka.fencing import JournalView, Kind, Stamp, Verdict
from penstock.log.kafka.filling import ensure_filled
from penstock.log.kafka.journal import Journal, JournalProducer, encode_value
from penstock.log.kafka.landmarks import START, Landmark, landmark
from penstock.log.kafka.replica import claim_term, decode, read_until, records_until
from penstock.log.kafka.snapshot_topic import Content, Copying, SnapshotTopic
from penstock.log.recovery import ForeignGroup, foreign_group
from penstock.log.scan import Scan
from penstock.log.segment import Segment, journal_path
from penstock.typed_decoding import decode_json

IN_FLIGHT: Final = 5  # groups: the maximum of an idempotent producer's requests in flight
IN_FLIGHT_BYTES: Final = 32 << 20
STEP_SECONDS: Final = 0.25

Progress = Callable[[str, int, int], None]
"""Called with a description of the step, the amount done and the total."""


def nobody_sees(_what: str, _done: int, _all: int) -> None:
    pass


class CopyRefused(LogError):
    """The two cannot be copied, or differ. The source was not changed."""


class Compared(NamedTuple):
    """The extent of a source and a target that are identical."""

    first_group: int
    last_group: int
    records: int


# -- reading


def file_groups(files: Files, after: int = 0) -> Iterator[ForeignGroup]:
    """The groups of a data directory after a number, as a broker would find them. Raises LogDamaged."""
    sequences = segment.sequences(files)
    for sequence in sequences:
        file = Segment.open(files, sequence, writable=False)
        with contextlib.closing(file.file):
            following = _opened_next(files, sequence, sequences[-1])
            if following is not None and following.first_group <= after + 1:
                continue
            scan = Scan(file)
            for group in scan.groups():
                if group.number > after:
                    yield foreign_group(group.data, file.salt)
            _check_end(scan, following)


def _opened_next(files: Files, sequence: int, last: int) -> Segment | None:
    if sequence == last:
        return None
    try:
        following = Segment.open(files, sequence + 1, writable=False)
    except FileNotFoundError:
        raise CopyRefused(f"{journal_path(sequence + 1)} is missing: see `penstock log verify`") from None
    following.file.close()
    return following


def _check_end(scan: Scan, following: Segment | None) -> None:
    """Check that after the last group there is at most one that was being written when the broker ended."""
    if following is None:
        if scan.ended or scan.proof_of_damage() is not None:
            raise scan.damaged(scan.broken or "the file ends early")
    elif (scan.next_group, scan.next_position) != (following.first_group, following.first_position):
        raise scan.damaged(scan.broken or "the file ends early")


def journal_groups(journal: Journal, start: JournalView) -> Iterator[ForeignGroup]:
    """The groups of a journal, starting at a landmark."""
    reader = journal.reader(start.offset)
    try:
        for _, record, verdict in records_until(reader, start, journal.bounds()[1]):
            if verdict is Verdict.COUNTS:
                yield decode(record)
    finally:
        reader.close()


def refuse_active(journal: Journal, seconds: float) -> None:
    """Raise CopyRefused if anything is written within that time: a live owner writes once a second."""
    _, end = journal.bounds()
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(min(STEP_SECONDS, seconds))
        if journal.bounds()[1] != end:
            raise CopyRefused("a broker owns the journal on Kafka and writes to it: stop all brokers of it first")


# -- comparing


def compare(files: Files, journal: Journal, cell: int, progress: Progress = nobody_sees) -> Compared:
    """Compare every record and event of a data directory with those of a journal, from the first group that both have.
    Raises CopyRefused if they differ."""
    content = SnapshotTopic(journal.snapshots(), cell).read()
    first = _first_segment(files).first_group
    start = _start(content, journal.bounds()[0], first)
    here, there = file_groups(files), journal_groups(journal, start.view)
    last, records = 0, 0
    begins = max(first, start.group + 1)
    end = _last_group(files)
    for ours, theirs in zip_longest(_from(begins, here), _from(begins, there)):
        if ours is None or theirs is None:
            where, other = ("Kafka", ours) if theirs is None else ("the data directory", theirs)
            raise CopyRefused(f"commit group {other.number} is not in {where}")
        if not same(ours, theirs):
            raise CopyRefused(f"commit group {ours.number} is not the same in the data directory and on Kafka")
        last = ours.number
        records += sum(batch.count for batch in ours.batches)
        progress("comparing", last - begins + 1, end - begins + 1)
    for group in snapshots.groups(files)[-1:]:
        found = content.snapshots.get(group)
        if found is not None and found != snapshots.read_file(files, group):
            raise CopyRefused(f"the snapshot of commit group {group} is not the same in both")
    return Compared(begins, last, records)


def _from(number: int, groups: Iterator[ForeignGroup]) -> Iterator[ForeignGroup]:
    return (group for group in groups if group.number >= number)


def same(one: ForeignGroup, other: ForeignGroup) -> bool:
    return (
        one[:4] == other[:4]  # number, position, time, count of records and events
        and one.events == other.events
        and [batch.data for batch in one.batches] == [batch.data for batch in other.batches]
    )


def _first_segment(files: Files) -> Segment:
    if not segment.exist(files):
        raise CopyRefused("the data directory has no journal")
    found = Segment.open(files, segment.sequences(files)[0], writable=False)
    found.file.close()
    return found


def _last_group(files: Files) -> int:
    file = Segment.open(files, segment.sequences(files)[-1], writable=False)
    with contextlib.closing(file.file):
        scan = Scan(file)
        deque(scan.groups(), 0)
        return scan.next_group - 1


def _start(content: Content, first_offset: int, first_group: int) -> Landmark:
    """The landmark from which to read the journal so that it includes a data directory's first group, if possible."""
    usable = [mark for mark in content.landmarks if mark.offset >= first_offset]
    before = [mark for mark in usable if mark.group < first_group]
    if before:
        return max(before)
    if not first_offset:
        return START
    if not usable:
        raise CopyRefused(f"the journal on Kafka begins at offset {first_offset}, and nothing says how to read it")
    return min(usable)


# -- to Kafka


def reserve_journal(files: Files, text: str, journal: Journal, cell: int) -> None:
    """Mark the journal as a copy of the data directory, called `text` in messages, or check the existing mark: from
    then on no broker uses it. Raises LogError."""
    refuse_cache(files)
    first = _first_segment(files)
    topic = SnapshotTopic(journal.snapshots(), cell)
    content = topic.read()
    me = _copying(files, text, first)
    if content.copying is None and (journal.bounds()[1] or content.snapshots):
        raise CopyRefused("the journal on Kafka is in use, or was: copy to another NAME")
    if content.copying is not None and content.copying.source != me.source:
        raise CopyRefused(f"the journal on Kafka is a part of a copy of {content.copying.text}: copy to another NAME")
    if content.copying is None:
        topic.put_copying(me)


def _copying(files: Files, text: str, first: Segment) -> Copying:
    return Copying(identity.read(files) or f"{first.salt:016x}", text)


def to_journal(
    files: Files, text: str, journal: Journal, cell: int, largest: int, progress: Progress = nobody_sees
) -> Compared:
    """Copy the journal of the data directory, called `text` in messages, to a journal on Kafka that is empty, or has a
    part of this copy. Blocks; raises LogError or OSError."""
    reserve_journal(files, text, journal, cell)
    first = _first_segment(files)
    topic = SnapshotTopic(journal.snapshots(), cell)
    content = topic.read()
    view, producer = _claim(journal, max(content.landmarks, default=START).view, text)
    if view.group < first.first_group - 1:
        mark = landmark(view._replace(group=first.first_group - 1), first.first_position)
        topic.put_landmark(mark)
        view = mark.view
    try:
        _Sending(producer, view, largest).send_all(files, progress)
    finally:
        producer.close()
    _put_snapshots(files, topic, content, first.first_group)
    compared = compare(files, journal, cell, progress)
    topic.put_copying(None)
    return compared


def _claim(journal: Journal, start: JournalView, text: str) -> tuple[JournalView, JournalProducer]:
    """Claim the journal, so that concurrent writers are detected."""
    reader = journal.reader(start.offset)
    try:
        end = journal.bounds()[1]
        view = read_until(reader, start, end, lambda _view, _record, _verdict: None)
        value = msgspec.json.encode({"host": f"penstock storage copy of {text}"})
        view, producer = claim_term(
            journal, reader, view, secrets.token_hex(8), value, lambda _view, _record, _verdict: None
        )
    finally:
        reader.close()
    if producer is None or view.offset != end + 1:
        if producer is not None:
            producer.close()
        raise CopyRefused("somebody else writes to the journal on Kafka: stop them, and run this again")
    return view, producer


class _Sending:
    """Groups in flight to Kafka, each of which must be stored at the expected offset."""

    def __init__(self, producer: JournalProducer, view: JournalView, largest: int) -> None:
        self._producer = producer
        self._view = view
        self._largest = largest
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._failure = ""

    def send_all(self, files: Files, progress: Progress) -> None:
        last, begins = _last_group(files), self._view.group
        for group in file_groups(files, begins):
            self._send(group)
            progress("copying", group.number - begins, last - begins)
        self._wait(0, 0)

    def _send(self, group: ForeignGroup) -> None:
        entries = [*group.events, *(batch.data for batch in group.batches)]
        value = encode_value(group.number, group.position, group.timestamp, group.advance, entries)
        if len(value) > self._largest:
            raise CopyRefused(
                f"commit group {group.number} has {len(value)} bytes, and a record of the topic may have "
                f"{self._largest}: raise log.entry_bytes, and max.message.bytes of the topic"
            )
        self._wait(IN_FLIGHT - 1, IN_FLIGHT_BYTES)
        self._sizes.append(len(value))
        self._bytes += len(value)
        self._producer.send(Stamp(Kind.GROUP, self._view.term, group.number), value, self._stored)

    def _wait(self, groups: int, size: int) -> None:
        """Wait until no more than these are in flight. The client gives up on each after its timeout."""
        while len(self._sizes) > groups or self._bytes > size:
            self._producer.poll(STEP_SECONDS)
            if self._failure:
                raise LogUnavailable(f"{self._failure}: run the same command again, and it goes on from here")

    def _stored(self, offset: int, reason: str) -> None:
        if offset < 0:
            self._failure = self._failure or f"Kafka did not take a commit group: {reason}"
        elif offset != self._view.offset:
            self._failure = self._failure or "somebody else writes to the journal on Kafka"
        self._view = self._view._replace(offset=self._view.offset + 1)
        self._bytes -= self._sizes.popleft()


def _put_snapshots(files: Files, topic: SnapshotTopic, content: Content, first_group: int) -> None:
    whole = {group: snapshots.read_file(files, group) for group in snapshots.groups(files)}
    if first_group > 1 and not any(data for group, data in whole.items() if group >= first_group - 1):
        raise CopyRefused("the data directory has no whole snapshot: see `penstock log verify`")
    for group, data in whole.items():
        if data is not None and content.snapshots.get(group) != data:
            topic.put_snapshot(group, data)


# -- to files


def reserve_files(source: JournalSource, files: Files) -> None:
    """Mark the data directory as a copy of a journal, or check the existing mark. Raises CopyRefused or OSError."""
    files.make_directory("")
    names = files.list("")
    if COPY not in names:
        if segment.exist(files) or identity.traces(files) or checkpoint.PATH in names:
            raise CopyRefused("the data directory is in use, or was: copy to a new one")
        replace(files, COPY, msgspec.json.encode(source))
        files.sync_directory("")
    elif _marked(files) != source:
        raise CopyRefused("the data directory has a part of a copy of another journal: copy to a new one")


def to_files(
    journal: Journal, source: JournalSource, files: Files, file_bytes: int, now: int, progress: Progress = nobody_sees
) -> Compared:
    """Copy a journal on Kafka to a data directory that is empty, or has a part of this copy. Blocks; raises LogError or
    OSError."""
    reserve_files(source, files)
    if checkpoint.PATH in files.list("") or not segment.exist(files):
        _fill(journal, source, files, file_bytes, now, progress)
    compared = compare(files, journal, source.cell, progress)
    for name in (checkpoint.PATH, COPY):
        if name in files.list(""):
            files.remove(name)
            files.sync_directory("")
    return compared


def _fill(journal: Journal, source: JournalSource, files: Files, file_bytes: int, now: int, progress: Progress) -> None:
    found = checkpoint.load(files)
    if found is not None and segment.exist(files):  # incomplete: continue to the current end of the journal
        checkpoint.store(files, found.source, found.view, found.owner.encode(), found.landmarks, filling=True)
    end = journal.bounds()[1]
    if not end:
        raise CopyRefused("the journal on Kafka is empty")
    ensure_filled(journal, source, files, file_bytes, now, lambda done, _: progress("copying", done, end))


def _marked(files: Files) -> JournalSource | None:
    with contextlib.closing(files.open(COPY, writable=False)) as file:
        try:
            return decode_json(file.read(0, file.size()), JournalSource)
        except msgspec.MsgspecError:
            return None
