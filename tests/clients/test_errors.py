"""One family of errors for all clients, with one root."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from penstock.clients import PenstockError, blipmq, felix, flymq, kimberlite, rustlog
from penstock.clients._core import errors as core
from penstock.clients._core.requests import RequestBatch, RequestSpec, whole
from penstock.clients._core.retry import RetryState
from penstock.clients.blipmq import errors as blipmq_errors
from penstock.clients.blipmq.event_buffer import ClientState
from penstock.clients.felix import errors as felix_errors
from penstock.clients.flymq import errors as flymq_errors
from penstock.clients.kimberlite import errors as kimberlite_errors
from penstock.clients.rustlog import errors as rustlog_errors
from penstock.retry import RetryPolicy
from penstock.wire.blipmq import errors as blipmq_wire
from penstock.wire.felix import errors as felix_wire
from penstock.wire.flymq import errors as flymq_wire
from penstock.wire.kimberlite import errors as kimberlite_wire
from penstock.wire.rustlog import errors as rustlog_wire
from penstock.wire.rustlog import messages as rustlog_messages

ROOTS: list[tuple[ModuleType, type[Exception]]] = [
    (rustlog, rustlog.RustLogError),
    (blipmq, blipmq.BlipMQError),
    (flymq, flymq.FlyMqError),
    (kimberlite, kimberlite.KimberliteError),
    (felix, felix.FelixError),
]
doors = pytest.mark.parametrize(("door", "root"), ROOTS, ids=[door.__name__ for door, _ in ROOTS])


def errors_of(module: ModuleType) -> dict[str, type[Exception]]:
    return {name: each for name, each in vars(module).items() if inspect.isclass(each) and issubclass(each, Exception)}


@doors
def test_every_error_of_a_door_has_its_root_and_the_one_root(door: ModuleType, root: type[Exception]) -> None:
    assert issubclass(root, PenstockError)
    strangers = [name for name, each in errors_of(door).items() if not issubclass(each, root)]
    assert strangers == []


@doors
def test_an_error_that_all_clients_know_means_the_same_in_every_door(door: ModuleType, root: type[Exception]) -> None:
    known = errors_of(core)
    same = {name: each for name, each in errors_of(door).items() if name in known}
    assert {"BadReply", "ConnectionFailed", "OutcomeUnknown", "ReplyError", "Unsendable"} <= set(same)
    assert [name for name, each in same.items() if not issubclass(each, known[name])] == []
    assert all(issubclass(each, root) for each in same.values())


# -- a reply that says that the outcome is unknown


def _flymq(text: str) -> Exception:
    return flymq_errors.reply_error(text)


def _kimberlite(text: str) -> Exception:
    return kimberlite_errors.reply_error(kimberlite_wire.ErrorCode.UNKNOWN, text)


def _rustlog(text: str) -> Exception:
    return rustlog_errors.reply_error(rustlog_messages.Error(500, f"Failed to write record: Storage error: {text}"))


def _blipmq(text: str) -> Exception:
    return blipmq_errors.reply_error(500, text)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (_rustlog, rustlog_wire.OUTCOME_UNKNOWN),
        (_blipmq, blipmq_wire.OUTCOME_UNKNOWN),
        (_flymq, flymq_wire.OUTCOME_UNKNOWN),
        (_kimberlite, kimberlite_wire.OUTCOME_UNKNOWN),
        (felix_errors.error_from_text, felix_wire.OUTCOME_UNKNOWN),
    ],
)
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_reply_of_unknown_outcome_is_raised_as_such_and_never_sent_again(
    made: Callable[[str], Exception], text: str, idempotent: bool
) -> None:
    error = made(text)
    assert isinstance(error, core.OutcomeUnknown) and isinstance(error, core.ReplyError)
    assert "may be stored, or not" in str(error)
    state = RetryState([RequestSpec("x", whole, idempotent=idempotent)], RetryPolicy(attempts=5), core.ErrorFamily())
    batch = RequestBatch(state.next())
    batch.settle(0, error)
    state.record(batch)
    assert state.over and state.outcomes == [error]


def test_messages_of_unknown_outcome_are_counted_apart_from_those_refused() -> None:
    state = ClientState(2)
    state.refuse(blipmq.Refusal("publish", 1, 500, f"durable_publish_failed: {blipmq_wire.OUTCOME_UNKNOWN}"))
    state.refuse(blipmq.Refusal("publish", 2, 503, "wal_writer_stopped: the log takes no writes"))
    with pytest.raises(blipmq.PublishRefused) as refused:
        state.report()
    assert refused.value.count == 1
    with pytest.raises(blipmq.OutcomeUnknown, match="disk failed: 1 messages may be stored, or not"):
        state.report()
    state.report()
