"""No burst of one client makes another client's ping wait for more than 50 ms of the broker's processor time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fuzz import bursts
from tests.fuzz.bursts import BURSTS, LIMIT, Attack, Burst, Wait, waits
from tests.launcher import BrokerProcess

ATTEMPTS = 6  # the worst ping may have been answered long before this process was allowed to notice


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, BrokerProcess]]:
    with bursts.brokers(tmp_path_factory.mktemp("bursts")) as found:
        yield found
        for broker in found.values():
            broker.process.terminate()
            code, _, err = broker.finish()
            assert code == 0 and "Traceback" not in err and '"level": "error"' not in err, err


def least(broker: BrokerProcess, attack: Attack) -> Wait:
    """Of some attempts: what the broker does to pings, it does every time."""
    found = waits(broker, attack)
    for _ in range(ATTEMPTS - 1):
        if found.held <= LIMIT:
            break
        found = min(found, waits(broker, attack), key=lambda wait: wait.held)
    return found


@pytest.mark.parametrize("burst", BURSTS, ids=[f"{b.door}, {b.who}: {b.name}" for b in BURSTS])
def test_pings_of_others_hardly_wait(brokers: dict[bool, BrokerProcess], burst: Burst) -> None:
    found = least(brokers[burst.secured], burst.attack)
    assert found.held <= LIMIT, f"a ping waited for {found.held * 1000:.0f} ms of a thread's processor time"


def test_a_flood_by_everybody_at_once(brokers: dict[bool, BrokerProcess]) -> None:
    """At every door, on many connections, again and again."""
    found = least(brokers[True], bursts.flood(1.0).attack)
    assert found.held <= LIMIT, f"a ping waited for {found.held * 1000:.0f} ms of a thread's processor time"
