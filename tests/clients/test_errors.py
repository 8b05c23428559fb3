"""One family of errors for all clients, with one root."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from penstock.clients import PenstockError, blipmq, felix, flymq, kimberlite, rustlog
from penstock.clients._core import errors as core

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
