"""Bugs in what the broker makes of the log: transactions, queues, groups, delays, publications, access, SQL."""

from __future__ import annotations

from typing import Final

from tests.canaries.canary import Canary

CANARIES: Final = (
    Canary(
        "transaction-in-two-appends",
        "transaction split",
        "a transaction is committed by two appends: a crash between them leaves half of it",
        "broker/transactions/transactions.py",
        "appended = self._state_log.append(\n            writes, [*created, TransactionCommitted(id, now)], ",
        "self._state_log.append(writes[:1], created)\n"
        "        appended = self._state_log.append(\n            writes[1:], [TransactionCommitted(id, now)], ",
        (
            "tests/broker/transactions/test_transactions.py::test_a_crash_between_two_commit_groups_does_not_split_a_transaction",
            "tests/crash/test_transactions.py::test_a_crash_at_every_boundary_leaves_transactions_whole",
        ),
    ),
    Canary(
        "acknowledged-retry-redelivered",
        "redeliver after acknowledgement",
        "the acknowledgement of a message that was delivered twice is forgotten: it comes a third time",
        "broker/queues/queue.py",
        "for tag in event.settled:\n            _remove(tries, tag)",
        "for tag in event.settled:\n            tries.get(1, {}).pop(tag, None)",
        (
            "tests/broker/queues/test_queues.py::test_killed_at_any_point_it_delivers_every_message_and_none_too_often",
            "tests/broker/queues/test_queue_settle.py::test_each_tag_gets_its_own_answer",
        ),
    ),
    Canary(
        "group-position-not-committed",
        "cursor not persisted",
        "a subscription group's position is committed when a member leaves, not when it settles: lost by a kill",
        "broker/subscriptions/subscriptions.py",
        "if slot.holding.settle(count):",
        "if slot.holding.settle(count) and not self._slots:",
        (
            "tests/broker/subscriptions/test_subscriptions.py::test_positions_are_kept_once_for_each_commit",
            "tests/doors/kimberlite/test_subscriptions.py::test_a_group_goes_on_where_it_was_after_a_restart",
        ),
    ),
    Canary(
        "kimberlite-reads-expired",
        "expiry ignored at one door",
        "Kimberlite's ReadEvents returns records that have expired",
        "broker/fetch/fetch_service.py",
        "view = visible_read.view(state, topic, partition, self._clock())",
        "view = visible_read.view(state, topic, partition, 0)",
        (
            "tests/broker/fetch/test_visible_read.py::test_a_stream_that_is_named_by_its_number_shows_the_same_records",
            "tests/doors/kimberlite/test_operations.py::test_what_expired_is_passed_by_however_much_it_is",
        ),
    ),
    Canary(
        "blipmq-delivers-expired",
        "expiry ignored at one door",
        "BlipMQ delivers a message again although its own time is over",
        "broker/queues/queue.py",
        "return (0 < self.ttl <= now - stored) or 0 < expires <= now",
        "return 0 < self.ttl <= now - stored",
        (
            "tests/broker/queues/test_queue.py::test_a_message_expires_with_the_queue_s_limit_or_its_own_whichever_is_first",
            "tests/doors/blipmq/test_session.py::test_version_2_a_message_may_have_a_time_of_its_own",
        ),
    ),
    Canary(
        "key-masked-to-partition",
        "wrong partition",
        "a key's partition is right only if the number of partitions is a power of two",
        "broker/produce/partitioning.py",
        "chosen.append(fnv1a(key) % partitions)",
        "chosen.append(fnv1a(key) & (partitions - 1))",
        (
            "tests/broker/produce/test_partitioning.py::test_a_key_says_the_partition_and_takes_no_turn",
            "tests/broker/publications/test_partition_split.py::test_choices_are_those_of_the_partitioner",
            "tests/broker/produce/test_delays.py::test_keys_headers_and_partitions_are_kept",
        ),
    ),
    Canary(
        "delayed-too-early",
        "wrong moment",
        "a delayed record appears up to a second before it is due",
        "broker/produce/delays.py",
        "while heap and heap[0][0] <= now and len(due)",
        "while heap and heap[0][0] <= now + 1_000_000 and len(due)",
        (
            "tests/broker/produce/test_delays.py::test_a_record_appears_when_it_is_due_and_not_before",
            "tests/doors/flymq/test_session.py::test_delayed_records",
        ),
    ),
    Canary(
        "delayed-not-ended",
        "record stored twice",
        "of several delayed records that appear together, the last is not noted as done: it appears twice",
        "broker/produce/delays.py",
        "ended = [content.delayed.id for content in self._contents] + lost",
        "ended = [content.delayed.id for content in self._contents[: max(1, len(self._contents) - 1)]] + lost",
        (
            "tests/broker/produce/test_delays.py::test_many_that_are_due_at_once_all_appear_in_order_and_in_portions",
            "tests/broker/produce/test_ways_in.py::test_a_delayed_record_that_cannot_be_a_dead_letter_waits_on_and_keeps_nobody_waiting",
        ),
    ),
    Canary(
        "letter-replayed-twice",
        "record stored twice",
        "a dead letter that is being replayed by two clients is stored by both",
        "broker/queues/dead_letters.py",
        "if found.offset < bounds.start or state.removed.get(dlq_partition, NOTHING_REMOVED).has(found.offset):",
        "if found.offset < bounds.start:",
        (
            "tests/broker/queues/test_dead_letters.py::test_of_two_at_the_same_time_exactly_one_wins",
            "tests/doors/flymq/test_session.py::test_of_two_clients_that_replay_a_dead_letter_at_the_same_time_one_is_told_that_it_is_not_there",
        ),
    ),
    Canary(
        "replay-not-validated",
        "schema not enforced",
        "a dead letter that does not fit the topic's schema is replayed into it",
        "broker/queues/dead_letters.py",
        "            raise RecordRejected(mismatch[0])\n        event =",
        "        event =",
        (
            "tests/broker/produce/test_ways_in.py::test_a_record_has_to_fit_the_schema_that_the_topic_has_when_it_gets_there",
            "tests/doors/flymq/test_session.py::test_a_dead_letter_that_does_not_fit_the_topics_schema_is_not_replayed",
        ),
    ),
    Canary(
        "offset-of-partition-zero",
        "another's data",
        "a group that has no offset in a partition is given that of partition 0",
        "broker/groups/group.py",
        "return state.groups[scope][group][topic].get(partition)",
        "offsets = state.groups[scope][group][topic]\n        return offsets.get(partition, offsets.get(0))",
        (
            "tests/broker/groups/test_groups.py::test_where_one_begins_who_subscribes",
            "tests/doors/rustlog/test_session.py::test_commit_and_fetch_offsets",
        ),
    ),
    Canary(
        "topic-deny-ignored",
        "access check skipped",
        "who is not on a topic's own list gets in if a grant covers the topic",
        "broker/security/access.py",
        "if listed is False:\n            return any(Permission.ADMIN in grant.permissions for grant in fitting)",
        "if listed is False and not fitting:\n            return False",
        (
            "tests/broker/security/test_users.py::test_a_restricted_topic_is_closed_to_keys_and_grants_that_are_not_listed",
            "tests/doors/flymq/test_security.py::test_a_topic_that_a_list_keeps_from_others_is_denied_as_if_it_were_not_there",
        ),
    ),
    Canary(
        "tenant-binding-ignored",
        "another's data",
        "an identity that is bound to a tenant may do in others what a grant for all tenants says",
        "broker/security/access.py",
        "if identity.tenant is not None and identity.tenant != scope.tenant:",
        "if identity.tenant is not None and identity.tenant != scope.tenant and not self.grants:",
        (
            "tests/broker/security/test_access.py::test_an_identity_bound_to_a_tenant_cannot_act_in_another_one_whatever_is_granted",
            "tests/broker/security/test_keys.py::test_what_everyone_may_do_everywhere_a_key_may_do_in_its_tenant_only",
        ),
    ),
    Canary(
        "expired-key-accepted",
        "credential accepted",
        "a key is accepted after it has expired",
        "broker/security/key.py",
        'return "expired" if self.expires is not None and self.expires <= now else "active"',
        'return "expired" if self.expires is not None and self.expires <= 0 else "active"',
        (
            "tests/broker/security/test_keys.py::test_a_key_ends_when_its_time_has_come_also_for_who_is_in_already",
            "tests/doors/kimberlite/test_admin.py::test_a_key_expires",
        ),
    ),
    Canary(
        "publication-applied-twice",
        "record stored twice",
        "a batch of Spark's that is published again, because its reply was lost, is stored again",
        "broker/publications/publications.py",
        "if known is not None and request.batch <= known.batch:",
        "if known is not None and request.batch < known.batch:",
        (
            "tests/broker/publications/test_publications.py::test_a_batch_counts_once_also_after_a_restart",
            "tests/crash/test_publications.py::test_random_schedules",
        ),
    ),
    Canary(
        "metrics-for-everyone",
        "access check skipped",
        "the figures of all tenants are told to everyone",
        "broker/broker.py",
        'self.access.require(identity, Permission.METRICS, EVERYWHERE, "")',
        "self.access.require_member(identity, EVERYWHERE) if identity.tenant else None",
        (
            "tests/admin/test_http.py::test_metrics_need_a_grant_where_security_is_on",
            "tests/doors/rustlog/test_permissions.py::test_a_request_is_denied_without_its_permission",
        ),
    ),
    Canary(
        "sql-as-of-one-late",
        "wrong moment",
        "SQL as of a position shows a commit group that ends one behind it",
        "log/header_scan.py",
        "if low > batches.start and _group_end(tailer, file, index, low - 1) > position:",
        "if low > batches.start and _group_end(tailer, file, index, low - 1) > position + 1:",
        (
            "tests/log/test_header_scan.py::test_at_every_position_a_partition_has_the_records_of_groups_that_end_there_or_before",
            "tests/workers/sql/test_streams.py::test_at_every_position_a_stream_holds_what_had_been_appended_by_then",
        ),
    ),
)
