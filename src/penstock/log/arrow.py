"""Conversion between stored batches and Arrow record batches, in both directions; no other module does this.

A stored batch has the layout of Arrow's arrays, so a large one is not copied: the arrays point into its bytes and keep
them alive. Many small batches are joined into one record batch, since each record batch costs its reader more than a
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow_values import integers, scalar, texts
from penstock.log.batch import EXPIRES, HEADERS, KEY_NULLS, KEYS, Batch, RecordSlice
from penstock.log.columns import Columns
from penstock.log.doors import door_name
from penstock.log.engine import PartitionId, number_of

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADER_LIST: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORD: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("headers", HEADER_LIST),
    ]
)
"""The public columns of a record."""

DOOR: Final = "door"
STORED: Final = pa.schema(
    [*RECORD, pa.field("expires", TIMESTAMP), pa.field("position", pa.int64()), pa.field(DOOR, pa.string())]
)
"""The public columns and three internal ones: the time at which a record expires (null: never); the last global
position of its commit group, so that the log at a position P has exactly the records with `position < P`, and groups
appear as a whole; and the name of the door through which it was written (null: none, or unknown)."""

OWN_POSITION: Final = "own_position"
"""The global position of the record itself: the column `position` in tables of earlier versions."""
_DOORS: Final = texts([door_name(number) for number in range(256)])
_FIELDS: Final = {field.name: field for field in STORED} | {OWN_POSITION: pa.field(OWN_POSITION, pa.int64())}

ROWS: Final = 32_768  # in a record batch
_WHOLE: Final = 2_048  # a slice with this many records becomes its own record batch, without copying
_JOINED_BYTES: Final = 4 << 20  # of smaller slices in one record batch


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns, in this order. Raises KeyError for one that does not exist."""
    return pa.schema([_FIELDS[name] for name in columns])


# -- from batches to Arrow


def record_batches(
    slices: Iterable[RecordSlice], topic: str, columns: Sequence[str], *, rows: int = ROWS
) -> Iterator[pa.RecordBatch]:
    """The records of one partition of `topic`, any `columns` of `STORED`, at most `rows` at a time. For `position` the
    slices need their `group_end`."""
    pile = _SliceBuffer(topic, columns)
    for part in slices:
        if len(part) >= _WHOLE:
            yield from pile.take()
            whole = pile.convert(part)
            yield from (whole.slice(at, rows) for at in range(0, len(part), rows))
            continue
        pile.add(part)
        if pile.rows >= min(rows, ROWS) or pile.byte_size >= _JOINED_BYTES:
            yield from pile.take()
    yield from pile.take()


class _SliceBuffer:
    """Collects small slices for one record batch."""

    def __init__(self, topic: str, columns: Sequence[str]) -> None:
        self._topic = topic
        self._schema = schema_of(columns)
        self._slices: list[RecordSlice] = []
        self._constants: dict[str | int, pa.Array] = {}
        self.rows = 0
        self.byte_size = 0

    def add(self, part: RecordSlice) -> None:
        self._slices.append(part)
        self.rows += len(part)
        self.byte_size += len(part.batch.data)

    def take(self) -> Iterator[pa.RecordBatch]:
        if len(self._slices) == 1:
            yield self.convert(self._slices[0])
        elif self._slices:
            pile = _Joined(self._slices)
            yield self._batch([self._column(_JOINED, pile, name) for name in self._schema.names])
        self._slices = []
        self.rows = self.byte_size = 0

    def convert(self, part: RecordSlice) -> pa.RecordBatch:
        pointer = _Pointer(part)
        return self._batch([self._column(_COLUMN, pointer, name) for name in self._schema.names])

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, makers: dict[str, Any], source: _Pointer | _Joined, name: str) -> pa.Array:
        if name == "topic":
            return self._constant(name, name, self._topic, source.count)
        if name == "partition":
            return self._constant(name, name, number_of(PartitionId(source.partition)), source.count)
        if name == DOOR and (door := source.door()) is not None:
            return self._constant(door, name, door_name(door), source.count)
        return makers[name](source)

    def _constant(self, key: str | int, name: str, value: str | int | None, count: int) -> pa.Array:
        """A column with one repeated value; cached, as all slices here belong to one partition."""
        made = self._constants.get(key)
        if made is None or len(made) < count:
            made = self._constants[key] = pa.repeat(scalar(value, STORED.field(name).type), max(count, _WHOLE))
        return made.slice(0, count)


