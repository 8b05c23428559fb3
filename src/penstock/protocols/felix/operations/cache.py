"""Still to be made: replaced by whoever makes it."""

from __future__ import annotations

from typing import Any

from penstock.protocols.answers import Outcome
from penstock.protocols.felix.call import Call
from penstock.protocols.felix.errors import RequestRefused


def put(call: Call, request: Any) -> Outcome:  # noqa: ARG001
    raise RequestRefused("not served yet")


def get(call: Call, request: Any) -> Outcome:  # noqa: ARG001
    raise RequestRefused("not served yet")


def delete(call: Call, request: Any) -> Outcome:  # noqa: ARG001
    raise RequestRefused("not served yet")


def compare_and_set(call: Call, request: Any) -> Outcome:  # noqa: ARG001
    raise RequestRefused("not served yet")


def increment(call: Call, request: Any) -> Outcome:  # noqa: ARG001
    raise RequestRefused("not served yet")
