"""The constants of FlyMQ: the header's and the operation codes.

Most codes are from the protocol's specification. `CLUSTER_METADATA`, `AUDIT_QUERY` and `AUDIT_EXPORT` were added to the
original later; `PRODUCE_BATCH`, `PRODUCE_RECORDS`, `FETCH_RECORDS`, `SET_COMPATIBILITY`, `ROLE_SET` and `ROLE_DELETE`
are Penstock's own, in numbers that the original does not use.
"""

from __future__ import annotations

import enum
from typing import Final

MAGIC: Final = 0xAF
VERSION: Final = 0x01
HEADER_SIZE: Final = 8  # magic u8, version u8, opcode u8, flags u8, length u32
MAX_PAYLOAD: Final = 33_554_432  # the largest length

FLAG_BINARY: Final = 0x01  # always set in our frames
COMPRESSION_MASK: Final = 0x0E
COMPRESSION_GZIP: Final = 0x02


class Op(enum.IntEnum):
    PRODUCE = 0x01
    CONSUME = 0x02
    CREATE_TOPIC = 0x03
    METADATA = 0x04
    SUBSCRIBE = 0x05
    COMMIT = 0x06
    FETCH = 0x07
    LIST_TOPICS = 0x08
    DELETE_TOPIC = 0x09
    CONSUME_ZERO_COPY = 0x0A
    FETCH_BINARY = 0x0B
    PRODUCE_BATCH = 0x0C
    PRODUCE_RECORDS = 0x0D
    FETCH_RECORDS = 0x0E
    USE_SCOPE = 0x0F

    REGISTER_SCHEMA = 0x10
    GET_SCHEMA = 0x11
    LIST_SCHEMAS = 0x12
    VALIDATE_SCHEMA = 0x13
    PRODUCE_WITH_SCHEMA = 0x14
    DELETE_SCHEMA = 0x15
    SET_COMPATIBILITY = 0x16

    FETCH_DLQ = 0x20
    REPLAY_DLQ = 0x21
    PURGE_DLQ = 0x22

    PRODUCE_DELAYED = 0x30
    CANCEL_DELAYED = 0x31
    PRODUCE_WITH_TTL = 0x35

    TXN_BEGIN = 0x40
    TXN_COMMIT = 0x41
    TXN_ROLLBACK = 0x42
    TXN_PRODUCE = 0x43

    CLUSTER_JOIN = 0x50
    CLUSTER_LEAVE = 0x51
    CLUSTER_STATUS = 0x52
    CLUSTER_METADATA = 0x53

    GET_OFFSET = 0x60
    RESET_OFFSET = 0x61
    LIST_GROUPS = 0x62
    DESCRIBE_GROUP = 0x63
    GET_LAG = 0x64
    DELETE_GROUP = 0x65
    SEEK_TO_TIMESTAMP = 0x66

    AUTH = 0x70
    AUTH_RESPONSE = 0x71  # never a request: the reply to AUTH
    WHOAMI = 0x72
    USER_CREATE = 0x73
    USER_DELETE = 0x74
    USER_UPDATE = 0x75
    USER_LIST = 0x76
    USER_GET = 0x77
    ACL_SET = 0x78
    ACL_GET = 0x79
    ACL_DELETE = 0x7A
    ACL_LIST = 0x7B
    PASSWORD_CHANGE = 0x7C
    ROLE_LIST = 0x7D
    ROLE_SET = 0x7E
    ROLE_DELETE = 0x7F

    AUDIT_QUERY = 0x80
    AUDIT_EXPORT = 0x81

    ERROR = 0xFF  # never a request: the reply to any failed request