class _Joined:
    """The columns of many small slices, joined bytewise without decoding records."""

    __slots__ = ("_places", "count", "flags", "lengths", "missing", "partition", "slices")

    def __init__(self, slices: list[RecordSlice]) -> None:
        self.slices = slices
        self.partition = slices[0].batch.partition
        self.lengths = np.fromiter(map(len, slices), np.int64, len(slices))
        self.count = int(self.lengths.sum())
        self.flags = 0  # set in any slice
        self.missing = 0  # unset in any slice
        self._places = []
        for part in slices:
            batch = part.batch
            self.flags |= batch.flags
            self.missing |= ~batch.flags
            first = part.base_offset - batch.base_offset
            self._places.append((batch.data, batch.sections(), first, first + len(part)))

    def numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        joined = b"".join([data[at[name] + 8 * first : at[name] + 8 * end] for data, at, first, end in self._places])
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(joined)])

    def binary(self, offsets: str, content: str) -> pa.Array:
        ends = b"".join(
            [data[at[offsets] + 4 * first : at[offsets] + 4 * end + 4] for data, at, first, end in self._places]
        )
        places = np.frombuffer(ends, np.int32)  # one more per slice than it has records
        last = np.cumsum(self.lengths + 1) - 1
        begin = last - self.lengths
        sizes = np.delete(np.diff(places), last[:-1])  # without the steps between slices
        spans = zip(self._places, places[begin].tolist(), places[last].tolist(), strict=True)
        joined = b"".join([data[at[content] + a : at[content] + b] for (data, at, _, _), a, b in spans])
        found = np.zeros(self.count + 1, np.int32)
        np.cumsum(sizes, out=found[1:])
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(found), pa.py_buffer(joined)])

    def door(self) -> int | None:
        """The door of all records, if it is one."""
        door = self.slices[0].batch.door
        same = all(part.batch.door == door and not part.batch.doors for part in self.slices)
        return door if same else None

    def consecutive(self, firsts: list[int]) -> pa.Array:
        """Numbers that are consecutive within each slice."""
        before = np.cumsum(self.lengths) - self.lengths
        return _int64(np.repeat(np.array(firsts, np.int64) - before, self.lengths) + np.arange(self.count))

    def one_by_one(self, of: Callable[[_Pointer], pa.Array]) -> pa.Array:
        """The arrays of the slices: for columns whose bytes cannot simply be joined, and that few records use."""
        return pa.concat_arrays([of(_Pointer(part)) for part in self.slices])


def _joined_keys(pile: _Joined) -> pa.Array:
    if not pile.flags & KEYS:
        return pa.nulls(pile.count, pa.binary())
    if pile.flags & KEY_NULLS or pile.missing & KEYS:
        return pile.one_by_one(_keys_of)
    return pile.binary("key_offsets", "key_bytes")


def _joined_expires(pile: _Joined) -> pa.Array:
    if not pile.flags & EXPIRES:
        return pa.nulls(pile.count, TIMESTAMP)
    return pile.one_by_one(_expires_of)


def _joined_headers(pile: _Joined) -> pa.Array:
    if not pile.flags & HEADERS:
        return pa.nulls(pile.count, HEADER_LIST)
    return pile.one_by_one(_headers_of)


_JOINED: Final[dict[str, Any]] = {
    "key": _joined_keys,
    "value": lambda pile: pile.binary("value_offsets", "value_bytes"),
    "offset": lambda pile: pile.consecutive([part.base_offset for part in pile.slices]),
    "position": lambda pile: _int64(np.repeat([_last_position(part) for part in pile.slices], pile.lengths)),
    OWN_POSITION: lambda pile: pile.consecutive([part.position for part in pile.slices]),
    "timestamp": lambda pile: pile.numbers("timestamps", TIMESTAMP),
    "expires": _joined_expires,
    "headers": _joined_headers,
    DOOR: lambda pile: _door_names(b"".join([part.doors() for part in pile.slices])),
}


class _Pointer:
    """The addresses of a slice's columns in the bytes of its batch."""

    __slots__ = ("batch", "buffer", "count", "first", "part", "partition", "starts")

    def __init__(self, part: RecordSlice) -> None:
        self.part = part
        self.batch = part.batch
        self.partition = part.batch.partition
        self.first = part.base_offset - part.batch.base_offset
        self.count = len(part)
        self.buffer = pa.py_buffer(part.batch.data)
        self.starts = part.batch.sections()

    def door(self) -> int | None:
        """The door of all records, if it is one."""
        return None if self.batch.doors else self.batch.door

    def numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        buffer = self.buffer.slice(self.starts[name], 8 * self.batch.count)
        return pa.Array.from_buffers(kind, self.count, [None, buffer], offset=self.first)

    def offsets(self, name: str, count: int) -> pa.Buffer:
        return self.buffer.slice(self.starts[name], 4 * count + 4)

    def texts(self, offsets: str, data: str, kind: pa.DataType, count: int) -> pa.Array:
        """A whole column of header names or values; the lists select the slice."""
        return pa.Array.from_buffers(kind, count, [None, self.offsets(offsets, count), self._from(data)])

    def binary(self, offsets: str, data: str, validity: str | None = None) -> pa.Array:
        valid = None if validity is None else self._from(validity)
        buffers = [valid, self.offsets(offsets, self.batch.count), self._from(data)]
        return pa.Array.from_buffers(pa.binary(), self.count, buffers, offset=self.first)

    def _from(self, name: str) -> pa.Buffer:
        return self.buffer.slice(self.starts[name])


