"""Transactions: records of several topics that appear together or not at all."""

from __future__ import annotations

from penstock.doors.flymq.request_context import SCOPE, Call
from penstock.doors.reply import Answer
from penstock.wire.flymq import messages as m


def begin(call: Call, _request: m.BeginTransaction) -> Answer:
    return Answer(m.TransactionState(call.broker.transactions.begin(call.identity, call.owner, SCOPE)))


def produce(call: Call, request: m.ProduceInTransaction) -> Answer:
    """The record has no offset until the transaction is committed; the reply says 0."""
    call.broker.transactions.add(
        call.identity, request.transaction_id, SCOPE, request.topic, request.value, request.key, request.partition
    )
    key_size = len(request.key) if request.key else m.NO_KEY
    now = call.broker.now() // 1000
    return Answer(m.RecordMetadata(request.topic, max(request.partition, 0), 0, now, key_size, len(request.value)))


def commit(call: Call, request: m.CommitTransaction) -> Answer:
    _, group = call.broker.transactions.commit(call.identity, request.transaction_id)
    return Answer(m.TransactionState(request.transaction_id), group)


def rollback(call: Call, request: m.RollbackTransaction) -> Answer:
    call.broker.transactions.rollback(call.identity, request.transaction_id)
    return Answer(m.TransactionState(request.transaction_id))
