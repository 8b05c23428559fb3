"""Requests as bytes: the layout of every opcode's request, as a table. Consecutive PRODUCE frames have a fast path:
`coalesced_produce.py`.

The layouts are those of the protocol's specification and, where it says nothing, of the original. Where the two or
their clients differ, a function distinguishes the forms by their bytes; the numbers of decisions refer to
`docs/protocols/flymq.md`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.fields import (
    B32,
    BOOL,
    I32,
    I64,
    INVALID,
    KEY,
    RECORD_HEADERS,
    S8,
    S16,
    U32,
    U64,
    Field,
    Layout,
    Reader,
    layout,
    many,
    sized,
)
from penstock.wire.flymq.errors import MalformedPayload, UnknownOpcode
from penstock.wire.flymq.frames import frame
from penstock.wire.flymq.opcodes import Op

MAX_NAMES: Final = 10_000  # users, roles, permissions or types in one request
MAX_BATCH: Final = 25_000  # records in one PRODUCE_BATCH: about 30 ms, during which nobody else is served

_NAMES: Final = many(S16, limit=MAX_NAMES)
_PARTITION: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">I")
_SHORTEST_RECORD: Final = 12  # in a batch: two lengths and a partition


# -- decision 1: a PRODUCE may end with its value


def _read_produce(reader: Reader) -> m.Produce:
    topic, key, value = S16.read(reader), KEY.read(reader), B32.read(reader)
    return m.Produce(topic, key, value, I32.read(reader) if reader.left else m.ANY_PARTITION)


def _write_produce(request: m.Produce) -> bytes:
    fields = S16.write(request.topic), KEY.write(request.key), B32.write(request.value), I32.write(request.partition)
    return b"".join(fields)


# -- decision 3: the length of a SUBSCRIBE's mode is u16 in the specification and u8 in every client


def _read_mode(reader: Reader) -> str:
    rest = reader.data[reader.position :]
    if len(rest) >= 2 and rest[0] == 0 and int.from_bytes(rest[:2]) == len(rest) - 2:
        return S16.read(reader)
    return S8.read(reader)


# -- decision 4: a filter field, even an empty one, requests the original's field order of the reply

_FETCH: Final = layout(m.FetchBinary, S16, I32, U64, I32, S16, tail=1)


def _read_fetch(reader: Reader) -> m.Fetch:
    topic, partition, offset, max_messages = S16.read(reader), I32.read(reader), U64.read(reader), I32.read(reader)
    if not reader.left:
        return m.Fetch(topic, partition, offset, max_messages)
    return m.Fetch(topic, partition, offset, max_messages, S16.read(reader), code_order=True)


def _write_fetch(request: m.Fetch) -> bytes:
    if request.filter and not request.code_order:
        raise ValueError("A filter goes with the reply in code order")
    fields = S16.write(request.topic), struct.pack(">iQi", request.partition, request.offset, request.max_messages)
    return b"".join((*fields, S16.write(request.filter) if request.code_order else b""))


# -- decision 11: schema before data (the original server, Go) or after it (Python, Java)


def _read_produce_with_schema(reader: Reader) -> m.ProduceWithSchema:
    topic = S16.read(reader)
    start = reader.position
    for schema_first in (True, False):
        reader.position = start
        try:
            if schema_first:
                schema, value = S16.read(reader), B32.read(reader)
            else:
                value, schema = B32.read(reader), S16.read(reader)
        except MalformedPayload:
            continue
        if schema and not reader.left:
            return m.ProduceWithSchema(topic, schema, value)
    raise MalformedPayload(INVALID)


def _write_produce_with_schema(request: m.ProduceWithSchema) -> bytes:
    return b"".join((S16.write(request.topic), S16.write(request.schema), B32.write(request.value)))


# -- decision 12: a dead letter by id or by offset


def _read_replay(reader: Reader) -> m.ReplayDlq:
    topic = S16.read(reader)
    rest = reader.data[reader.position :]
    if len(rest) >= 2 and int.from_bytes(rest[:2]) == len(rest) - 2:
        return m.ReplayDlq(topic, message_id=S16.read(reader))
    if len(rest) == 8:
        return m.ReplayDlq(topic, offset=U64.read(reader))
    raise MalformedPayload(INVALID)


def _write_replay(request: m.ReplayDlq) -> bytes:
    if (request.message_id is None) == (request.offset is None):
        raise ValueError("A dead letter is named by its id or by its offset")
    which = U64.write(request.offset) if request.offset is not None else S16.write(request.message_id or "")
    return S16.write(request.topic) + which


# -- requests whose topic or group is optional


def _read_describe_group(reader: Reader) -> m.DescribeGroup:
    first = S16.read(reader)
    return m.DescribeGroup(first, S16.read(reader)) if reader.left else m.DescribeGroup("", first)


def _write_describe_group(request: m.DescribeGroup) -> bytes:
    return S16.write(request.topic) + S16.write(request.group)


def _read_seek(reader: Reader) -> m.SeekToTimestamp:
    topic = S16.read(reader)
    group = S16.read(reader) if reader.left != I32.minimum + I64.minimum else ""
    return m.SeekToTimestamp(topic, group, I32.read(reader), I64.read(reader))


def _write_seek(request: m.SeekToTimestamp) -> bytes:
    prefix = S16.write(request.topic) + S16.write(request.group)
    return prefix + I32.write(request.partition) + I64.write(request.timestamp_ms)


# -- RESET_OFFSET has an offset if its mode is `offset`; some clients always send one

_RESET: Final = layout(m.ResetOffset, S16, S16, I32, S8, U64, tail=1)


def _read_reset(reader: Reader) -> m.ResetOffset:
    request = _RESET.read(reader)
    if request.mode == "offset" and request.offset is None:
        raise MalformedPayload(INVALID)
    return request


# -- PRODUCE_BATCH: decoded into columns, because it may have very many records


def _read_batch(reader: Reader) -> m.ProduceBatch:
    return m.ProduceBatch(S16.read(reader), *_read_columns(reader))


def _read_columns(reader: Reader) -> tuple[list[bytes | None], list[bytes], list[int]]:
    """Keys, values and partitions of records."""
    count = U32.read(reader)
    if count * _SHORTEST_RECORD > reader.left:
        raise MalformedPayload(INVALID)
    if count > MAX_BATCH:
        raise MalformedPayload(f"{INVALID}: a batch of {count} records (max: {MAX_BATCH})")
    data, at = reader.data, reader.position
    length, number = _LENGTH.unpack_from, _PARTITION.unpack_from
    keys: list[bytes | None] = []
    values: list[bytes] = []
    partitions: list[int] = []
    try:
        for _ in range(count):
            key = at + 4
            value = key + length(data, at)[0]
            at = value + 4
            end = at + length(data, value)[0]
            partitions += number(data, end)  # fails if the record exceeds the payload
            keys.append(data[key:value] or None)
            values.append(data[at:end])
            at = end + 4
    except struct.error:
        raise MalformedPayload(INVALID) from None
    reader.position = at
    return keys, values, partitions


def _write_batch(request: m.ProduceBatch) -> bytes:
    return b"".join((S16.write(request.topic), *_write_columns(request)))


def _write_columns(request: m.ProduceBatch | m.ProduceRecords) -> list[bytes]:
    parts = [U32.write(len(request.values))]
    for key, value, partition in zip(request.keys, request.values, request.partitions, strict=True):
        parts += (KEY.write(key), B32.write(value), I32.write(partition))
    return parts


# -- PRODUCE_RECORDS: the producer and sequence number, the columns of PRODUCE_BATCH, and optional headers


def _read_records(reader: Reader) -> m.ProduceRecords:
    topic, producer, epoch, sequence = S16.read(reader), S16.read(reader), U64.read(reader), U64.read(reader)
    keys, values, partitions = _read_columns(reader)
    headers = [RECORD_HEADERS.read(reader) for _ in values] if reader.left else []
    return m.ProduceRecords(topic, producer, epoch, sequence, keys, values, partitions, headers)


def _write_records(request: m.ProduceRecords) -> bytes:
    if request.headers and len(request.headers) != len(request.values):
        raise ValueError("Either each record has a list of headers, or none has")
    head = S16.write(request.topic), S16.write(request.producer), U64.write(request.epoch), U64.write(request.sequence)
    return b"".join((*head, *_write_columns(request), *map(RECORD_HEADERS.write, request.headers)))


# -- the table

_AUDIT_QUERY: Final = layout(m.AuditQuery, I64, I64, _NAMES, S16, S16, S16, S16, I32, I32)

LAYOUTS: Final[dict[int, Layout[Any]]] = {
    Op.PRODUCE: Layout(m.Produce, _read_produce, _write_produce, 10),
    Op.CONSUME: layout(m.Consume, S16, I32, U64),
    Op.CREATE_TOPIC: layout(m.CreateTopic, S16, I32),
    Op.METADATA: layout(m.Metadata, S16),
    Op.SUBSCRIBE: layout(m.Subscribe, S16, S16, I32, Field(_read_mode, S8.write, 1)),
    Op.COMMIT: layout(m.Commit, S16, S16, I32, U64),
    Op.FETCH: Layout(m.Fetch, _read_fetch, _write_fetch, _FETCH.minimum),
    Op.LIST_TOPICS: layout(m.ListTopics),
    Op.DELETE_TOPIC: layout(m.DeleteTopic, S16),
    Op.CONSUME_ZERO_COPY: layout(m.ConsumeZeroCopy, S16, I32, U64),
    Op.FETCH_BINARY: _FETCH,
    Op.PRODUCE_BATCH: Layout(m.ProduceBatch, _read_batch, _write_batch, 6),
    Op.PRODUCE_RECORDS: Layout(m.ProduceRecords, _read_records, _write_records, 24),
    Op.FETCH_RECORDS: layout(m.FetchRecords, S16, I32, U64, I32, I32, tail=1),
    Op.USE_SCOPE: layout(m.UseScope, S16, S16),
    Op.REGISTER_SCHEMA: layout(m.RegisterSchema, S16, S8, B32),
    Op.GET_SCHEMA: layout(m.GetSchema, S16, U32),
    Op.LIST_SCHEMAS: layout(m.ListSchemas, S16, tail=1),
    Op.VALIDATE_SCHEMA: layout(m.ValidateSchema, S16, B32),
    Op.PRODUCE_WITH_SCHEMA: Layout(m.ProduceWithSchema, _read_produce_with_schema, _write_produce_with_schema, 8),
    Op.DELETE_SCHEMA: layout(m.DeleteSchema, S16, U32),
    Op.SET_COMPATIBILITY: layout(m.SetCompatibility, S16, S8),
    Op.FETCH_DLQ: layout(m.FetchDlq, S16, I32, U64, tail=1),
    Op.REPLAY_DLQ: Layout(m.ReplayDlq, _read_replay, _write_replay, 4),
    Op.PURGE_DLQ: layout(m.PurgeDlq, S16),
    Op.PRODUCE_DELAYED: layout(m.ProduceDelayed, S16, B32, I64, KEY, I32, tail=2, last=RECORD_HEADERS),
    Op.CANCEL_DELAYED: layout(m.CancelDelayed, S16),
    Op.PRODUCE_WITH_TTL: layout(m.ProduceWithTtl, S16, B32, I64, KEY, I32, tail=2, last=RECORD_HEADERS),
    Op.TXN_BEGIN: layout(m.BeginTransaction),
    Op.TXN_COMMIT: layout(m.CommitTransaction, S16),
    Op.TXN_ROLLBACK: layout(m.RollbackTransaction, S16),
    Op.TXN_PRODUCE: layout(m.ProduceInTransaction, S16, S16, B32, KEY, I32, tail=2, last=RECORD_HEADERS),
    Op.CLUSTER_JOIN: layout(m.JoinCluster, S16),
    Op.CLUSTER_LEAVE: layout(m.LeaveCluster),
    Op.CLUSTER_STATUS: layout(m.GetClusterStatus),
    Op.CLUSTER_METADATA: layout(m.GetClusterMetadata, S16, tail=1),
    Op.GET_OFFSET: layout(m.GetOffset, S16, S16, I32),
    Op.RESET_OFFSET: Layout(m.ResetOffset, _read_reset, _RESET.write, _RESET.minimum),
    Op.LIST_GROUPS: layout(m.ListGroups),
    Op.DESCRIBE_GROUP: Layout(m.DescribeGroup, _read_describe_group, _write_describe_group, 2),
    Op.GET_LAG: layout(m.GetLag, S16, S16, I32),
    Op.DELETE_GROUP: layout(m.DeleteGroup, S16, S16),
    Op.SEEK_TO_TIMESTAMP: Layout(m.SeekToTimestamp, _read_seek, _write_seek, 14),
    Op.AUTH: layout(m.Authenticate, S16, S16),
    Op.WHOAMI: layout(m.WhoAmI),
    Op.USER_CREATE: layout(m.CreateUser, S16, S16, S16, _NAMES, BOOL, tail=1),
    Op.USER_DELETE: layout(m.DeleteUser, S16),
    Op.USER_UPDATE: layout(m.UpdateUser, S16, S16, S16, _NAMES, BOOL, tail=1),
    Op.USER_LIST: layout(m.ListUsers),
    Op.USER_GET: layout(m.GetUser, S16),
    Op.ACL_SET: layout(m.SetAcl, S16, BOOL, _NAMES, _NAMES, BOOL, tail=1),
    Op.ACL_GET: layout(m.GetAcl, S16),
    Op.ACL_DELETE: layout(m.DeleteAcl, S16),
    Op.ACL_LIST: layout(m.ListAcls),
    Op.PASSWORD_CHANGE: layout(m.ChangePassword, S16, S16, S16, _NAMES, BOOL, tail=1),
    Op.ROLE_LIST: layout(m.ListRoles),
    Op.ROLE_SET: layout(m.SetRole, S16, _NAMES, S16),
    Op.ROLE_DELETE: layout(m.DeleteRole, S16),
    Op.AUDIT_QUERY: _AUDIT_QUERY,
    Op.AUDIT_EXPORT: layout(m.AuditExportRequest, sized(_AUDIT_QUERY), S16),
}

OPCODES: Final[dict[type[Any], Op]] = {row.kind: Op(opcode) for opcode, row in LAYOUTS.items()}


def decode(opcode: int, payload: bytes) -> m.Request:
    """The request. The payload must already be decompressed: see `frames.content`."""
    row = LAYOUTS.get(opcode)
    if row is None:
        raise UnknownOpcode(opcode)
    return row.decode(payload)  # type: ignore[no-any-return]


def encode(request: m.Request) -> bytes:
    """The request's frame. Raises ValueError if a value cannot be encoded."""
    opcode = OPCODES[type(request)]
    try:
        return frame(opcode, LAYOUTS[opcode].write(request))
    except struct.error as error:
        raise ValueError(f"A number that FlyMQ cannot carry: {error}") from None