def _keys_of(at: _Pointer) -> pa.Array:
    if not at.batch.flags & KEYS:
        return pa.nulls(at.count, pa.binary())
    return at.binary("key_offsets", "key_bytes", "key_validity" if at.batch.flags & KEY_NULLS else None)


def _expires_of(at: _Pointer) -> pa.Array:
    if not at.batch.flags & EXPIRES:
        return pa.nulls(at.count, TIMESTAMP)
    moments = at.numbers("expires", pa.int64())
    never = pc.equal(moments, scalar(0, pa.int64()))
    return pc.if_else(never, scalar(None, pa.int64()), moments).cast(TIMESTAMP)


def _headers_of(at: _Pointer) -> pa.Array:
    """The headers column. It is null for a record without headers, as in Spark's Kafka source."""
    if not at.batch.flags & HEADERS:
        return pa.nulls(at.count, HEADER_LIST)
    count = at.batch.header_count
    names = at.texts("header_names", "header_name_bytes", pa.string(), count)
    values = at.texts("header_values", "header_value_bytes", pa.binary(), count)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_LIST.value_type))
    lists = np.frombuffer(at.offsets("header_lists", at.batch.count), np.int32)[at.first : at.first + at.count + 1]
    valid = np.packbits(np.diff(lists) > 0, bitorder="little").tobytes()
    buffers = [pa.py_buffer(valid), pa.py_buffer(lists)]
    return pa.Array.from_buffers(HEADER_LIST, at.count, buffers, children=[pairs])


def _door_names(numbers: bytes) -> pa.Array:
    return _DOORS.take(pa.Array.from_buffers(pa.uint8(), len(numbers), [None, pa.py_buffer(numbers)]))


def _last_position(part: RecordSlice) -> int:
    """The last global position of the slice's commit group."""
    if not part.group_end:
        raise ValueError("a slice that does not know where its commit group ends")
    return part.group_end - 1


def _range(first: int, count: int) -> pa.Array:
    return _int64(np.arange(first, first + count, dtype=np.int64))


