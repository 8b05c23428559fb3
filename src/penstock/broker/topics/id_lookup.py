"""Lookup by id: streams and queues, which clients identify by a number instead of a tenant and a name. Numbers can be
guessed, so an identity that may not use an object does not learn whether it exists.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import AccessDenied, QueueNotFound, StreamNotFound
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.queues.queue import Queue
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state import State, Topic

_USES: Final = (Permission.DESCRIBE, Permission.READ, Permission.WRITE)


def stream_id(topic: int, partition: int = 0) -> int:
    """The id of a stream, which is one partition of a topic: the topic's id in the low 32 bits, the partition above."""
    return topic + (partition << 32)


def stream(
    state: State,
    access: Access,
    identity: Identity,
    scope: Scope,
    id: int,  # noqa: A002 - it is the stream's id
) -> tuple[Topic, int]:
    """The topic and the partition's number. Raises StreamNotFound, also for a stream of another tenant or one that this
    identity may not use; AccessDenied for an identity without any permission in the scope.

    This does not authorize reads or writes: callers check those permissions.
    """
    topic, partition = state.topics_by_id.get(id & 0xFFFFFFFF), id >> 32
    there = topic is not None and topic.scope == scope and 0 <= partition < topic.partitions
    if topic is not None and there:
        name = topic.name
        if not access.enforced or any(access.allows(identity, use, scope, name) for use in _USES):
            return topic, partition
    access.require_member(identity, scope)
    raise StreamNotFound(id)


def queue(state: State, access: Access, identity: Identity, id: int) -> tuple[Queue, Topic]:  # noqa: A002
    """A queue that this identity may read. With access control, a missing queue and a forbidden one raise the same
    error.
    """
    found = state.queues.get(id)
    if found is not None:
        topic = state.topics_by_id[found.topic]
        if not access.enforced or access.allows(identity, Permission.READ, topic.scope, topic.name):
            return found, topic
    if access.enforced:
        where = DEFAULT_SCOPE if found is None else topic.scope
        access.on_denied(identity, Permission.READ, where, f"queue {id}")
        raise AccessDenied(f"'{identity.name}' may not read queue {id}")
    raise QueueNotFound(f"There is no queue {id}")
