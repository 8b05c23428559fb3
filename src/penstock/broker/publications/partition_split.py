"""Splits Arrow record batches by topic and partition, column-wise.

The partition of a record is defined by `penstock.broker.produce.partitioning`; this module computes the same for all
rows of a record batch at once. Only the Flight worker imports it: it needs Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.errors import LimitReached, PartitionNotFound, RecordTooLarge
from penstock.broker.limits import HEADER_BYTES
from penstock.broker.produce.partitioning import ANY, LONG_KEY, fnv1a
from penstock.broker.publications.staging import CHECKED_RECORDS, CHUNK_BYTES
from penstock.log.arrow import HEADER_LIST, UnusableColumns, columns_of
from penstock.log.columns import Columns

ROWS: Final = 65_536  # rows that are split together
PILE_BYTES: Final = 8 << 20  # and their approximate bytes
HELD_BYTES: Final = 64 << 20  # of all rows buffered until a chunk of their partition is full
RECORD_OVERHEAD: Final = 16  # bytes per record, in addition to its own
COLUMNS: Final = ("value", "key", "headers", "topic", "partition")

_BASIS: Final = np.uint32(0x811C9DC5)
_PRIME: Final = np.uint32(0x01000193)

Numbers = npt.NDArray[Any]


class TargetTopic(NamedTuple):
    """A destination topic."""

    id: int
    name: str
    partitions: int
    checked: bool  # against a schema


class SplitLimits(NamedTuple):
    record_bytes: int
    topics: int
    chunk_bytes: int = CHUNK_BYTES


def hashes(keys: pa.Array) -> Numbers:
    """`fnv1a` of each key, computed for one byte position of all keys at a time. Null counts as empty."""
    _, offsets, data = keys.buffers()
    places = np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset).astype(np.int64)
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    starts, lengths = places[:-1].copy(), np.diff(places)
    if keys.null_count:
        lengths = np.where(keys.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    hashed = np.full(len(keys), _BASIS, np.uint32)
    long = np.flatnonzero(lengths > LONG_KEY)
    if len(long):
        hashed[long] = [fnv1a(content[starts[i] : starts[i] + lengths[i]].tobytes()) for i in long]
        lengths = np.where(lengths > LONG_KEY, 0, lengths)
    shortest = int(lengths.min()) if len(keys) else 0
    for _ in range(shortest):
        hashed ^= content[starts]
        hashed *= _PRIME
        starts += 1
    starts -= shortest
    rows = np.flatnonzero(lengths > shortest)
    position = shortest
    while len(rows):
        hashed[rows] = (hashed[rows] ^ content[starts[rows] + position]) * _PRIME
        position += 1
        rows = rows[lengths[rows] > position]
    return hashed


def choose(
    topic: str, partitions: int, keys: pa.Array | None, wanted: Numbers | None, turn: int, count: int
) -> tuple[Numbers, int]:
    """A partition for each of `count` rows, and the next round-robin partition: like `Partitioner.choose`. `wanted` is
    `ANY` for rows without a requested partition. Raises PartitionNotFound.
    """
    if wanted is not None and count:
        if (highest := int(wanted.max())) >= partitions:
            raise PartitionNotFound(topic, highest, partitions)
        if (lowest := int(wanted.min())) < ANY:
            raise PartitionNotFound(topic, lowest, partitions)
    if partitions == 1:
        return np.zeros(count, np.int32), turn
    chosen = np.full(count, -1, np.int32) if wanted is None else wanted.astype(np.int32)
    if keys is not None:
        keyed = (_lengths(keys) > 0) & (chosen < 0)
        if keyed.all():
            return (hashes(keys) % np.uint32(partitions)).astype(np.int32), turn
        if keyed.any():
            chosen[keyed] = hashes(keys.filter(pa.array(keyed))) % np.uint32(partitions)
    free = np.flatnonzero(chosen < 0)
    chosen[free] = (turn + np.arange(len(free))) % partitions
    return chosen, (turn + len(free)) % partitions


class PartitionSplitter:
    """Splits the record batches of one stream. `lookup` finds topics by name; `emit` is called with chunks of a single
    partition.

    Raises UnusableColumns, RecordTooLarge, PartitionNotFound and whatever `lookup` raises.
    """

    def __init__(
        self,
        schema: pa.Schema,
        topic: str | None,
        limits: SplitLimits,
        lookup: Callable[[Sequence[str]], Sequence[TargetTopic]],
        emit: Callable[[TargetTopic, int, Columns], None],
        turn: Callable[[int], int] = lambda _partitions: 0,
    ) -> None:
        """If `topic` is given, all rows go there, regardless of their `topic` column. `turn` returns the first
        round-robin partition for rows without a key, given the number of partitions.
        """
        _check_schema(schema, topic)
        self._kept = [name for name in ("key", "value", "headers") if name in schema.names]
        self._topic = topic
        self._limits = limits
        self._lookup = lookup
        self._emit = emit
        self._turn = turn
        self._targets: dict[str, TargetTopic] = {}
        self._turns: dict[int, int] = {}
        self._pile: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._waiting: dict[tuple[TargetTopic, int], _Waiting] = {}
        self._held = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        try:
            batch.validate(full=True)  # untrusted input, and the code below relies on its offsets
        except pa.ArrowInvalid as error:
            raise UnusableColumns(f"not a valid record batch: {error}") from error
        for at in range(0, len(batch), ROWS):
            part = batch.slice(at, ROWS)
            self._pile.append(part)
            self._rows += len(part)
            self._bytes += part.nbytes
            if self._rows >= ROWS or self._bytes >= PILE_BYTES:
                self._spread()

    def finish(self) -> None:
        """Emit everything that is still buffered."""
        self._spread()
        for place in list(self._waiting):
            self._flush(place)

    def _spread(self) -> None:
        if not self._pile:
            return
        batch = self._pile[0] if len(self._pile) == 1 else pa.concat_batches(self._pile)
        self._pile, self._rows, self._bytes = [], 0, 0
        columns = {name: _plain(batch.column(name), name) for name in batch.schema.names if name in COLUMNS}
        sizes = _sizes(columns)
        if (largest := int(sizes.max())) > self._limits.record_bytes:
            raise RecordTooLarge(largest, self._limits.record_bytes)
        places, codes = self._places(columns, len(batch))
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._kept], names=self._kept)
        sizes += RECORD_OVERHEAD
        if len(places) > 1:
            kind = np.uint8 if len(places) <= 256 else np.uint16 if len(places) <= 65_536 else np.uint32
            order = np.argsort(codes.astype(kind), kind="stable")
            rows, sizes, codes = rows.take(pa.array(order)), sizes[order], codes[order]
        ends = np.searchsorted(codes, np.arange(len(places)), side="right").tolist() if len(places) > 1 else [len(rows)]
        first = 0
        for place, end in zip(places, ends, strict=True):
            if end > first:
                self._keep(place, rows.slice(first, end - first), sizes[first:end])
            first = end

    def _places(self, columns: dict[str, pa.Array], count: int) -> tuple[list[tuple[TargetTopic, int]], Numbers]:
        """The partitions of topics, and for each row the index of its partition among them."""
        keys = columns.get("key")
        wanted = None
        if "partition" in columns and columns["partition"].null_count < count:
            wanted = pc.fill_null(columns["partition"], -1).to_numpy(zero_copy_only=False)
        places: list[tuple[TargetTopic, int]] = []
        codes = np.zeros(count, np.int32)
        for target, members in self._by_topic(columns, count):
            base = len(places)
            places += [(target, number) for number in range(target.partitions)]
            own_keys = keys if members is None or keys is None else keys.take(pa.array(members))
            own_wanted = wanted if members is None or wanted is None else wanted[members]
            number = count if members is None else len(members)
            turn = self._turns.setdefault(target.id, self._turn(target.partitions))
            chosen, self._turns[target.id] = choose(target.name, target.partitions, own_keys, own_wanted, turn, number)
            codes[slice(None) if members is None else members] = chosen + base
        return places, codes

    def _by_topic(self, columns: dict[str, pa.Array], count: int) -> list[tuple[TargetTopic, Numbers | None]]:
        """The topics of these rows, and the rows of each (None: all)."""
        if self._topic is not None:
            return [(self._find([self._topic])[0], None)]
        column = columns["topic"]
        if column.null_count:
            raise UnusableColumns("a record without a topic: fill the column `topic`, or name one topic for all")
        encoded = column.dictionary_encode()
        targets = self._find(encoded.dictionary.to_pylist())
        if len(targets) == 1:
            return [(targets[0], None)]
        numbers = encoded.indices.to_numpy()
        assert len(numbers) == count
        return [(target, np.flatnonzero(numbers == number)) for number, target in enumerate(targets)]

    def _find(self, names: list[str]) -> list[TargetTopic]:
        missing = [name for name in names if name not in self._targets]
        if missing:
            if len(self._targets) + len(missing) > self._limits.topics:
                raise LimitReached(f"More than {self._limits.topics} topics in one stream, which is the limit")
            self._targets.update({target.name: target for target in self._lookup(missing)})
        return [self._targets[name] for name in names]

    def _keep(self, place: tuple[TargetTopic, int], rows: pa.RecordBatch, sizes: Numbers) -> None:
        waiting = self._waiting.setdefault(place, _Waiting([], 0, 0))
        waiting.parts.append((rows, sizes))
        size = int(sizes.sum())
        waiting.size += size
        waiting.rows += len(rows)
        self._held += size
        if waiting.size >= self._limits.chunk_bytes or (place[0].checked and waiting.rows >= CHECKED_RECORDS):
            self._flush(place, whole=False)
        elif self._held >= HELD_BYTES:
            for other in list(self._waiting):
                self._flush(other)

    def _flush(self, place: tuple[TargetTopic, int], *, whole: bool = True) -> None:
        """Emit the buffered rows of one partition as chunks. Unless `whole`, a last chunk that is not full stays
        buffered.
        """
        waiting = self._waiting.pop(place)
        rows = [part for part, _ in waiting.parts]
        batch = rows[0] if len(rows) == 1 else pa.concat_batches(rows)
        sizes = np.concatenate([sizes for _, sizes in waiting.parts])
        ends = np.cumsum(sizes)
        max_records = CHECKED_RECORDS if place[0].checked else len(batch)
        first = begun = 0
        while first < len(batch):
            end = int(np.searchsorted(ends, begun + self._limits.chunk_bytes, side="right"))
            end = min(max(end, first + 1), first + max_records)
            if end >= len(batch) and not whole:
                break
            end = min(end, len(batch))
            self._emit(*place, columns_of(batch.slice(first, end - first)))
            first, begun = end, int(ends[end - 1])
        self._held -= begun
        if first < len(batch):
            rest = batch.slice(first)
            self._waiting[place] = _Waiting([(rest, sizes[first:])], int(ends[-1]) - begun, len(rest))


class _Waiting:
    """Buffered rows of one partition that do not fill a chunk yet."""

    __slots__ = ("parts", "rows", "size")

    def __init__(self, parts: list[tuple[pa.RecordBatch, Numbers]], size: int, rows: int) -> None:
        self.parts = parts
        self.size = size
        self.rows = rows


def _check_schema(schema: pa.Schema, topic: str | None) -> None:
    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise UnusableColumns(
            f"there is no place for column {', '.join(map(repr, unknown[:10]))}: a record has {', '.join(COLUMNS)}; "
            "put what it holds into `value`"
        )
    if len(set(schema.names)) < len(schema.names):
        raise UnusableColumns("two columns have the same name")
    if "value" not in schema.names:
        raise UnusableColumns("there is no column `value`")
    if topic is None and "topic" not in schema.names:
        raise UnusableColumns("where to? There is no column `topic`, and no topic was named for all records")


def _plain(column: pa.Array, name: str) -> pa.Array:
    """The column, cast to the type that the rest of this module expects."""
    kind = {"partition": pa.int32(), "topic": pa.string(), "headers": HEADER_LIST}.get(name, pa.binary())
    if name in ("value", "key") and not _textual(column.type):
        raise UnusableColumns(f"column {name} is {column.type}; binary or string is needed")
    if name == "partition" and not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise UnusableColumns(f"column partition is {column.type}; an integer is needed")
    if name == "headers":
        return _plain_headers(column)
    if name == "value" and column.null_count:
        raise UnusableColumns("a record without a value: the log keeps none. Leave such rows out, or give them one")
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnusableColumns(f"column {name} is {column.type}; {kind} is needed ({error})") from error


def _plain_headers(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), HEADER_LIST)
    pairs = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if pairs is None or not pa.types.is_struct(pairs) or pairs.num_fields != 2:
        raise UnusableColumns(f"column headers is {kind}; array of struct (key string, value binary) is needed")
    if [pairs.field(0).name, pairs.field(1).name] != ["key", "value"]:
        raise UnusableColumns(f"column headers is {kind}; its struct is (key string, value binary)")
    if kind == HEADER_LIST:
        return column
    try:
        return column.cast(HEADER_LIST)  # also rejects names that are not valid UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnusableColumns(f"column headers is {kind}; {HEADER_LIST} is needed ({error})") from error


def _textual(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string,
        pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary, pa.types.is_null,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _lengths(column: pa.Array) -> Numbers:
    lengths = pc.binary_length(column)
    if column.null_count:
        lengths = pc.fill_null(lengths, 0)
    return lengths.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _sizes(columns: dict[str, pa.Array]) -> Numbers:
    """The bytes of each record: key, value and headers."""
    sizes = _lengths(columns["value"]).astype(np.int64)
    if "key" in columns:
        sizes += _lengths(columns["key"])
    headers = columns.get("headers")
    if headers is not None and headers.null_count < len(headers):
        pairs = headers.flatten()
        if pairs.null_count or pc.struct_field(pairs, [0]).null_count:
            raise UnusableColumns("a header without a name")
        lengths = _lengths(pc.struct_field(pairs, [0])) + _lengths(pc.struct_field(pairs, [1])) + HEADER_BYTES
        ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        last = np.cumsum(counts)
        sizes += ends[last] - ends[last - counts]
    return sizes
