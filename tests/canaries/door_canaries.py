"""Bugs at the doors: an access check that one operation of each lacks, and replies that come too early or too late."""

from __future__ import annotations

from typing import Final

from tests.canaries.canary import Canary

CANARIES: Final = (
    Canary(
        "rustlog-offset-fetch-unchecked",
        "access check skipped",
        "RustLog's OffsetFetch tells offsets of topics that its client may not read",
        "broker/groups/groups.py",
        "self._access.require(identity, Permission.READ, scope, topic)\n        return rules.committed(",
        "return rules.committed(",
        (
            "tests/doors/rustlog/test_permissions.py::test_a_request_is_denied_without_its_permission",
            "tests/broker/security/test_access.py::test_every_operation_works_with_one_or_two_permissions_and_no_other[groups.committed]",
        ),
    ),
    Canary(
        "blipmq-poll-unchecked",
        "access check skipped",
        "BlipMQ's POLL delivers from any queue whose number its client guesses",
        "broker/topics/id_lookup.py",
        "if not access.enforced or access.allows(identity, Permission.READ, topic.scope, topic.name):\n"
        "            return found, topic",
        "if topic.scope == DEFAULT_SCOPE:\n            return found, topic",
        (
            "tests/doors/blipmq/test_session.py::test_who_may_not_read_a_topic_learns_nothing_of_its_queues",
            "tests/doors/blipmq/test_permissions.py::test_a_frame_is_denied_without_its_permission",
            "tests/broker/security/test_access.py::test_every_operation_works_with_one_or_two_permissions_and_no_other[queues.dequeue]",
        ),
    ),
    Canary(
        "flymq-purge-unchecked",
        "access check skipped",
        "FlyMQ's PURGE_DLQ deletes dead letters for who may only read them",
        "broker/queues/dead_letters.py",
        "self._access.require(identity, Permission.DELETE, scope, topic + SUFFIX)\n            group =",
        "self._access.require(identity, Permission.READ, scope, topic + SUFFIX)\n            group =",
        (
            "tests/doors/flymq/test_security.py::test_who_lacks_what_it_needs_is_denied_and_nothing_happens",
            "tests/broker/queues/test_dead_letters.py::test_the_rights_to_the_dead_letters_and_to_the_topic_decide",
        ),
    ),
    Canary(
        "kimberlite-read-unchecked",
        "access check skipped",
        "Kimberlite's ReadEvents is for who may find the stream, if only to write or describe it",
        "broker/fetch/fetch_service.py",
        "        self._access.require(identity, READ, scope, topic.name)\n",
        "",
        (
            "tests/doors/kimberlite/test_permissions.py::test_a_request_is_denied_without_its_permission",
            "tests/broker/security/test_access.py::test_every_operation_works_with_one_or_two_permissions_and_no_other[fetch.plan_stream]",
            "tests/doors/kimberlite/test_session.py::test_phi_streams_take_a_permission_of_their_own",
        ),
    ),
    Canary(
        "felix-cache-get-unchecked",
        "access check skipped",
        "Felix's cache_get tells values of caches that its client may only write to",
        "broker/cache/cache_service.py",
        "self._access.require(identity, Permission.CACHE_READ, *cache)\n        metrics",
        "self._access.require_member(identity, cache.scope)\n        metrics",
        (
            "tests/doors/felix/test_states.py::test_a_request_is_denied_without_its_permission",
            "tests/broker/cache/test_cache_service.py::test_reading_and_writing_take_a_permission_each_on_the_caches_name",
        ),
    ),
    Canary(
        "state-shown-before-commit",
        "acknowledge before sync",
        "a reply that shows state (topics, offsets, users) does not wait until that is committed",
        "doors/pipeline.py",
        "self._enqueue(request, data, self._state_log.pending_commit if group is None else group)",
        "self._enqueue(request, data, group)",
        (
            "tests/doors/rustlog/test_session.py::test_nobody_is_shown_what_a_crash_could_take_back",
            "tests/doors/rustlog/test_gaps.py::test_a_reply_that_depends_on_a_removal_waits_until_that_is_kept",
        ),
    ),
    Canary(
        "reply-before-commit",
        "acknowledge before sync",
        "a reply leaves when it is the first that waits, whether or not its group is committed",
        "doors/reply_queue.py",
        "if group is None or group.state is not OPEN:\n                self._advance()",
        "if group is None or group.state is not OPEN or len(self.waiting) == 1:\n"
        "                self._ready.append(self.waiting.popleft()[1])\n"
        "                self._advance()",
        (
            "tests/doors/test_reply_queue.py::test_whatever_gets_ready_when_the_order_of_replies_is_that_of_requests",
            "tests/doors/flymq/test_session.py::test_no_reply_before_the_commit",
            "tests/doors/felix/test_publish.py::test_an_acknowledgement_waits_for_the_commit",
        ),
    ),
    Canary(
        "ready-reply-overtakes",
        "order of replies",
        "a reply that waits for nothing overtakes those that wait for a commit",
        "doors/reply_queue.py",
        "if not self.waiting and (after is None or after.state is COMMITTED):",
        "if after is None or after.state is COMMITTED:",
        (
            "tests/doors/test_reply_queue.py::test_whatever_gets_ready_when_the_order_of_replies_is_that_of_requests",
            "tests/doors/rustlog/test_session.py::test_replies_keep_the_order_of_requests",
        ),
    ),
    Canary(
        "read-overtakes-write",
        "read does not see own write",
        "a read on the same connection does not wait for the writes before it",
        "doors/pipeline.py",
        "or (reads and bool(replies.waiting) and replies.blocked)",
        "or (reads and len(replies.waiting) > 1 and replies.blocked)",
        (
            "tests/doors/kimberlite/test_operations.py::test_a_client_reads_its_own_writes_without_waiting_for_them",
            "tests/doors/rustlog/test_session.py::test_a_read_that_waits_is_held_and_the_requests_behind_it_too",
        ),
    ),
    Canary(
        "failed-commit-acknowledged",
        "acknowledge before sync",
        "the reply to a write whose commit failed is sent as if it had succeeded",
        "doors/reply_queue.py",
        "if on_failure is not None and group.error is not None:",
        "if on_failure is not None and group.error is None:",
        (
            "tests/doors/test_reply_queue.py::test_if_the_group_fails_each_reply_is_replaced",
            "tests/doors/rustlog/test_session.py::test_each_request_that_waits_hears_of_a_failed_commit_and_the_rest_goes_on",
            "tests/doors/flymq/test_session.py::test_a_failed_commit_is_told_to_each",
        ),
    ),
    Canary(
        "failed-commit-acknowledged-alone",
        "acknowledge before sync",
        "the only reply that waits for a group is sent as it is when that group is done, also if it failed",
        "doors/reply_queue.py",
        "waiting[0][0] is group and group.state is COMMITTED and",
        "waiting[0][0] is group and",
        (
            "tests/doors/test_reply_queue.py::test_if_the_group_fails_the_only_reply_is_replaced",
            "tests/doors/flymq/test_session.py::test_a_failed_commit_is_told_to_each",
        ),
    ),
    Canary(
        "felix-cursor-off-by-one",
        "wrong moment",
        "a Felix subscription that starts at an offset begins behind it",
        "doors/felix/handlers/subscribe.py",
        "return [(number, start.offset)]",
        "return [(number, min(start.offset + 1, bounds.high_watermark))]",
        (
            "tests/doors/felix/test_subscriptions.py::test_from_an_offset_and_from_the_end",
            "tests/e2e/test_felix_client.py::test_a_subscription_begins_with_the_event_whose_offset_it_names",
        ),
    ),
)
