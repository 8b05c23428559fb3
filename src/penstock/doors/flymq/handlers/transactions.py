"""Transactions: records of several topics that appear together or not at all."""

from __future__ import annotations

from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m


def begin(context: FlyMqContext, _request: m.BeginTransaction) -> Reply:
    return Reply(m.TransactionState(context.broker.transactions.begin(context.identity, context.owner, context.scope)))


def produce(context: FlyMqContext, request: m.ProduceInTransaction) -> Reply:
    """The record gets its offset when the transaction is committed; the reply has 0."""
    record = (request.topic, request.value, request.key, request.partition)
    headers = tuple(request.headers)
    context.broker.transactions.add(context.identity, request.transaction_id, context.scope, *record, headers=headers)
    key_size = len(request.key) if request.key else m.NO_KEY
    now = context.broker.now() // 1000
    return Reply(m.RecordMetadata(request.topic, max(request.partition, 0), 0, now, key_size, len(request.value)))


def commit(context: FlyMqContext, request: m.CommitTransaction) -> Reply:
    _, group = context.broker.transactions.commit(context.identity, request.transaction_id)
    return Reply(m.TransactionState(request.transaction_id), group)


def rollback(context: FlyMqContext, request: m.RollbackTransaction) -> Reply:
    context.broker.transactions.rollback(context.identity, request.transaction_id)
    return Reply(m.TransactionState(request.transaction_id))
