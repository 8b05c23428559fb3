"""The formats that are read from the disk: batches, commit groups, indexes, snapshots, staged columns, state, and whole
segments in recovery.

What has a checksum is read twice: as it is, when damage must be told as damage; and with its checksum put right, which
no disk does by accident. Then a reader may stumble over nonsense, but only as Python does over wrong data.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec
from tests.broker.broker_fixture import START, BrokerFixture
from tests.crash.simdisk import SimDisk
from tests.fuzz.targets.target import Target, same
from tests.log.harness import columns_of

from penstock.broker.errors import BrokerError, StateUnreadable
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.state import events
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.log import batch, columns, group_format, index, open_batch, snapshots
from penstock.log.checksum import checksum_of, crc32c
from penstock.log.committer import InlineCommitter
from penstock.log.engine import PartitionId, Records, partition_id
from penstock.log.errors import LogError
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.segment import FIRST_GROUP_AT, journal_path, sequences

_NONSENSE: Final = (ValueError, IndexError, struct.error, OverflowError, KeyError, TypeError)
"""The errors that wrong data under a right checksum may raise."""

_SALT: Final = 0x1234_5678_9ABC_DEF0
_PARTITION: Final = partition_id(1, 0)


@contextlib.contextmanager
def _unless_forged(forged: bool) -> Iterator[None]:
    try:
        yield
    except _NONSENSE:
        if not forged:
            raise


def _sealed(data: bytes) -> bytes:
    """With its own checksum at its end."""
    return data[:-4] + checksum_of((data[:-4],))


# -- batches, and columns that become some


def read_batch(data: bytes) -> None:
    """Behind a byte that says whether to put the checksum right."""
    forged, content = data[:1] > b"\x7f", data[1:]
    try:
        found = batch.check(_sealed(content) if forged else content)
    except batch.BatchDamaged:
        return
    with _unless_forged(forged):
        _read_all(found)


def _read_all(found: batch.Batch) -> None:
    whole = found.slice(found.base_offset, found.end_offset, 1 << 30, 1 << 30)
    count = len(whole)
    for column in (whole.values(), whole.keys(), whole.headers(), whole.timestamps(), whole.expires()):
        same(len(column), count)
    part = found.slice(found.base_offset, found.end_offset, 8, 3)
    assert 1 <= len(part) <= 3 or found.count == 0
    same(part.values(), whole.values()[: len(part)])


def read_columns(data: bytes) -> None:
    forged, content = data[:1] > b"\x7f", data[1:]
    try:
        columns.encoded_length(content[: columns.PREFIX_SIZE].ljust(columns.PREFIX_SIZE, b"\0"))
        found = columns.decode(_sealed(content) if forged else content)
    except batch.BatchDamaged:
        return
    same(columns.decode(found.encode()), found)
    with _unless_forged(forged):
        built = found.build(int(_PARTITION), 5, 9, bytes(8 * found.count), 0, 0)
        if found.count:
            _read_all(batch.check(built))


# -- groups


def read_group(data: bytes) -> None:
    forged, content = data[:1] > b"\x7f", data[1:]
    if len(content) < group_format.HEADER_SIZE:
        return
    if forged:
        content = _sealed_group(content)
    try:
        header = group_format.decode_header(content, 0, _SALT)
        if header.length > len(content):
            return
        places = group_format.walk(content[: header.length], header)
    except group_format.GroupDamaged:
        return
    with _unless_forged(forged):
        for is_batch, start, end in places:
            assert group_format.HEADER_SIZE <= start < end <= header.length
            if is_batch:
                with contextlib.suppress(batch.BatchDamaged):
                    batch.check(content[start:end])
                batch.outline(content, start)
            else:
                group_format.decode_event(content[start:end])


def _sealed_group(data: bytes) -> bytes:
    """The entries with their checksums put right, and a header that fits them."""
    body, entries = bytearray(data), []
    at = group_format.HEADER_SIZE
    while len(body) - at >= 16:
        length = int.from_bytes(body[at + 4 : at + 8], "little")
        if length < 16 or at + length > len(body):
            break
        body[at : at + length] = entry = _sealed(bytes(body[at : at + length]))
        entries.append(entry)
        at += length
    number, synced, position, timestamp = struct.unpack_from("<QQQq", data, 16)
    checksum = group_format.entries_checksum(entries)
    header = group_format.GroupHeader(number, synced, position, timestamp, at, len(entries), checksum, 0, 1)
    return group_format.encode_header(_SALT, header) + bytes(body[group_format.HEADER_SIZE : at])


# -- indexes and snapshots


def read_index(data: bytes) -> None:
    forged, content = data[:1] > b"\x7f", data[1:]
    if forged and len(content) > 8:
        content = content[:4] + crc32c(content[8:]).to_bytes(4, "little") + content[8:]
    with _unless_forged(forged):
        try:
            found = index.FileIndex.decode(content, lambda at, size: content[at : at + size])
        except index.IndexDamaged:
            return
        for partition in found.partitions():
            entries = found.partition(partition)
            assert entries is not None
            for place, _ in zip(entries.from_offset(0), range(100), strict=False):
                assert place is not None


def read_snapshot(data: bytes) -> None:
    forged, content = data[:1] > b"\x7f", data[1:]
    if forged and len(content) > 16:
        content = content[:4] + struct.pack("<IQ", crc32c(content[16:]), len(content) - 16) + content[16:]
    disk = SimDisk()
    disk.make_directory(snapshots.DIRECTORY)
    disk.create(snapshots.snapshot_path(7), 0).write(0, content)
    try:
        found = snapshots.load(disk, 7)
    except msgspec.MsgspecError:
        assert forged
        return
    if found is not None:
        same(snapshots.encode(found)[:4], content[:4])
        with contextlib.suppress(StateUnreadable, *_NONSENSE):
            decode_snapshot(found.core)


# -- state


def read_event(data: bytes) -> None:
    try:
        found = events.decode(data)
    except StateUnreadable:
        return
    same(events.encode(events.decode(events.encode(found))), events.encode(found))


def read_state(data: bytes) -> None:
    """Events that contradict each other are nonsense; what is no snapshot is told as such."""
    try:
        found = decode_snapshot(data)
    except StateUnreadable:
        return
    except (KeyError, ValueError):
        return
    same(encode_snapshot(decode_snapshot(encode_snapshot(found))), encode_snapshot(found))


# -- recovery


class _Written:
    """A log on a disk, and all records that are in it."""

    def __init__(self) -> None:
        fixture = BrokerFixture(LogSettings(file_bytes=32 << 10))
        self.settings = fixture.settings
        broker = fixture.broker
        broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
        for number in range(24):
            values = [b"value %d of %d" % (each, number) for each in range(number % 4 + 1)]
            broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", number % 2, values)
            if number % 5 == 0:
                broker.groups.commit(ANONYMOUS, DEFAULT_SCOPE, "g", "t", 0, 1)
            if number % 3 == 0:
                fixture.commit()
        fixture.commit()
        self.disk = fixture.disk.kill()
        self.path = journal_path(sequences(self.disk)[-1])
        self.content = self.disk.content(self.path)
        self.end = len(self.content.rstrip(b"\0"))
        (topic,) = broker.state_log.state.topics_by_id
        self.partitions = [partition_id(topic, number) for number in range(2)]
        self.records = {each: _values(fixture.engine, each) for each in self.partitions}


def _values(engine: FileEngine, partition: PartitionId) -> list[bytes]:
    start, end = engine.bounds(partition)
    found: list[bytes] = []
    while start + len(found) < end:
        for part in engine.read(partition, start + len(found), 1 << 30, 1 << 30).run():
            found += part.values()
    return found


@cache
def _written() -> _Written:
    return _Written()


def recovery(data: bytes) -> None:
    """Whatever happened to the last segment, the log opens with a part of what was written, from its beginning, or
    says what is wrong. The input is changes: where (u16), how many bytes (u8), and these."""
    written = _written()
    content = bytearray(written.content)
    at = 0
    while at + 3 <= len(data):
        place, size = int.from_bytes(data[at : at + 2], "big"), data[at + 2]
        place %= written.end + 256
        change = data[at + 3 : at + 3 + size]
        content[place : place + len(change)] = change
        at += 3 + max(size, 1)
    disk = written.disk.copy()
    disk.replace(written.path, bytes(content))
    try:
        engine = FileEngine(disk, written.settings, committer=InlineCommitter(), clock=lambda: START)
        recovered = engine.recover()
        for event in recovered.events:
            events.decode(event)
    except (LogError, BrokerError):
        return
    for partition in written.partitions:
        try:
            found = _values(engine, partition)
        except LogError:
            continue
        same(found, written.records[partition][: len(found)])


# -- corpora


def _both(found: list[bytes]) -> list[bytes]:
    return [choice + data for data in found for choice in (b"\0", b"\xff")]


_RECORDS: Final = (
    Records(_PARTITION, [b"only"]),
    Records(_PARTITION, [b"a", b"", b"ccc"], keys=[b"k", None, b""]),
    Records(_PARTITION, [b"a", b"b"], headers=[(("name", b"value"),), ()], expires=[0, 5]),
    Records(_PARTITION, [b"x" * 9] * 3, keys=[b"k"] * 3, headers=[(("a", b""), ("b", b"2"))] * 3, expires=[1, 2, 3]),
)


def _batch(records: Records) -> bytes:
    pile = open_batch.OpenBatch(int(_PARTITION), 5)
    pile.extend(records.values, records.keys, records.headers, records.expires, START)
    return pile.build(9)


def _groups() -> list[bytes]:
    event = group_format.encode_event(group_format.CORE, b"state")
    found = []
    for entries in ([_batch(_RECORDS[0])], [event, _batch(_RECORDS[3])], [event, event], [*map(_batch, _RECORDS)]):
        length = group_format.HEADER_SIZE + sum(map(len, entries))
        head = group_format.encode_group_header(_SALT, 3, 2, 9, START, length, entries, 4)
        found.append(b"".join((head, *entries)))
    return found


def _indexes() -> list[bytes]:
    made = index.FileIndex()
    for number in range(6):
        made.add(number % 2, 10 * number, 10, FIRST_GROUP_AT + 100 * number, 100, START + number)
    return [index.FileIndex().encode(), made.encode()]


def _snapshots() -> list[bytes]:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
    fixture.broker.groups.commit(ANONYMOUS, DEFAULT_SCOPE, "g", "t", 0, 1)
    fixture.commit()
    core = encode_snapshot(fixture.broker.state_log.state)
    empty = snapshots.Snapshot(7, {}, [], [], b"")
    return [snapshots.encode(empty), snapshots.encode(snapshots.Snapshot(7, {1: (0, 2)}, [3], [], core))]


def _states() -> list[bytes]:
    return [snapshot[16:] for snapshot in _snapshots()] + [
        msgspec.msgpack.decode(snapshot[16:], type=snapshots.Snapshot).core for snapshot in _snapshots()
    ]


def _events() -> list[bytes]:
    written = _written()
    engine = FileEngine(written.disk.copy(), written.settings, committer=InlineCommitter(), clock=lambda: START)
    return list(engine.recover().events)


def _changes() -> list[bytes]:
    places = (0, 8, 16, FIRST_GROUP_AT, FIRST_GROUP_AT + 8, FIRST_GROUP_AT + 72, FIRST_GROUP_AT + 200)
    return [b"", *[struct.pack(">HB", place, 4) + b"\xff\0\1\x80" for place in places]]


TARGETS: Final = (
    Target("log.batch", read_batch, lambda: _both([_batch(each) for each in _RECORDS])),
    Target("log.columns", read_columns, lambda: _both([columns_of(each).encode() for each in _RECORDS])),
    Target("log.group", read_group, lambda: _both(_groups())),
    Target("log.index", read_index, lambda: _both(_indexes())),
    Target("log.snapshot", read_snapshot, lambda: _both(_snapshots())),
    Target("log.event", read_event, _events),
    Target("log.state", read_state, _states),
    Target("log.recovery", recovery, _changes, quick=500),
)
