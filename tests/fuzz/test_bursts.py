"""No burst of one client makes another client's ping wait for more than 50 ms of the broker's processor time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.fuzz import bursts
from tests.fuzz.bursts import BURSTS, LIMIT, Attack, Burst, Wait, waits
from tests.fuzz.wire import BINARY_PING, frame
from tests.launcher import BrokerProcess

from penstock.wire.flymq.frames import frame as flymq
from penstock.wire.flymq.opcodes import Op

ATTEMPTS = 3  # the worst ping may have been answered long before this process was allowed to notice


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
        if found.worst <= LIMIT:
            break
        found = min(found, waits(broker, attack))
    return found


@pytest.mark.parametrize("burst", BURSTS, ids=[f"{b.door}, {b.who}: {b.name}" for b in BURSTS])
def test_pings_of_others_hardly_wait(brokers: dict[bool, BrokerProcess], burst: Burst) -> None:
    found = least(brokers[burst.secured], burst.attack)
    assert found.worst <= LIMIT, f"a ping waited for {found.worst * 1000:.0f} ms of processor time"


def test_a_flood_by_everybody_at_once(brokers: dict[bool, BrokerProcess]) -> None:
    """At several doors, on many connections, again and again."""
    attacks = [
        bursts.stream("flymq", bursts.many(flymq(Op.WHOAMI, b"")), connections=8),
        bursts.stream("flymq", bursts.BOMB * 8, connections=8),
        bursts.stream("http", bursts.many(bursts.get("/metrics"), 50_000), connections=8),
        bursts.stream("rustlog", bursts.many(frame(BINARY_PING), 200_000), connections=8),
    ]

    def flood(broker: BrokerProcess) -> None:
        threads = [threading.Thread(target=attack, args=(broker,)) for attack in attacks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = least(brokers[True], flood)
    assert found.worst <= LIMIT, f"a ping waited for {found.worst * 1000:.0f} ms of processor time"
