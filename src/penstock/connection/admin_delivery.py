"""Administration of deliveries: queues, dead letters, delayed records, open transactions; and of caches."""

from __future__ import annotations

from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients.http.requests import call, change
from penstock.connection import views as v
from penstock.connection.admin_requests import all_pages, ask
from penstock.connection.records import milliseconds


class Queues:
    """Work queues, by their id."""

    @procedure_method
    def list(self) -> Procedure[list[v.QueueInfo]]:
        return (yield from all_pages(v.QueueInfo, "queues"))

    @procedure_method
    def get(self, id: int) -> Procedure[v.QueueInfo]:  # noqa: A002 - it is the queue's id
        return (yield from ask(call("GET", "queues", str(id), reply=v.QueueInfo)))

    @procedure_method
    def delete(self, id: int) -> Procedure[None]:  # noqa: A002 - it is the queue's id
        """Delete a queue and its delivery state; the records stay in their topic."""
        yield from ask(change("DELETE", "queues", str(id)))


class DeadLetterTopics:
    """Records that could not be delivered, or do not match their topic's schema."""

    @procedure_method
    def topics(self) -> Procedure[list[v.DeadLetterTopic]]:
        """Topics that have dead letters."""
        return (yield from all_pages(v.DeadLetterTopic, "dead-letters"))

    @procedure_method
    def list(self, topic: str) -> Procedure[list[v.DeadLetterInfo]]:
        """All dead letters of a topic, oldest first."""
        return (yield from all_pages(v.DeadLetterInfo, "topics", topic, "dead-letters"))

    @procedure_method
    def replay(self, topic: str, id: str) -> Procedure[v.ReplayedLetter]:  # noqa: A002 - it is the letter's id
        """Store a dead letter in its topic again, and remove it from the dead letters."""
        return (yield from ask(call("POST", "topics", topic, "dead-letters", id, "replay", reply=v.ReplayedLetter)))

    @procedure_method
    def purge(self, topic: str) -> Procedure[None]:
        """Delete all dead letters of a topic."""
        yield from ask(change("DELETE", "topics", topic, "dead-letters"))


class Delayed:
    """Records with a delay that have not appeared yet."""

    @procedure_method
    def list(self) -> Procedure[list[v.DelayedRecord]]:
        return (yield from all_pages(v.DelayedRecord, "delayed"))

    @procedure_method
    def cancel(self, id: int) -> Procedure[None]:  # noqa: A002 - it is the record's id
        """Cancel a record before it appears."""
        yield from ask(change("DELETE", "delayed", str(id)))


class Transactions:
    """Open transactions, for administrators."""

    @procedure_method
    def list(self) -> Procedure[list[v.OpenTransaction]]:
        return (yield from all_pages(v.OpenTransaction, "transactions"))

    @procedure_method
    def abort(self, id: str) -> Procedure[None]:  # noqa: A002 - it is the transaction's id
        """Roll back a transaction of any client."""
        yield from ask(change("DELETE", "transactions", id))


class Caches:
    """Caches, by name. Programs find more methods in `connection.cache`."""

    @procedure_method
    def list(self) -> Procedure[list[v.CacheInfo]]:
        """Caches that hold at least one key."""
        return (yield from all_pages(v.CacheInfo, "caches"))

    @procedure_method
    def get(self, cache: str, key: str) -> Procedure[bytes]:
        """A value. Raises NotFound if there is none."""
        return (yield from ask(call("GET", "caches", cache, key, reply=v.CachedValue))).value

    @procedure_method
    def put(self, cache: str, key: str, value: bytes, ttl: float | None = None) -> Procedure[None]:
        """Store a value, for `ttl` seconds if given."""
        life = {} if ttl is None else {"ttl_ms": milliseconds(ttl, "ttl")}
        yield from ask(change("PUT", "caches", cache, key, body={"value": value, **life}))

    @procedure_method
    def delete(self, cache: str, key: str) -> Procedure[None]:
        """Remove a key. Raises NotFound if there is none."""
        yield from ask(change("DELETE", "caches", cache, key))
