"""Produce: append clients' records to a topic, after checking access, quotas, sizes and the topic's schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from typing import NamedTuple, TypeAlias

from penstock.broker.errors import InvalidArgument
from penstock.broker.names import Scope
from penstock.broker.produce.partitioning import ANY, Partitioner
from penstock.broker.produce.validation import ProducedPartitioned, RecordValidator, by_partitions
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import WRITE, Access, Identity
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.fanout import FanoutLog
from penstock.broker.tenancy.quotas import Quotas
from penstock.broker.topics import topic_rules
from penstock.log.batch import Headers
from penstock.log.engine import Appended, CommitGroup, Producer, Records, partition_id


class ProducerBatch(NamedTuple):
    """The identification of an idempotent producer's batch; see `penstock.log.engine.Producer`."""

    name: str
    epoch: int
    sequence: int


AppendedRecord: TypeAlias = tuple[CommitGroup | None, int, int, int]
"""The outcome of `ProduceService.append_record`: the group, and, valid once that is committed, partition, offset and
timestamp (µs since 1970). A plain tuple, because a named one takes several times as long to create."""


class ProduceService:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        validator: RecordValidator,
        partitioner: Partitioner,
        quotas: Quotas,
        fanout: FanoutLog,
        metrics: Metrics,
    ) -> None:
        self._state_log = state_log
        self._current = state_log.current
        self._engine = state_log.engine
        self._access = access
        self._validator = validator
        self._partitioner = partitioner
        self._quotas = quotas
        self._tenants_over_quota = quotas.over
        self._fanout = fanout
        self._subscribed = fanout.subscribed
        self._metrics = metrics

    def append(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        expected_offset: int | None = None,
        producer: Producer | None = None,
        allow_dead_letters: bool = True,
        door: int | None = None,
    ) -> Appended:
        """Append the records to one partition, contiguously, as one entry of the log; durable once the returned group
        is committed. `headers` are set by the broker itself and not counted in sizes. `door` overrides the door of the
        current caller.

        A record that does not match the topic's schema is refused, or becomes a dead letter; see
        `RecordValidator.validate`. The result describes the other records; if there are none, it has the next offset.
        """
        metrics = self._metrics
        started = metrics.timer()
        self._access.require(identity, WRITE, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        if door is None:
            door = metrics.caller.number
        if producer is not None and (repeated := self._engine.repeat_of(producer)) is not None:
            return repeated  # even if new records would be refused now
        if self._tenants_over_quota:
            self._quotas.check_room(scope.tenant)
        if found.settings.schema is None:
            size = self._validator.measure(values, keys)
            place = partition_id(found.id, partition)
            plain = keys is None and headers is None and expires is None
            if plain and len(values) == 1 and expected_offset is None and producer is None:
                appended = self._engine.append_record(place, values[0], door)
            else:
                records = Records(place, values, keys, headers, expires, expected_offset)
                appended = self._engine.append((records,), (), producer, door)
            if self._subscribed and expires is None and not appended.repeated:
                self._fanout.offer(place, appended, values)
        else:
            validated = self._validator.validate(
                found,
                [partition] * len(values),
                list(values),
                keys,
                headers,
                expires,
                allow_dead_letters=allow_dead_letters,
            )  # fmt: skip
            size, writes = validated.size, validated.writes
            if len(validated.dead_lettered) == len(values):
                writes = [Records(partition_id(found.id, partition), ()), *writes]
            writes[0].expected_offset = expected_offset
            appended = self._state_log.append(writes, validated.events, producer, door)
            metrics.records_diverted += 0 if appended.repeated else len(validated.dead_lettered)
        if not appended.repeated:
            metrics.produced(appended.group, len(values), size, started)
            if headers is not None and metrics.tracing is not None:
                metrics.tracing.produced(scope, topic, headers, len(values), started, appended.group)
        return appended

    def append_record(
        self, identity: Identity, scope: Scope, topic: str, value: bytes, partition: int
    ) -> AppendedRecord:
        """Append one record without key, headers and expiry to the requested partition, or to `ANY`: the short way for
        clients that send one record at a time. If the topic has a schema, nothing is done, and there is no group.
        """
        metrics = self._metrics
        started = metrics.timer()
        self._access.require(identity, WRITE, scope, topic)
        found = topic_rules.find(self._current(), scope, topic)
        if self._tenants_over_quota:
            self._quotas.check_room(scope.tenant)
        if found.settings.schema is not None:
            return None, 0, 0, 0
        chosen = self._partitioner.choose_one(found, partition)
        size = self._validator.measure_one(value)
        place = partition_id(found.id, chosen)
        appended = self._engine.append_record(place, value, metrics.caller.number)
        metrics.produced(appended.group, 1, size, started)
        if self._subscribed:
            self._fanout.offer(place, appended, [value])
        return appended.group, chosen, appended.base_offsets[0], appended.timestamp

    def append_partitioned(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        partitions: Sequence[int],
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        allow_dead_letters: bool = True,
    ) -> ProducedPartitioned:
        """Append the records as one entry of the log, each to its requested partition, or else by key or round-robin;
        see `Partitioner.choose` and, for records that do not match the topic's schema, `RecordValidator.validate`.
        """
        metrics = self._metrics
        started = metrics.timer()
        self._access.require(identity, WRITE, scope, topic)
        found = topic_rules.find(self._current(), scope, topic)
        if self._tenants_over_quota:
            self._quotas.check_room(scope.tenant)
        if len(values) == 1 and keys is None and headers is None and expires is None and found.settings.schema is None:
            return self._append_record(found, values, partitions, started)
        chosen = self._partitioner.choose(found, keys, partitions)
        tracing, door = None if headers is None else metrics.tracing, metrics.caller.number
        if len(values) == 1 and found.settings.schema is None:
            size = self._validator.measure(values, keys)
            records = Records(partition_id(found.id, chosen[0]), values, keys, headers, expires)
            appended = self._engine.append((records,), (), None, door)
            metrics.produced(appended.group, 1, size, started)
            if tracing is not None and headers is not None:
                tracing.produced(scope, topic, headers, 1, started, appended.group)
            return ProducedPartitioned(appended.group, chosen, appended.base_offsets, appended.timestamp, {})
        validated = self._validator.validate(
            found, chosen, values, keys, headers, expires, allow_dead_letters=allow_dead_letters
        )
        if validated.events:
            appended = self._state_log.append(validated.writes, validated.events, None, door)
        else:
            appended = self._engine.append(validated.writes, (), None, door)
        metrics.produced(appended.group, len(values), validated.size, started)
        if tracing is not None and headers is not None:
            tracing.produced(scope, topic, headers, len(values), started, appended.group)
        metrics.records_diverted += len(validated.dead_lettered)
        offsets = validated.offsets(appended.base_offsets)
        dead_lettered = {index: offsets[index] for index in validated.dead_lettered}
        return ProducedPartitioned(appended.group, validated.partitions, offsets, appended.timestamp, dead_lettered)

    def _append_record(
        self, topic: Topic, values: Sequence[bytes], partitions: Sequence[int], started: int
    ) -> ProducedPartitioned:
        """Append one record without key and headers: the fast path for clients that send one record at a time."""
        metrics = self._metrics
        chosen = self._partitioner.choose_one(topic, partitions[0])
        size = self._validator.measure(values, None)
        appended = self._engine.append_record(partition_id(topic.id, chosen), values[0], metrics.caller.number)
        metrics.produced(appended.group, 1, size, started)
        return ProducedPartitioned(appended.group, (chosen,), appended.base_offsets, appended.timestamp, {})

    def append_once(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        partitions: Sequence[int],
        headers: Sequence[Headers] | None,
        producer: ProducerBatch,
    ) -> ProducedPartitioned:
        """Like `append_partitioned`, but idempotent: a batch that its producer sends again is not stored again, and
        gets the reply of the first time, even after a restart. Records without a key and a partition go to a partition
        derived from the batch number, so that it is the same when the batch is repeated. A record that does not match
        the topic's schema refuses the batch, even if the topic keeps dead letters. Raises ProducerFenced,
        SequenceOutOfOrder.
        """
        metrics = self._metrics
        started = metrics.timer()
        self._access.require(identity, WRITE, scope, topic)
        found = topic_rules.find(self._current(), scope, topic)
        turn = producer.sequence % found.partitions
        wanted = [
            turn if number == ANY and not key else number
            for number, key in zip(partitions, repeat(None) if keys is None else keys, strict=keys is not None)
        ]
        chosen = self._partitioner.choose(found, keys, wanted)
        name = _producer_id(identity, scope, topic, producer.name)
        of = Producer(name, producer.epoch, producer.sequence, _owner(scope.tenant))
        if (repeated := self._engine.repeat_of(of)) is not None:
            placed = by_partitions(found, chosen, values)
            if len(placed.members) != len(repeated.base_offsets):
                raise InvalidArgument(f"Batch {producer.sequence} of this producer was another one")
            offsets = placed.offsets(repeated.base_offsets)
            return ProducedPartitioned(repeated.group, chosen, offsets, repeated.timestamp, {})
        if self._tenants_over_quota:
            self._quotas.check_room(scope.tenant)
        validated = self._validator.validate(found, chosen, values, keys, headers, allow_dead_letters=False)
        appended = self._state_log.append(validated.writes, (), of, metrics.caller.number)
        metrics.produced(appended.group, len(values), validated.size, started)
        if headers is not None and metrics.tracing is not None:
            metrics.tracing.produced(scope, topic, headers, len(values), started, appended.group)
        offsets = validated.offsets(appended.base_offsets)
        return ProducedPartitioned(appended.group, chosen, offsets, appended.timestamp, {})


def _producer_id(identity: Identity, scope: Scope, topic: str, name: str) -> bytes:
    """The log's id of a producer. The name is scoped: the same name used by another identity, or for another topic, is
    another producer.
    """
    whose = "\0".join((identity.name, identity.tenant or "", *scope, topic, name))
    return blake2b(whose.encode(), digest_size=24).digest()


@lru_cache(maxsize=1024)
def _owner(tenant: str) -> bytes:
    """The owner of a tenant's producers, as stored in the log."""
    return blake2b(tenant.encode(), digest_size=8).digest()
