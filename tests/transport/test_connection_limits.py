from __future__ import annotations

import asyncio

import pytest

from penstock.broker.runtime.metrics import Metrics
from penstock.config.layers import load
from penstock.config.transport import connection_limits
from penstock.transport.connection_limits import ConnectionLimits, ConnectionTracker


class Connection:
    def __init__(self, peer: str) -> None:
        self.held = self.received = self.sent = 0
        self.encrypted = self.aborted = False
        self.peer = peer

    def describe_work(self) -> dict[str, str]:
        return {}

    def apply_backpressure(self) -> None: ...

    def sweep(self, now: float) -> None: ...

    def stop(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def tracker(share: float) -> ConnectionTracker:
    limits = ConnectionLimits(100, 1 << 20, 1 << 28, 60.0, 10.0, share)
    return ConnectionTracker(limits, Metrics(), asyncio.get_running_loop())


def admitted(tracked: ConnectionTracker, host: str) -> list[Connection]:
    """As many as this address gets."""
    found: list[Connection] = []
    while tracked.admit(one := Connection(f"{host}:{1000 + len(found)}")):
        found.append(one)
    return found


def test_one_address_leaves_connections_for_others() -> None:
    asyncio.run(one_address())


async def one_address() -> None:
    tracked = tracker(0.5)
    first = admitted(tracked, "10.0.0.1")
    assert len(first) == 50
    assert len(admitted(tracked, "10.0.0.2")) == 25
    assert len(admitted(tracked, "[2001:db8::1]")) == 13
    assert len(admitted(tracked, "[2001:db8::2]")) == 0  # of the same network
    assert tracked.metrics.connections_refused == 4
    for one in first:
        tracked.leave(one)
    assert len(admitted(tracked, "10.0.0.1")) == 31
    tracked.close()


def test_with_a_share_of_one_an_address_may_have_all() -> None:
    asyncio.run(a_share_of_one())


async def a_share_of_one() -> None:
    tracked = tracker(1.0)
    assert len(admitted(tracked, "10.0.0.1")) == 100
    tracked.close()


@pytest.mark.parametrize(("mode", "share"), [("off", 1.0), ("on", 0.5)])
def test_addresses_have_shares_while_security_is_on(mode: str, share: float) -> None:
    """With security off whoever can connect may do everything anyway, and a benchmark uses one address."""
    assert connection_limits(load(environment={}, flags={"security.mode": mode}).settings).address_share == share


def test_connections_have_numbers_by_which_one_can_be_closed() -> None:
    async def scene() -> None:
        tracked = tracker(1.0)
        first, second = Connection("a:1"), Connection("a:2")
        assert tracked.admit(first) and tracked.admit(second)
        assert [(number, connection.peer) for number, _, connection in tracked.all()] == [(1, "a:1"), (2, "a:2")]
        assert tracked.close_one(2) and not tracked.close_one(3)
        assert (first.aborted, second.aborted) == (False, True)
        tracked.leave(second)
        assert not tracked.close_one(2)
        tracked.close()

    asyncio.run(scene())
