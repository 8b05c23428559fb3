"""Faults under load, for `make kafka-faults`: three brokers on a journal on three Kafka nodes, clients of all doors,
and one fault after the other. What clients were told is checked against what is there in the end (`tests/histories`).

A round: clients of every door begin to write and read through one of the brokers, owner or standby; something breaks;
a client that tries all brokers is served again; the broker through which all came is killed, which ends the round; and
everything is mended. The table in the end says how long nothing was acknowledged to the client that tries all.

A round that cannot be judged (an answer that nothing explains, a cluster that does not get well in time) is reported
and repeated; what clients were told in it counts all the same.

`python -m tests.kafka.faults --faults 100` ends with 1 if a rule was broken or an answer is not explained.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, cast

from tests.crash.all_doors_adapter import AllDoorsAdapter
from tests.crash.all_doors_load import GONE
from tests.histories.checker import check
from tests.kafka.brokers import Broker, Writer, new_url
from tests.kafka.kraft import Cluster
from tests.kafka.proxy import Proxy
from tests.launcher import RestartableBroker

from penstock.server.doors import FELIX

PATIENT: Final = 180.0
STOPPED_SECONDS: Final = 7.0  # longer than an owner may be silent
SETTLE_SECONDS: Final = 15.0  # in which a takeover that has begun is over
UNASKED: Final = "no fault at all"
UNJUDGED: Final = 5  # rounds, after which the campaign ends early
PROBE: Final = "probe"
EXPLAINED: Final = (
    *("not available", "outcome unknown", "does not answer", "owns the journal", "takes no writes"),
    "transaction is not active: rolled back",  # the connection that began it was cut, and the client has another
)
"""Answers that a client may get while something is broken."""


class CuttableBroker(Broker):
    """One that the others reach under another address, which can be cut."""

    def __init__(self, directory: Path, name: str, url: str, adapter: AllDoorsAdapter, host: str) -> None:
        super().__init__(
            directory, name, url, adapter.doors, **adapter.settings, PENSTOCK_STORAGE__ADVERTISE=host
        )  # fmt: skip
        self._host = host
        self.peers: Proxy | None = None

    def start(self) -> Broker:
        self._close()
        ports = self.ports.values()
        self.peers = Proxy(dict(zip(ports, ports, strict=True)), self._host, {self.ports[FELIX]})
        return super().start()

    def kill(self) -> None:
        """Nobody listens at that address then, as on a machine that lives on."""
        super().kill()
        self._close()

    def _close(self) -> None:
        if self.peers is not None:
            self.peers.close()
            self.peers = None


class Cell:
    """Three brokers and three nodes. To the clients of a campaign it looks like one broker."""

    def __init__(self, directory: Path, cluster: Cluster, proxies: list[Proxy], adapter: AllDoorsAdapter) -> None:
        self.cluster = cluster
        self.proxies = proxies
        name = new_url(cluster).rpartition("/")[2].partition("?")[0]
        self.topic = f"{name}.journal"
        self.brokers: list[CuttableBroker] = []
        for number, letter in enumerate("abc"):
            servers = ",".join(f"127.0.0.1:{node.links[number].advertised}" for node in cluster.nodes)
            url, host = f"kafka://{servers}/{name}", f"127.0.0.{number + 2}"
            self.brokers.append(CuttableBroker(directory, letter, url, adapter, host))
        self.entry = self.brokers[0]

    @property
    def ports(self) -> dict[str, int]:
        return self.entry.ports

    @property
    def port(self) -> int:
        return self.entry.port

    @property
    def owner(self) -> CuttableBroker:
        return next(broker for broker in self.brokers if broker.owns)

    @property
    def standbys(self) -> list[CuttableBroker]:
        return [broker for broker in self.brokers if broker.runs and not broker.owns]

    def mend(self, rng: random.Random) -> None:
        for proxy in (*self.proxies, *(broker.peers for broker in self.brokers if broker.peers is not None)):
            proxy.mend()
        for broker in self.brokers:
            if broker.runs and not broker.ended:
                broker.signal(signal.SIGCONT)
        self.cluster.mend()
        until(self._in_order, "one of the brokers owns the journal, and the others follow it")
        until(lambda: self.cluster.in_sync(self.topic) == 3, "all nodes have all of the journal")
        until(self._in_order, "one of the brokers owns the journal, and the others follow it")
        self.entry = rng.choice(self.brokers)

    @property
    def takeovers(self) -> int:
        """Times that one of the brokers became the owner."""
        return sum("is ready" in line for broker in self.brokers for line in broker.journey)

    def changed_hands(self, since: int) -> bool:
        """Whether there was a takeover; one that has begun is waited for."""
        give_up = time.monotonic() + SETTLE_SECONDS
        while self.takeovers == since and time.monotonic() < give_up:
            time.sleep(0.1)
        return self.takeovers != since

    def _in_order(self) -> bool:
        for broker in self.brokers:  # as a service manager does: also those that gave up, because Kafka took too long
            if not broker.runs or broker.ended:
                broker.start()
        return sum(broker.owns for broker in self.brokers) == 1 and all(each.knows_its_place for each in self.brokers)

    def lines(self) -> str:
        return "\n".join(f"-- {broker.name}\n{''.join(broker.journey[-40:])}" for broker in self.brokers)


def until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENT
    while not true():
        assert time.monotonic() < give_up, f"not within {PATIENT:g} s: {what}"
        time.sleep(0.05)


# -- faults. Each returns what has to be done when it was survived.

Mending = Callable[[], None]


def kill_owner(cell: Cell, _: random.Random) -> Mending:
    cell.owner.kill()
    return lambda: None


def kill_standby(cell: Cell, rng: random.Random) -> Mending:
    rng.choice(cell.standbys).kill()
    return lambda: None


def kill_leader(cell: Cell, _: random.Random) -> Mending:
    cell.cluster.leader(cell.topic).kill()
    return lambda: None


def kill_follower(cell: Cell, rng: random.Random) -> Mending:
    leader = cell.cluster.leader(cell.topic)
    rng.choice([node for node in cell.cluster.nodes if node is not leader]).kill()
    return lambda: None


def stop_owner(cell: Cell, _: random.Random) -> Mending:
    """It wakes up in the middle of its work, when another owns the journal."""
    owner = cell.owner
    owner.signal(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    return lambda: owner.signal(signal.SIGCONT)


def cut_owner(cell: Cell, _: random.Random) -> Mending:
    """From Kafka; clients reach it all the same."""
    proxy = cell.proxies[cell.brokers.index(cell.owner)]
    proxy.cut()
    return proxy.mend


def cut_standby(cell: Cell, rng: random.Random) -> Mending:
    proxy = cell.proxies[cell.brokers.index(rng.choice(cell.standbys))]
    proxy.cut()
    return proxy.mend


def cut_peers(cell: Cell, _: random.Random) -> Mending:
    """The owner from the standbys, which pass nothing on to it any more; it reaches Kafka all the same."""
    proxy = cell.owner.peers
    assert proxy is not None
    proxy.cut()
    time.sleep(1)
    return proxy.mend


FAULTS: Final = (kill_owner, stop_owner, cut_owner, kill_leader, kill_standby, kill_follower, cut_standby, cut_peers)


@dataclass(slots=True)
class Findings:
    """The observations of a campaign so far."""

    pauses: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # s, by kind of fault
    faults: int = 0
    unjudged: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)

    def report(self, adapter: AllDoorsAdapter, *, read_back: bool) -> int:
        """Print it; returns the number of what should not be. Rules are about what is there in the end: a campaign that
        did not get so far cannot be judged by them."""
        violations = check(adapter.history) if read_back else []
        for found in (*violations[:10], *self.unexplained[:10], *self.unjudged):
            print(found)
        if violations:
            adapter.history.keep()
        judged = f"{len(violations)} violations" if read_back else "broken off: not judged"
        print(f"\n{self.faults} faults and as many kills of brokers, {judged}")
        print(f"{len(self.unexplained)} answers not explained, {len(self.unjudged)} rounds not judged")
        print(f"records acknowledged: {adapter.progress()}\n")
        print("| Fault | Times | Median, s | Longest, s |\n|---|---|---|---|")
        for name, pauses in self.pauses.items():
            print(f"| {name} | {len(pauses)} | {median(pauses):.1f} | {max(pauses):.1f} |")
        return len(violations) + len(self.unexplained)


def run(faults: int, seed: int, seconds: float) -> int:
    """Returns the number of broken rules and of answers that nothing explains."""
    adapter = AllDoorsAdapter()
    findings = Findings()
    try:
        break_all(adapter, findings, faults, seed, seconds)
    except BaseException:
        findings.report(adapter, read_back=False)  # what was seen before counts all the same
        raise
    return findings.report(adapter, read_back=True)


def break_all(adapter: AllDoorsAdapter, findings: Findings, faults: int, seed: int, seconds: float) -> None:
    rng = random.Random(seed)
    give_up = time.monotonic() + seconds
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-faults-")))
        cluster = stack.enter_context(Cluster(directory / "kafka", 3, links=3))
        proxies = [Proxy({node.links[n].advertised: node.links[n].port for node in cluster.nodes}) for n in range(3)]
        for proxy in proxies:
            stack.callback(proxy.close)
        cell = Cell(directory, cluster, proxies, adapter)
        for broker in cell.brokers:
            stack.callback(broker.kill)
        cell.brokers[0].start().ready()
        campaign = cast(RestartableBroker, cell)  # it has what a campaign asks of a broker
        adapter.prepare(campaign)
        cell.mend(rng)
        with Writer(*cell.brokers, topic=PROBE, timeout=1, pause=0.01) as probe:
            while findings.faults < faults and len(findings.unjudged) < UNJUDGED and time.monotonic() < give_up:
                fault = FAULTS[findings.faults % len(FAULTS)]
                try:
                    while not begin(cell, adapter, campaign, rng, findings.faults):
                        findings.pauses[UNASKED].append(probe.longest_gap)
                        print("a standby took over without a fault: the machine is too slow, or Kafka is", flush=True)
                    pause = one_round(cell, adapter, probe, fault, rng, findings)
                except (AssertionError, *GONE) as error:
                    at = f"{datetime.now(UTC):%T}: {fault.__name__}, clients come through {cell.entry.name}"
                    findings.unjudged.append(f"{at}, not judged: {error!r}")
                    print(f"{cell.lines()}\n{findings.unjudged[-1]}", flush=True)
                    end_round(cell, adapter, findings)
                    cell.mend(rng)
                    continue
                findings.faults += 1
                findings.pauses[fault.__name__].append(pause)
                print(f"{findings.faults}: {fault.__name__}, {pause:.1f} s without an acknowledgement", flush=True)
        adapter.read_back(campaign)
        probe.check(cell.entry.values(PROBE))


def begin(cell: Cell, adapter: AllDoorsAdapter, campaign: RestartableBroker, rng: random.Random, number: int) -> bool:
    """Whether there is load. A standby that takes over by itself closes connections, and everything begins again."""
    before = cell.takeovers
    lost: Exception | None = None
    try:
        adapter.start_load(campaign, rng, number)
        time.sleep(rng.uniform(0.2, 1.0))
    except GONE as error:
        lost = error
    if lost is None and not adapter.problems:
        return True
    assert cell.changed_hands(before), f"nothing was broken: {lost!r} {adapter.problems[:3]}"
    adapter.before_kill()
    cell.entry.kill()
    adapter.after_kill()
    adapter.problems.clear()
    cell.mend(rng)
    return False


def one_round(
    cell: Cell,
    adapter: AllDoorsAdapter,
    probe: Writer,
    fault: Callable[[Cell, random.Random], Mending],
    rng: random.Random,
    findings: Findings,
) -> float:
    """The longest time without an acknowledgement."""
    operation = adapter.history.invoke("campaign", "kill")
    adapter.before_kill()
    probe.longest_gap = 0.0
    mending = fault(cell, rng)
    probe.more(20, PATIENT)
    time.sleep(rng.uniform(0.0, 1.0))
    mending()
    probe.more(20, PATIENT)
    pause = probe.longest_gap
    end_round(cell, adapter, findings)
    adapter.history.acknowledge(operation)
    cell.mend(rng)
    return pause


def end_round(cell: Cell, adapter: AllDoorsAdapter, findings: Findings) -> None:
    """Kill the broker through which all clients come, which ends what they do."""
    adapter.before_kill()
    cell.entry.kill()
    adapter.after_kill()
    new = [one for one in adapter.problems if not any(text in one for text in EXPLAINED)]
    if new:
        print(f"{datetime.now(UTC):%T}: not explained: {new[:3]}", flush=True)
    findings.unexplained += new
    adapter.problems.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=7200, help="no new fault begins after that")
    asked = parser.parse_args()
    return 1 if run(asked.faults, asked.seed, asked.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
