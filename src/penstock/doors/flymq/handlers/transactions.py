"""Transactions: records of several topics that appear together or not at all."""

from __future__ import annotations

from penstock.doors.flymq.request_context import SCOPE, RequestContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m


def begin(call: RequestContext, _request: m.BeginTransaction) -> Reply:
    return Reply(m.TransactionState(call.broker.transactions.begin(call.identity, call.owner, SCOPE)))


def produce(call: RequestContext, request: m.ProduceInTransaction) -> Reply:
    """The record has no offset until the transaction is committed; the reply says 0."""
    call.broker.transactions.add(
        call.identity, request.transaction_id, SCOPE, request.topic, request.value, request.key, request.partition
    )
    key_size = len(request.key) if request.key else m.NO_KEY
    now = call.broker.now() // 1000
    return Reply(m.RecordMetadata(request.topic, max(request.partition, 0), 0, now, key_size, len(request.value)))


def commit(call: RequestContext, request: m.CommitTransaction) -> Reply:
    _, group = call.broker.transactions.commit(call.identity, request.transaction_id)
    return Reply(m.TransactionState(request.transaction_id), group)


def rollback(call: RequestContext, request: m.RollbackTransaction) -> Reply:
    call.broker.transactions.rollback(call.identity, request.transaction_id)
    return Reply(m.TransactionState(request.transaction_id))
