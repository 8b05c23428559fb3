"""Every opcode that can be asked, and what carries it out. An opcode that is not here is unknown."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.doors.flymq.handlers import (
    audit,
    cluster,
    dead_letters,
    fetch,
    groups,
    records,
    schemas,
    topics,
    transactions,
    users,
)
from penstock.doors.flymq.request_context import Handler
from penstock.wire.flymq.opcodes import Op


class Operation(NamedTuple):
    carry_out: Handler
    reads: bool  # waits until what this connection wrote before is committed, so that it finds it


def _writes(handler: Handler) -> Operation:
    return Operation(handler, reads=False)


def _reads(handler: Handler) -> Operation:
    return Operation(handler, reads=True)


OPERATIONS: Final[dict[int, Operation]] = {
    Op.PRODUCE: _writes(records.produce),
    Op.CONSUME: _reads(records.consume),
    Op.CREATE_TOPIC: _writes(topics.create),
    Op.METADATA: _reads(topics.metadata),
    Op.SUBSCRIBE: _reads(groups.subscribe),
    Op.COMMIT: _writes(groups.commit),
    Op.FETCH: _reads(fetch.fetch),
    Op.LIST_TOPICS: _reads(topics.list_topics),
    Op.DELETE_TOPIC: _writes(topics.delete),
    Op.CONSUME_ZERO_COPY: _reads(records.consume),
    Op.FETCH_BINARY: _reads(fetch.fetch),
    Op.PRODUCE_BATCH: _writes(records.produce_batch),
    Op.REGISTER_SCHEMA: _writes(schemas.register),
    Op.GET_SCHEMA: _reads(schemas.get),
    Op.LIST_SCHEMAS: _reads(schemas.list_schemas),
    Op.VALIDATE_SCHEMA: _reads(schemas.validate),
    Op.PRODUCE_WITH_SCHEMA: _writes(records.produce_with_schema),
    Op.DELETE_SCHEMA: _writes(schemas.delete),
    Op.SET_COMPATIBILITY: _writes(schemas.set_compatibility),
    Op.FETCH_DLQ: _reads(dead_letters.fetch),
    Op.REPLAY_DLQ: _reads(dead_letters.replay),
    Op.PURGE_DLQ: _reads(dead_letters.purge),
    Op.PRODUCE_DELAYED: _writes(records.produce_delayed),
    Op.CANCEL_DELAYED: _writes(records.cancel_delayed),
    Op.PRODUCE_WITH_TTL: _writes(records.produce_with_ttl),
    Op.TXN_BEGIN: _writes(transactions.begin),
    Op.TXN_COMMIT: _writes(transactions.commit),
    Op.TXN_ROLLBACK: _writes(transactions.rollback),
    Op.TXN_PRODUCE: _writes(transactions.produce),
    Op.CLUSTER_JOIN: _reads(cluster.join),
    Op.CLUSTER_LEAVE: _reads(cluster.leave),
    Op.CLUSTER_STATUS: _reads(cluster.status),
    Op.CLUSTER_METADATA: _reads(cluster.metadata),
    Op.GET_OFFSET: _reads(groups.get_offset),
    Op.RESET_OFFSET: _reads(groups.reset_offset),
    Op.LIST_GROUPS: _reads(groups.list_groups),
    Op.DESCRIBE_GROUP: _reads(groups.describe),
    Op.GET_LAG: _reads(groups.get_lag),
    Op.DELETE_GROUP: _writes(groups.delete),
    Op.SEEK_TO_TIMESTAMP: _reads(groups.seek_to_timestamp),
    Op.AUTH: _reads(users.authenticate),
    Op.WHOAMI: _reads(users.who_am_i),
    Op.USER_CREATE: _reads(users.create),
    Op.USER_DELETE: _writes(users.delete),
    Op.USER_UPDATE: _writes(users.update),
    Op.USER_LIST: _reads(users.list_users),
    Op.USER_GET: _reads(users.get),
    Op.ACL_SET: _writes(users.set_acl),
    Op.ACL_GET: _reads(users.get_acl),
    Op.ACL_DELETE: _writes(users.delete_acl),
    Op.ACL_LIST: _reads(users.list_acls),
    Op.PASSWORD_CHANGE: _reads(users.change_password),
    Op.ROLE_LIST: _reads(users.list_roles),
    Op.ROLE_SET: _writes(users.set_role),
    Op.ROLE_DELETE: _writes(users.delete_role),
    Op.AUDIT_QUERY: _reads(audit.query),
    Op.AUDIT_EXPORT: _reads(audit.export),
}
