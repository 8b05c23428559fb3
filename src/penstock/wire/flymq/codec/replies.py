"""Replies as bytes: the layout of every opcode's reply, as a table, and a fast path for replies to PRODUCE. Fetched
records are in `fetched_records`.

A reply has the opcode of its request, except that AUTH is answered with AUTH_RESPONSE and every failure with ERROR. The
original's clients have no request ids and reject unknown opcodes (decision 16).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.fetched_records import FETCHED, FETCHED_IN_CODE_ORDER, FETCHED_RECORDS
from penstock.wire.flymq.codec.fields import (
    B32,
    BOOL,
    I32,
    I64,
    INVALID,
    KEY,
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
from penstock.wire.flymq.errors import TAG, MalformedPayload, UnknownOpcode, error_frame
from penstock.wire.flymq.frames import frame
from penstock.wire.flymq.opcodes import FLAG_BINARY, HEADER_SIZE, MAGIC, MAX_PAYLOAD, VERSION, Op

_HEADER: Final = struct.Struct(">BBBBI")
_RECORD_METADATA_SIZE: Final = 28  # without the topic

MAX_CONSUMED: Final = MAX_PAYLOAD - 8
"""Bytes of key and value of the largest record that fits a reply to CONSUME, which only adds their lengths: more than
any PRODUCE can contain."""

MAX_DLQ_MESSAGES: Final = MAX_PAYLOAD - 12
"""Bytes of all messages in the reply to a FETCH_DLQ, without their count and the next offset."""


# -- AUTH: two field orders, and forms of success and failure that are valid in both (decision 5)
#
#                        the specification reads        the original reads
#   00                   failure                        failure
#   s16 reason           error                          username
#   00 00                username, empty                roles: count, whose other half is the next two bytes
#   00 00                roles: count, with the next    ┘ none
#   u16 n                ┘ n                            error: length
#   09 20 reason         role 1, 0x0920 bytes long      ┘ tab, space, reason: n bytes
#   padding of role 1    ┘                              ignored, like all bytes after the last field
#   00 00 for the rest   roles 2 to n, all empty

_ROLES: Final = many(S16)
_ORIGINAL_ROLES: Final = many(S8)
_NOTHING: Final = bytes(6)  # no name and no roles, or no roles and no error
_BLANKS: Final = "\t "  # precede the reason as the original reads it; as a length, the smallest that prints as blanks
_PADDED: Final = int.from_bytes(_BLANKS.encode())


def _read_auth(reader: Reader) -> m.AuthResult:
    """The first text reveals the field order: in a success it is the error, which is empty, or the user name; in a
    failure it is the error, or the name, which is empty."""
    success = BOOL.read(reader)
    start = reader.position
    error = S16.read(reader)
    if error if success else not error and reader.left > len(_NOTHING):
        reader.position = start
        username, roles = S16.read(reader), _ORIGINAL_ROLES.read(reader)
        return m.AuthResult(success, S16.read(reader), username, roles, m.AuthStyle.ORIGINAL)
    username, roles = S16.read(reader), _ROLES.read(reader)
    if error and not username and roles and roles[0] == _repeated(error)[0]:
        return m.AuthResult(success, error)
    known = username or roles or error
    return m.AuthResult(success, error, username, roles, m.AuthStyle.SPEC if known else m.AuthStyle.BOTH)


def _write_auth(reply: m.AuthResult) -> bytes:
    if reply.style is m.AuthStyle.BOTH:
        return _write_auth_for_both(reply)
    success, error, username = BOOL.write(reply.success), S16.write(reply.error), S16.write(reply.username)
    if reply.style is m.AuthStyle.ORIGINAL:
        return b"".join((success, username, _ORIGINAL_ROLES.write(reply.roles), error))
    return b"".join((success, error, username, _ROLES.write(reply.roles)))


def _write_auth_for_both(reply: m.AuthResult) -> bytes:
    """A reply without name and roles: for a success nothing else, for a failure the reason."""
    if reply.success or not reply.error:
        return BOOL.write(reply.success) + bytes(2) + _NOTHING
    role, length = _repeated(reply.error)
    roles = [role, *[""] * (len(_BLANKS) + length - 1)]
    return b"".join((BOOL.write(False), S16.write(reply.error), S16.write(""), _ROLES.write(roles)))


def _repeated(reason: str) -> tuple[str, int]:
    """The reason as the first role of a failed login, and how many of its bytes the original reads."""
    kept = reason.encode()[:_PADDED].decode(errors="ignore")
    length = len(kept.encode())
    return kept + " " * (_PADDED - length), length


# -- WHOAMI: no roles where both kinds of client expect them (decision 9)

_WHOAMI: Final = layout(m.CurrentUser, BOOL, S16, _ROLES, _ROLES)


def _read_whoami(reader: Reader) -> m.CurrentUser:
    reply = _WHOAMI.read(reader)
    roles = _ROLES.read(reader) if reader.left else reply.roles
    return m.CurrentUser(reply.authenticated, reply.username, roles, reply.permissions)


def _write_whoami(reply: m.CurrentUser) -> bytes:
    """Clients that read roles as s8 and then an error find neither: the count of permissions begins with two zeros. The
    roles follow after everything that either kind reads."""
    plain = m.CurrentUser(reply.authenticated, reply.username, [], reply.permissions)
    return _WHOAMI.write(plain) + (_ROLES.write(reply.roles) if reply.roles else b"")


# -- GET_SCHEMA: a list of one, as the original's clients expect a list; the rest follows it (decision 10)

_SCHEMA: Final = layout(m.SchemaInfo, S16, S8, U32, S16, B32, S8)


def _read_schema(reader: Reader) -> m.SchemaInfo:
    if U32.read(reader) != 1:
        raise MalformedPayload(INVALID)
    return _SCHEMA.read(reader)


def _write_schema(reply: m.SchemaInfo) -> bytes:
    return U32.write(1) + _SCHEMA.write(reply)


# -- REPLAY_DLQ: the original's clients read four bytes after the flag, so the text has at least two (decision 13)

_REPLAY_TEXT: Final = Field[str](S16.read, lambda text: S16.write(text.ljust(2)), 2)


# -- PRODUCE_BATCH: by column, like its request

_PARTITION_OFFSET: Final = struct.Struct(">iQ")  # partition, offset


def _read_batch(reader: Reader) -> m.ProducedBatch:
    topic, timestamp, count = S16.read(reader), I64.read(reader), U32.read(reader)
    places = list(_PARTITION_OFFSET.iter_unpack(reader.take(count * _PARTITION_OFFSET.size)))
    return m.ProducedBatch(topic, timestamp, [partition for partition, _ in places], [offset for _, offset in places])


def _write_batch(reply: m.ProducedBatch) -> bytes:
    places = [_PARTITION_OFFSET.pack(*place) for place in zip(reply.partitions, reply.offsets, strict=True)]
    head = S16.write(reply.topic), I64.write(reply.timestamp_ms), U32.write(len(places))
    return b"".join((*head, *places))


# -- ERROR


def _read_failure(reader: Reader) -> m.Failure:
    BOOL.read(reader)
    return m.Failure(S16.read(reader).removeprefix(TAG))


def _write_failure(reply: m.Failure) -> bytes:
    return error_frame(reply.message)[HEADER_SIZE:]


# -- the table, by the opcode of the request

_DONE: Final = layout(m.Done, BOOL, S16)
_RECORD_METADATA: Final = layout(m.RecordMetadata, S16, I32, U64, I64, I32, I32)
_PRODUCED_BATCH: Final = Layout(m.ProducedBatch, _read_batch, _write_batch, 14)
_CONSUMED: Final = layout(m.Consumed, KEY, B32)
_POSITION: Final = layout(m.Position, U64)
_GROUP: Final = layout(m.GroupInfo, S16, S16, U32, many(layout(m.PartitionOffset, I32, U64)))
_SCHEMA_SUMMARY: Final = layout(m.SchemaSummary, S16, S8, U32)
_TRANSACTION: Final = layout(m.TransactionState, S16, BOOL)
_NAMES: Final = many(S16)
_USER: Final = layout(m.UserInfo, S16, _NAMES, _NAMES, BOOL, I64, I64)
_DLQ_MESSAGE: Final = layout(m.DlqMessage, S16, B32, S16, I32)
_NODE: Final = layout(m.ClusterNode, S16, S16, S16, BOOL)
_PARTITION_PLACEMENT: Final = layout(m.PartitionPlacement, I32, S16, S16, U64, S16, _NAMES, _NAMES)
_TOPIC_PLACEMENT: Final = layout(m.TopicPlacement, S16, many(_PARTITION_PLACEMENT))
_ACL_ENTRY: Final = layout(m.AclEntry, S16, BOOL, BOOL, _NAMES, _NAMES)
_ROLE: Final = layout(m.RoleInfo, S16, _NAMES, S16)
_DETAILS: Final[Field[list[m.AuditDetail]]] = many(layout(m.AuditDetail, S16, S16))
_AUDIT_EVENT: Final = layout(m.AuditEvent, S16, I64, S16, S16, S16, S16, S16, S16, S16, _DETAILS)

LAYOUTS: Final[dict[int, Layout[Any]]] = {
    Op.PRODUCE: _RECORD_METADATA,
    Op.CONSUME: _CONSUMED,
    Op.CREATE_TOPIC: _DONE,
    Op.METADATA: layout(m.TopicMetadata, S16, many(layout(m.PartitionMetadata, I32, I32, U64, U64))),
    Op.SUBSCRIBE: _POSITION,
    Op.COMMIT: _DONE,
    Op.FETCH: FETCHED,
    Op.LIST_TOPICS: layout(m.TopicList, _NAMES),
    Op.DELETE_TOPIC: _DONE,
    Op.CONSUME_ZERO_COPY: _CONSUMED,
    Op.FETCH_BINARY: FETCHED_IN_CODE_ORDER,
    Op.PRODUCE_BATCH: _PRODUCED_BATCH,
    Op.PRODUCE_RECORDS: _PRODUCED_BATCH,
    Op.FETCH_RECORDS: FETCHED_RECORDS,
    Op.REGISTER_SCHEMA: _SCHEMA_SUMMARY,
    Op.GET_SCHEMA: Layout(m.SchemaInfo, _read_schema, _write_schema, 4 + _SCHEMA.minimum),
    Op.LIST_SCHEMAS: layout(m.SchemaList, many(_SCHEMA_SUMMARY)),
    Op.VALIDATE_SCHEMA: layout(m.SchemaVerdict, BOOL, _NAMES),
    Op.PRODUCE_WITH_SCHEMA: _RECORD_METADATA,
    Op.DELETE_SCHEMA: _DONE,
    Op.SET_COMPATIBILITY: _DONE,
    Op.FETCH_DLQ: layout(m.DlqMessages, many(_DLQ_MESSAGE), U64, tail=1),
    Op.REPLAY_DLQ: layout(m.Done, BOOL, _REPLAY_TEXT),
    Op.PURGE_DLQ: _DONE,
    Op.PRODUCE_DELAYED: _RECORD_METADATA,
    Op.CANCEL_DELAYED: _DONE,
    Op.PRODUCE_WITH_TTL: _RECORD_METADATA,
    Op.TXN_BEGIN: _TRANSACTION,
    Op.TXN_COMMIT: _TRANSACTION,
    Op.TXN_ROLLBACK: _TRANSACTION,
    Op.TXN_PRODUCE: _RECORD_METADATA,
    Op.CLUSTER_JOIN: _DONE,
    Op.CLUSTER_LEAVE: _DONE,
    Op.CLUSTER_STATUS: layout(m.ClusterStatus, S16, S16, many(_NODE)),
    Op.CLUSTER_METADATA: layout(m.ClusterMetadata, S16, many(_TOPIC_PLACEMENT)),
    Op.GET_OFFSET: _POSITION,
    Op.RESET_OFFSET: _DONE,
    Op.LIST_GROUPS: layout(m.GroupList, many(_GROUP)),
    Op.DESCRIBE_GROUP: _GROUP,
    Op.GET_LAG: layout(m.Lag, U64, U64, U64, U64),
    Op.DELETE_GROUP: _DONE,
    Op.SEEK_TO_TIMESTAMP: _POSITION,
    Op.AUTH: Layout(m.AuthResult, _read_auth, _write_auth, 9),
    Op.WHOAMI: Layout(m.CurrentUser, _read_whoami, _write_whoami, _WHOAMI.minimum),
    Op.USER_CREATE: _USER,
    Op.USER_DELETE: _DONE,
    Op.USER_UPDATE: _DONE,
    Op.USER_LIST: layout(m.UserList, many(_USER)),
    Op.USER_GET: _USER,
    Op.ACL_SET: _DONE,
    Op.ACL_GET: layout(m.AclInfo, S16, BOOL, BOOL, BOOL, _NAMES, _NAMES, BOOL, tail=1),
    Op.ACL_DELETE: _DONE,
    Op.ACL_LIST: layout(m.AclList, many(_ACL_ENTRY), BOOL),
    Op.PASSWORD_CHANGE: _DONE,
    Op.ROLE_LIST: layout(m.RoleList, many(_ROLE)),
    Op.ROLE_SET: _DONE,
    Op.ROLE_DELETE: _DONE,
    Op.USE_SCOPE: _DONE,
    Op.AUDIT_QUERY: layout(m.AuditPage, many(sized(_AUDIT_EVENT)), I32, BOOL),
    Op.AUDIT_EXPORT: layout(m.AuditExport, S16, B32),
    Op.ERROR: Layout(m.Failure, _read_failure, _write_failure, 3),
}


def reply_opcode(opcode: int) -> int:
    """The opcode of a successful reply to a request with this one."""
    return Op.AUTH_RESPONSE if opcode == Op.AUTH else opcode


def encode(opcode: int, reply: m.Reply) -> bytes:
    """The frame of the reply to a request with this opcode. Raises ValueError if a value cannot be encoded."""
    if type(reply) is m.Failure:
        return error_frame(reply.message)
    row = LAYOUTS[opcode]
    assert type(reply) is row.kind, (opcode, reply)
    try:
        return frame(reply_opcode(opcode), row.write(reply))
    except struct.error as error:
        raise ValueError(f"A number that FlyMQ cannot carry: {error}") from None


def decode(opcode: int, payload: bytes, code_order: bool = False) -> m.Reply:
    """The reply in a frame with this opcode. `code_order`: for a FETCH, whether the request had a filter field."""
    if opcode == Op.AUTH_RESPONSE:
        opcode = Op.AUTH
    row = FETCHED_IN_CODE_ORDER if code_order and opcode == Op.FETCH else LAYOUTS.get(opcode)
    if row is None:
        raise UnknownOpcode(opcode)
    return row.decode(payload)


def dlq_message_size(message: m.DlqMessage) -> int:
    """Bytes of a dead letter in the reply to a FETCH_DLQ."""
    return 12 + len(message.message_id.encode()) + len(message.value) + len(message.error.encode())


def encode_metadata(
    topic: str, partition: int, offset: int, timestamp_ms: int, key_size: int, value_size: int
) -> bytes:
    """The frame of the reply to one PRODUCE."""
    head, pack = _metadata_frame(topic)
    return pack(head, partition, offset, timestamp_ms, key_size, value_size)


def encode_metadata_batch(
    topic: str,
    partitions: Iterable[int],
    offsets: Iterable[int],
    timestamp_ms: int,
    key_sizes: Iterable[int],
    value_sizes: Iterable[int],
) -> bytes:
    """The frames of the replies to many PRODUCEs to one topic, from columns of the same length."""
    head, pack = _metadata_frame(topic)
    columns = repeat(head), partitions, offsets, repeat(timestamp_ms), key_sizes, value_sizes
    return b"".join(map(pack, *columns))


@lru_cache(maxsize=16_384)
def _metadata_frame(topic: str) -> tuple[bytes, Callable[..., bytes]]:
    """The first bytes of the reply frame to a PRODUCE to this topic, and the packer of the whole frame."""
    name = S16.write(topic)
    head = _HEADER.pack(MAGIC, VERSION, Op.PRODUCE, FLAG_BINARY, len(name) + _RECORD_METADATA_SIZE) + name
    return head, _metadata_packer(len(head))


@lru_cache(maxsize=1024)
def _metadata_packer(head_size: int) -> Callable[..., bytes]:
    return struct.Struct(f">{head_size}siQqii").pack
