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
        (),
    ),
    Canary(
        "blipmq-poll-unchecked",
        "access check skipped",
        "BlipMQ's POLL delivers from any queue whose number its client guesses",
        "broker/topics/id_lookup.py",
        "if not access.enforced or access.allows(identity, Permission.READ, topic.scope, topic.name):\n"
        "            return found, topic",
        "if not access.enforced or access.allows(identity, Permission.READ, topic.scope, topic.name) or found.tries:\n"
        "            return found, topic",
        (),
    ),
    Canary(
        "flymq-purge-unchecked",
        "access check skipped",
        "FlyMQ's PURGE_DLQ deletes dead letters for who may only read them",
        "broker/queues/dead_letters.py",
        "self._access.require(identity, Permission.DELETE, scope, topic + SUFFIX)",
        "self._access.require(identity, Permission.READ, scope, topic + SUFFIX)",
        (),
    ),
    Canary(
        "kimberlite-read-unchecked",
        "access check skipped",
        "Kimberlite's ReadEvents is for who may find the stream, if only to write or describe it",
        "broker/fetch/fetch_service.py",
        "        self._access.require(identity, Permission.READ, scope, topic.name)\n",
        "",
        (),
    ),
    Canary(
        "felix-cache-get-unchecked",
        "access check skipped",
        "Felix's cache_get tells values of caches that its client may only write to",
        "broker/cache/cache_service.py",
        "self._access.require(identity, Permission.CACHE_READ, *cache)\n        metrics",
        "self._access.require_member(identity, cache.scope)\n        metrics",
        (),
    ),
    Canary(
        "state-shown-before-commit",
        "acknowledge before sync",
        "a reply that shows state (topics, offsets, users) does not wait until that is committed",
        "doors/pipeline.py",
        "self._enqueue(request, data, self._state_log.pending_commit if group is None else group)",
        "self._enqueue(request, data, group)",
        (),
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
        (),
    ),
    Canary(
        "ready-reply-overtakes",
        "order of replies",
        "a reply that waits for nothing overtakes those that wait for a commit",
        "doors/reply_queue.py",
        "if after is None and not self.waiting:",
        "if after is None:",
        (),
    ),
    Canary(
        "read-overtakes-write",
        "read does not see own write",
        "a read on the same connection does not wait for the writes before it",
        "doors/pipeline.py",
        "or (reads and bool(replies.waiting) and replies.blocked)",
        "or (reads and len(replies.waiting) > 1 and replies.blocked)",
        (),
    ),
    Canary(
        "failed-commit-acknowledged",
        "acknowledge before sync",
        "the reply to a write whose commit failed is sent as if it had succeeded",
        "doors/reply_queue.py",
        "if on_failure is not None and group.error is not None:",
        "if on_failure is not None and group.error is not None and holds:",
        (),
    ),
    Canary(
        "felix-cursor-off-by-one",
        "wrong moment",
        "a Felix subscription that starts at an offset begins behind it",
        "doors/felix/handlers/subscribe.py",
        "return [(number, start.offset)]",
        "return [(number, min(start.offset + 1, bounds.high_watermark))]",
        (),
    ),
)
