"""Bugs in what keeps one client from harming others, and a reply from claiming more than is known."""

from __future__ import annotations

from typing import Final

from tests.canaries.canary import Canary

CANARIES: Final = (
    Canary(
        "turn-has-no-end",
        "one client holds up others",
        "a connection goes on although all together have used the turn up",
        "broker/runtime/turns.py",
        "return turns.exhausted",
        "return False",
        (
            "tests/broker/runtime/test_turns.py::test_nobody_begins_anything_when_the_turn_is_used_up",
            "tests/doors/test_turns.py::test_pushes_wait_for_a_turn_that_is_not_used_up",
        ),
    ),
    Canary(
        "logins-without-end",
        "one client holds up others",
        "a connection may try as many wrong secrets as it likes",
        "doors/pipeline.py",
        "self._allowance.not_logged_in()",
        "pass",
        (
            "tests/doors/test_login_allowance.py::test_a_connection_that_logs_in_again_and_again_in_vain_is_closed",
            "tests/doors/kimberlite/test_session.py::test_wrong_tokens_end_the_connection",
        ),
    ),
    Canary(
        "share-of-everything",
        "one tenant takes all",
        "a tenant's share is all that the others leave",
        "broker/tenancy/fair_share.py",
        "return math.ceil(share * max(0, limit - others))",
        "return max(0, limit - others)",
        (
            "tests/broker/tenancy/test_fair_share.py::test_one_tenant_cannot_take_what_belongs_to_all",
            "tests/transport/test_connection_limits.py::test_one_address_leaves_connections_for_others",
        ),
    ),
    Canary(
        "lock-out-of-the-host",
        "one tenant takes all",
        "wrong secrets for one name lock every name of the host out",
        "broker/security/lockout.py",
        "return self._names.locked((host, _digest(name)), now)",
        "return any(key[0] == host and self._names.locked(key, now) for key in self._names._records)",
        (
            "tests/broker/security/test_lockout.py::test_only_the_name_at_the_host_is_locked",
            (
                "tests/doors/flymq/test_security.py"
                "::test_a_name_for_which_a_host_fails_too_often_is_locked_out_there_for_a_while"
            ),
        ),
    ),
    Canary(
        "outcome-claimed",
        "reply claims too much",
        "a BlipMQ client is told of a full disk, after which nothing is stored, when a sync has failed",
        "doors/blipmq/errors.py",
        "log.CommitFailed: Row(500, OUTCOME_UNKNOWN, _FAILED),",
        "log.CommitFailed: Row(500, 'no space left on the broker', _FAILED),",
        (
            "tests/doors/blipmq/test_errors.py::test_errors_of_the_broker_as_nacks",
            (
                "tests/crash/test_unknown_outcomes.py"
                "::test_the_reply_after_a_failed_sync_says_that_the_outcome_is_unknown[blipmq]"
            ),
        ),
    ),
)
