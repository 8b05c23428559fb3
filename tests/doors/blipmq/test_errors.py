"""The table of errors: every failure of the broker and the log has its NACK, in both versions."""

from __future__ import annotations

import pytest

from penstock.broker import errors as core
from penstock.doors.blipmq import errors
from penstock.log import errors as log
from penstock.wire.blipmq.errors import OUTCOME_UNKNOWN, Nack

REFUSED: list[tuple[Exception, Nack, Nack, Nack]] = [
    # error; a PUBLISH in version 1, and in version 2; any other request
    (
        log.LogFull("disk of node 3"),
        Nack(500, "durable publish failed: no space left"),
        Nack(500, "durable_publish_failed: no space left"),
        Nack(500, "no space left"),
    ),
    (
        log.CommitFailed("sync of /var failed"),
        Nack(500, f"durable publish failed: {OUTCOME_UNKNOWN}"),
        Nack(500, f"durable_publish_failed: {OUTCOME_UNKNOWN}"),
        Nack(500, OUTCOME_UNKNOWN),
    ),
    (
        log.LogReadOnly("sync of /var failed"),
        Nack(500, "durable publish failed: the log takes no writes"),
        Nack(503, "wal_writer_stopped: the log takes no writes"),
        Nack(500, "the log takes no writes"),
    ),
    (
        core.ShuttingDown("now"),
        Nack(500, "durable publish failed: broker shutting down"),
        Nack(503, "wal_writer_stopped: broker shutting down"),
        Nack(500, "broker shutting down"),
    ),
    (
        core.LimitReached("too many topics"),
        Nack(500, "durable publish failed: too many topics"),
        Nack(503, "wal_busy: too many topics"),
        Nack(500, "too many topics"),
    ),
    *[
        (
            error,
            Nack(500, f"durable publish failed: {error}"),
            Nack(503, f"wal_busy: {error}"),
            Nack(500, str(error)),
        )
        for error in (core.QuotaReached("its limit"), core.TooFast("its rate"))
    ],
    (
        log.LogDamaged("/var/lib/penstock/journal", 7, "checksum"),
        Nack(500, "durable publish failed: stored data is damaged"),
        Nack(500, "durable_publish_failed: stored data is damaged"),
        Nack(500, "stored data is damaged"),
    ),
    (
        core.QueueNotFound("There is no queue 7"),
        Nack(404, "unknown subscription or delivery tag"),
        Nack(404, "unknown subscription or delivery tag"),
        Nack(404, "unknown subscription or delivery tag"),
    ),
    (
        ValueError("secret"),
        Nack(500, "durable publish failed: internal error"),
        Nack(500, "durable_publish_failed: internal error"),
        Nack(500, "internal error"),
    ),
    *[
        (error, Nack(code, str(error)), Nack(code, str(error)), Nack(code, str(error)))
        for error, code in [
            (core.AccessDenied("'x' may not write 't'"), 401),
            (core.InvalidName("no such name"), 400),
            (core.RecordTooLarge(9, 8), 400),
            (core.TopicNotFound("t"), 404),
        ]
    ],
]


@pytest.mark.parametrize(("error", "version_1", "version_2", "other"), REFUSED, ids=lambda value: type(value).__name__)
def test_errors_of_the_broker_as_nacks(error: Exception, version_1: Nack, version_2: Nack, other: Nack) -> None:
    assert errors.publish_refused(error, 1) == version_1
    assert errors.publish_refused(error, 2) == version_2
    assert errors.request_refused(error) == other


def test_a_long_cause_is_cut() -> None:
    nack = errors.request_refused(core.InvalidName("x" * 100_000))
    assert len(nack.text) == errors.MAX_CAUSE
