"""Requests that the clients send again by themselves: those that leave something behind say so, because a refusal of a
repetition does not tell what the first time did (`clients/_core/retry.py`)."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

from penstock.clients._core.errors import Unsendable
from penstock.clients._core.requests import RequestSpec
from penstock.clients.blipmq import requests as blipmq
from penstock.clients.felix import requests as felix
from penstock.clients.flymq import requests as flymq
from penstock.clients.kimberlite import requests as kimberlite
from penstock.clients.rustlog import requests as rustlog

CHANGES = {
    rustlog: {"commit_offset"},
    blipmq: set(),  # subscriptions are resumed, and acknowledgements sent again, until they are answered
    flymq: {
        *("produce", "produce_batch", "produce_delayed", "produce_with_ttl", "produce_with_schema"),  # with `retry`
        *("create_topic", "commit", "reset_offset", "seek_to_timestamp", "set_compatibility", "commit_transaction"),
        *("update_user", "set_acl", "set_role"),
    },
    kimberlite: {"create_stream", "append", "create_tenant", "delete_tenant", "revoke_api_key"},
    felix: set(),  # only what reads is sent again
}
ARGUMENTS: dict[str, Any] = {
    "retry": True,
    "expected_offset": 3,
    "group": "g",
    "values": [b"v"],
    "events": [b"v"],
    "records": [b"v"],
    "payloads": [b"v"],
    "roles": ["r"],
    "permissions": ["p"],
}
BY_TYPE = {"str": "x", "bytes": b"x", "int": 1, "Sequence[str]": ["x"], "Iterable[str]": ["x"]}


def spec_of(maker: Any) -> RequestSpec[Any] | None:
    """A request with every argument that is needed, and those that make it one that is sent again."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        if name in ARGUMENTS:
            arguments[name] = ARGUMENTS[name]
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            if (kind := str(parameter.annotation).split(" | ")[0]) not in BY_TYPE:
                return None
            arguments[name] = BY_TYPE[kind]
    try:
        made = maker(**arguments)
    except Unsendable:
        return None
    return made if isinstance(made, RequestSpec) else None


@pytest.mark.parametrize("door", CHANGES, ids=lambda door: door.__name__.split(".")[-2])
def test_what_is_sent_again_and_leaves_something_behind(door: ModuleType) -> None:
    makers = {
        name: found
        for name, found in vars(door).items()
        if inspect.isfunction(found) and found.__module__ == door.__name__ and not name.startswith("_")
    }
    specs = {name: spec for name, maker in makers.items() if (spec := spec_of(maker)) is not None}
    assert {name for name, spec in specs.items() if spec.idempotent and spec.changes} == CHANGES[door]
    assert not [name for name, spec in specs.items() if spec.changes and not spec.idempotent]
    reads = [name for name, spec in specs.items() if spec.idempotent and not spec.changes]
    words = ("create", "delete", "set_", "commit", "produce", "append", "revoke", "reset", "update", "register")
    assert not [name for name in reads if name.startswith(words)]
