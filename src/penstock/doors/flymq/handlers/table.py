"""Every opcode with its handler. An opcode that is not here is unknown."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Permission
from penstock.doors.flymq.handlers import (
    audit,
    cluster,
    dead_letters,
    fetch,
    groups,
    records,
    schemas,
    scope,
    topics,
    transactions,
    users,
)
from penstock.doors.handlers import Handler, logs_in, reads, writes
from penstock.wire.flymq.opcodes import Op

ADMIN: Final = Permission.ADMIN
ALTER: Final = Permission.ALTER
AUDIT: Final = Permission.AUDIT
COMMIT: Final = Permission.COMMIT
DELETE: Final = Permission.DELETE
DESCRIBE: Final = Permission.DESCRIBE
READ: Final = Permission.READ
WRITE: Final = Permission.WRITE

HANDLERS: Final[dict[int, Handler]] = {
    Op.PRODUCE: writes(records.produce, WRITE),
    Op.CONSUME: reads(records.consume, READ),
    Op.CREATE_TOPIC: writes(topics.create, ALTER),
    Op.METADATA: reads(topics.metadata, DESCRIBE),
    Op.SUBSCRIBE: reads(groups.subscribe, READ),
    Op.COMMIT: writes(groups.commit, COMMIT),
    Op.FETCH: reads(fetch.FlyMqFetch, READ),
    Op.LIST_TOPICS: reads(topics.list_topics, DESCRIBE),
    Op.DELETE_TOPIC: writes(topics.delete, DELETE),
    Op.CONSUME_ZERO_COPY: reads(records.consume, READ),
    Op.FETCH_BINARY: reads(fetch.FlyMqFetch, READ),
    Op.PRODUCE_BATCH: writes(records.produce_batch, WRITE),
    Op.PRODUCE_RECORDS: writes(records.produce_records, WRITE),
    Op.FETCH_RECORDS: reads(fetch.FlyMqRecordFetch, READ),
    Op.REGISTER_SCHEMA: writes(schemas.register, ALTER),
    Op.GET_SCHEMA: reads(schemas.get, DESCRIBE),
    Op.LIST_SCHEMAS: reads(schemas.list_schemas, DESCRIBE),
    Op.VALIDATE_SCHEMA: reads(schemas.validate, DESCRIBE),
    Op.PRODUCE_WITH_SCHEMA: writes(records.produce_with_schema, WRITE),
    Op.DELETE_SCHEMA: writes(schemas.delete, ALTER),
    Op.SET_COMPATIBILITY: writes(schemas.set_compatibility, ALTER),
    Op.FETCH_DLQ: reads(dead_letters.fetch, READ),
    Op.REPLAY_DLQ: reads(dead_letters.replay, WRITE),
    Op.PURGE_DLQ: reads(dead_letters.purge, DELETE),
    Op.PRODUCE_DELAYED: writes(records.produce_delayed, WRITE),
    Op.CANCEL_DELAYED: writes(records.cancel_delayed, WRITE),
    Op.PRODUCE_WITH_TTL: writes(records.produce_with_ttl, WRITE),
    Op.TXN_BEGIN: writes(transactions.begin, WRITE),
    Op.TXN_COMMIT: writes(transactions.commit),  # only by the connection that began it
    Op.TXN_ROLLBACK: writes(transactions.rollback),  # the same
    Op.TXN_PRODUCE: writes(transactions.produce, WRITE),
    Op.CLUSTER_JOIN: reads(cluster.join, ADMIN),
    Op.CLUSTER_LEAVE: reads(cluster.leave, ADMIN),
    Op.CLUSTER_STATUS: reads(cluster.status, DESCRIBE),
    Op.CLUSTER_METADATA: reads(cluster.metadata, DESCRIBE),
    Op.GET_OFFSET: reads(groups.get_offset, READ),
    Op.RESET_OFFSET: reads(groups.reset_offset, COMMIT),
    Op.LIST_GROUPS: reads(groups.list_groups, DESCRIBE),
    Op.DESCRIBE_GROUP: reads(groups.describe, DESCRIBE),
    Op.GET_LAG: reads(groups.get_lag, READ),
    Op.DELETE_GROUP: writes(groups.delete, DELETE),
    Op.SEEK_TO_TIMESTAMP: reads(groups.seek_to_timestamp, READ),
    Op.AUTH: logs_in(reads(users.authenticate)),
    Op.WHOAMI: reads(users.who_am_i),
    Op.USER_CREATE: reads(users.create, ADMIN),
    Op.USER_DELETE: writes(users.delete, ADMIN),
    Op.USER_UPDATE: writes(users.update, ADMIN),
    Op.USER_LIST: reads(users.list_users, ADMIN),
    Op.USER_GET: reads(users.get, ADMIN),
    Op.ACL_SET: writes(users.set_acl, ADMIN),
    Op.ACL_GET: reads(users.get_acl, ADMIN),
    Op.ACL_DELETE: writes(users.delete_acl, ADMIN),
    Op.ACL_LIST: reads(users.list_acls, ADMIN),
    Op.PASSWORD_CHANGE: reads(users.change_password, ADMIN),
    Op.ROLE_LIST: reads(users.list_roles),
    Op.ROLE_SET: writes(users.set_role, ADMIN),
    Op.ROLE_DELETE: writes(users.delete_role, ADMIN),
    Op.USE_SCOPE: reads(scope.use),  # for every identity: each request there is checked
    Op.AUDIT_QUERY: reads(audit.query, AUDIT),
    Op.AUDIT_EXPORT: reads(audit.export, AUDIT),
}
