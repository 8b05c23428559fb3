"""Refusals of a standby's workers: requests that would write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.log.errors import NotOwner
from penstock.workers.rpc import Handler

STANDBY: Final = "this broker is a standby and serves reads only, which may lag: writes go to the owner of the journal"


def refusing(methods: Iterable[str]) -> Mapping[str, Handler]:
    """Handlers that refuse these requests."""
    return dict.fromkeys(methods, _refuse)


async def _refuse(_: bytes) -> bytes:
    raise NotOwner(STANDBY)
