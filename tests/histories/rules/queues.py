"""Rules about queues: every record is delivered until it is acknowledged or given up, and not after that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.histories.evidence import Evidence, Finding, before, finding
from tests.histories.history import Operation

Key = tuple[str, str]  # queue, record


def _by_key(evidence: Evidence, kind: str) -> dict[Key, list[Operation]]:
    found: dict[Key, list[Operation]] = defaultdict(list)
    for operation in evidence.of(kind):
        found[operation.group, operation.ids[0]].append(operation)
    return found


def _letters(evidence: Evidence) -> Counter[Key]:
    return Counter((letter.group, letter.ids[0]) for letter in evidence.acknowledged("dead_letter"))


def _queued(evidence: Evidence) -> Iterator[tuple[Operation, str]]:
    """Every record of every queue."""
    for queue in evidence.acknowledged("subscribe"):
        for record in evidence.at.get(queue.place, {}).values():
            yield queue, record


def queued_are_delivered(evidence: Evidence) -> Iterator[Finding]:
    """Every record came to every queue at least once, or was given up there; or it can have expired."""
    delivered, letters = _by_key(evidence, "deliver"), _letters(evidence)
    for queue, record in _queued(evidence):
        key = queue.group, record
        if not queue.ttl_ms and key not in delivered and not letters[key]:
            yield finding(f"{record} never came to queue {queue.group}", queue)


def deliveries_are_of_records(evidence: Evidence) -> Iterator[Finding]:
    """Every delivery is of a stored record, and names its place in the log."""
    for delivery in evidence.of("deliver"):
        (record,) = delivery.ids
        there = evidence.at.get(delivery.place)
        if there is not None and there.get(delivery.offset or 0) != record:
            text = f"queue {delivery.group} got {record} as the one at {delivery.offset}, where "
            yield finding(text + f"{there.get(delivery.offset or 0)} is", delivery)


def nothing_after_its_acknowledgement(evidence: Evidence) -> Iterator[Finding]:
    """A record whose acknowledgement was accepted does not come again."""
    deliveries = _by_key(evidence, "deliver")
    for key, acks in _by_key(evidence, "ack").items():
        for ack in acks:
            late = [one for one in deliveries.get(key, ()) if before(ack, one)] if ack.acknowledged else []
            if late:
                yield finding(f"queue {key[0]} got {key[1]} {len(late)} times after its ack", ack, *late)
                break


def acknowledged_once(evidence: Evidence) -> Iterator[Finding]:
    """Of the acknowledgements of a record, a queue accepts one."""
    for (queue, record), acks in _by_key(evidence, "ack").items():
        accepted = [ack for ack in acks if ack.acknowledged]
        if len(accepted) > 1:
            yield finding(f"queue {queue}: {len(accepted)} acks of {record} were accepted", *accepted)


def attempts_are_limited(evidence: Evidence) -> Iterator[Finding]:
    """No record comes to a queue more often than it has attempts."""
    limits = {queue.group: queue.number for queue in evidence.acknowledged("subscribe")}
    for (queue, record), deliveries in _by_key(evidence, "deliver").items():
        limit = limits.get(queue)
        if limit is not None and len(deliveries) > limit:
            text = f"queue {queue} got {record} {len(deliveries)} times; {limit} are allowed"
            yield finding(text, *deliveries)


def dead_letters_account_for_what_was_given_up(evidence: Evidence) -> Iterator[Finding]:
    """A record that no acknowledgement can have settled is a dead letter, once; one whose acknowledgement was accepted
    is none."""
    acks, letters = _by_key(evidence, "ack"), _letters(evidence)
    for queue, record in _queued(evidence):
        key = queue.group, record
        known = acks.get(key, [])
        if letters[key] > 1:
            yield finding(f"{record} is a dead letter of queue {queue.group} {letters[key]} times", *known)
        if letters[key] and any(ack.acknowledged for ack in known):
            yield finding(f"{record} was acknowledged by queue {queue.group}, and given up", *known)
        if not letters[key] and not queue.ttl_ms and all(ack.rejected for ack in known):
            yield finding(f"{record} was given up by queue {queue.group}, and is no dead letter", queue, *known)


def dead_letters_tell_the_truth(evidence: Evidence) -> Iterator[Finding]:
    """A dead letter is of a queue that there is, of the record at its offset, and after all attempts."""
    queues = {queue.group: queue for queue in evidence.acknowledged("subscribe")}
    for letter in evidence.acknowledged("dead_letter"):
        queue = queues.get(letter.group)
        if queue is None or evidence.at.get(queue.place, {}).get(letter.offset or 0) != letter.ids[0]:
            yield finding(f"a dead letter of nothing: {letter.ids[0]}", letter)
        elif letter.number != queue.number:
            yield finding(f"{letter.ids[0]} was given up after {letter.number} attempts", letter)


def queues_run_dry(evidence: Evidence) -> Iterator[Finding]:
    """In the end a queue has nothing left."""
    for drained in evidence.acknowledged("drained"):
        if drained.number:
            yield finding(f"queue {drained.group} still holds {drained.number} records", drained)