def _int64(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


_COLUMN: Final[dict[str, Any]] = {
    "key": _keys_of,
    "value": lambda at: at.binary("value_offsets", "value_bytes"),
    "offset": lambda at: _range(at.part.base_offset, at.count),
    "position": lambda at: _int64(np.full(at.count, _last_position(at.part), np.int64)),
    OWN_POSITION: lambda at: _range(at.part.position, at.count),
    "timestamp": lambda at: at.numbers("timestamps", TIMESTAMP),
    "expires": _expires_of,
    "headers": _headers_of,
    DOOR: lambda at: _door_names(at.part.doors()),
}


# -- visible records


class VisibleRows(NamedTuple):
    """Determines which records of a partition are visible at one moment, for readers in another process."""

    now: int  # µs since 1970
    horizon: int = 0  # records stored by then have expired
    gone_below: int = 0  # removed offsets: all below this, and those in `gone`
    gone: Sequence[int] = ()


def visibility_columns(columns: Sequence[str]) -> list[str]:
    """The columns that `only_visible` needs to return these."""
    return [*columns, *(name for name in ("offset", "timestamp", "expires") if name not in columns)]


def only_visible(batch: pa.RecordBatch, columns: Sequence[str], view: VisibleRows) -> pa.RecordBatch:
    """`columns` of the rows that are neither expired nor removed; `batch` has the columns of `visibility_columns`."""
    alive = None
    expires = batch.column("expires")
    if expires.null_count < len(expires):
        alive = pc.or_kleene(pc.is_null(expires), pc.greater(expires.cast(pa.int64()), scalar(view.now, pa.int64())))
    if view.horizon:
        horizon = scalar(view.horizon, pa.int64())
        alive = _both(alive, pc.greater(batch.column("timestamp").cast(pa.int64()), horizon))
    if view.gone_below:
        alive = _both(alive, pc.greater_equal(batch.column("offset"), scalar(view.gone_below, pa.int64())))
    if view.gone:
        gone = pc.is_in(batch.column("offset"), value_set=integers(view.gone, pa.int64()))
        alive = _both(alive, pc.invert(gone))
    if len(columns) < batch.num_columns:
        batch = batch.select(list(columns))
    return batch if alive is None else batch.filter(alive)


def _both(one: pa.Array | None, other: pa.Array) -> pa.Array:
    return other if one is None else pc.and_(one, other)


# -- from Arrow to batches


class UnusableColumns(ValueError):
    """The Arrow columns are not those of records. The text names the column and the reason."""


def columns_of(batch: pa.RecordBatch) -> Columns:
    """The columns key, value, headers and expires of `batch`, if present; others are ignored."""
    count = len(batch)
    sections, flags, header_count, keys = _Sections(), 0, 0, b""
    names = headers = b""
    if (expires := _column(batch, "expires")) is not None:
        flags |= EXPIRES
        sections.add(pc.fill_null(expires.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).tobytes())
    if (found := _column(batch, "key")) is not None:
        flags |= KEYS
        if found.null_count:
            flags |= KEY_NULLS
            valid = found.is_valid().to_numpy(zero_copy_only=False)
            sections.add(np.packbits(valid, bitorder="little").tobytes())
        offsets, keys = _binary(found, "key")
        sections.add(offsets)
    value = _column(batch, "value")
    if value is None or value.null_count:
        raise UnusableColumns("a record without a value" if count else "there is no record")
    offsets, values = _binary(value, "value")
    sections.add(offsets)
    pairs = _column(batch, "headers")
    lists, flat = (None, None) if pairs is None else _header_pairs(pairs)
    if lists is not None and flat is not None and len(flat):
        flags |= HEADERS
        header_count = len(flat)
        sections.add(lists)
        name_offsets, names = _binary(pc.struct_field(flat, [0]), "headers.key")
        value_offsets, headers = _binary(pc.fill_null(pc.struct_field(flat, [1]).cast(pa.binary()), b""), "headers")
        sections.add(name_offsets)
        sections.add(value_offsets)
    for part in (keys, values, names, headers):
        sections.add(part)
    sizes = (len(keys), len(values), len(names), len(headers))
    return Columns(count, flags, header_count, *sizes, b"".join(sections.parts))


class _Sections:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        if pad := -len(data) & 7:
            self.parts.append(bytes(pad))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column, or None if it is missing or entirely null."""
    if name not in batch.schema.names:
        return None
    found = batch.column(name)
    return None if len(found) and found.null_count == len(found) else found


def _binary(array: pa.Array, name: str) -> tuple[bytes, bytes]:
    """Offsets from 0 on, and the bytes, of a column of binaries or strings."""
    kind = array.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_binary_view(kind)
        if not (wide or pa.types.is_string_view(kind) or pa.types.is_fixed_size_binary(kind)):
            raise UnusableColumns(f"column {name} is {kind}; binary or string is needed")
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    if not len(array):
        return bytes(4), b""
    places = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    first, end = int(places[0]), int(places[-1])
    content = b"" if data is None or first == end else data.slice(first, end - first).to_pybytes()
    return (places - places[0] if first else places).astype(np.int32, copy=False).tobytes(), content


def _header_pairs(array: pa.Array) -> tuple[bytes, pa.Array]:
    """The header range of each record, and all headers as (name, value)."""
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise UnusableColumns(f"column headers is {kind}; array of struct (key string, value binary) is needed")
    if kind.value_type.num_fields != 2:
        raise UnusableColumns(f"column headers is {kind}; its struct has to have a key and a value")
    flat = array.flatten()
    if flat.null_count or (len(flat) and pc.struct_field(flat, [0]).null_count):
        raise UnusableColumns("a header without a name")
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    lists = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=lists[1:])
    return lists.tobytes(), flat


def stored_batch(batch: pa.RecordBatch, partition: PartitionId) -> Batch:
    """Rows of a table, with the columns of `STORED` and consecutive offsets, as a batch of the log.

    Its position is the one stored in the table for its first record."""
    offsets = batch.column("offset").to_numpy()
    if not len(offsets) or int(offsets[-1]) - int(offsets[0]) != len(offsets) - 1 or (np.diff(offsets) != 1).any():
        raise UnusableColumns("the offsets do not follow each other")
    stamps = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    position = batch.column("position")[0].as_py()
    doors = _door_numbers(batch.column(DOOR))
    mixed = doors.strip(doors[:1])
    data = columns_of(batch).build(
        partition,
        int(offsets[0]),
        position,
        stamps.tobytes(),
        int(stamps.min()),
        int(stamps.max()),
        0 if mixed else doors[0],
    )
    return Batch(data, doors if mixed else b"")


def _door_numbers(names: pa.Array) -> bytes:
    """0 for null, and for a door of a later version."""
    if names.null_count == len(names):
        return bytes(len(names))
    found = pc.fill_null(pc.index_in(names, value_set=_DOORS), 0)
    return bytes(found.to_numpy(zero_copy_only=False).astype(np.uint8))
