"""Publications on the simulated disk: whatever stops the broker, and wherever, each batch is in the log once and whole,
as soon as the broker has had time to finish what it began; and a client that asks until it is answered is right."""

from __future__ import annotations

from random import Random

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.crash.simdisk import Crash
from tests.log.harness import columns_of

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.publications import publishing as steps
from penstock.broker.publications.staging import StagedWriter, Staging, new_ref
from penstock.broker.security.access import ANONYMOUS
from penstock.log.engine import GroupState, PartitionId, Records
from penstock.log.file_engine import LogSettings

PARTITIONS = 3
APPS = ("a", "b")


class Client:
    """The requests of one application: its batches in order, each repeated until it gets a reply."""

    def __init__(self, app: str, rng: Random) -> None:
        self.app = app
        self.rng = rng
        self.batch = 0
        self.refs: list[str] = []
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]  # of answered batches
        self.asked: list[list[bytes]] = []  # of the batch under way

    def stage(self, fixture: BrokerFixture) -> None:
        """Task by task; a staged file that is whole stays whole."""
        rng = self.rng
        files: list[list[tuple[int, list[bytes]]]] = []
        self.asked = [[] for _ in range(PARTITIONS)]
        for task in range(rng.randint(1, 3)):
            chunks = []
            for chunk in range(rng.randint(int(task == 0), 4)):
                partition = rng.randrange(PARTITIONS)
                values = [
                    b"%s-%d-%d-%d-%d" % (self.app.encode(), self.batch, task, chunk, n)
                    for n in range(rng.randint(1, 3))
                ]
                chunks.append((partition, values))
                self.asked[partition] += values
            files.append(chunks)
        refs = []
        for chunks in files:
            permit, _ = fixture.broker.publications.prepare(ANONYMOUS, DEFAULT_SCOPE, self.app, self.batch, ["t"])
            token = rng.randbytes
            writer = StagedWriter(fixture.disk, new_ref(permit.key, self.batch, fixture.now, token), sync=True)
            for partition, values in chunks:
                columns = columns_of(Records(PartitionId(0), values))
                writer.add(permit.topics[0].id, "t", partition, columns)
            refs.append(writer.finish().ref)
        self.refs = refs

    def answered(self) -> None:
        for partition in range(PARTITIONS):
            self.expected[partition] += self.asked[partition]
        self.batch += 1
        self.refs, self.asked = [], []


def stored(fixture: BrokerFixture, app: str) -> list[list[bytes]]:
    found = []
    for partition in range(PARTITIONS):
        offset, values = 0, list[bytes]()
        while parts := fixture.broker.fetch.plan(
            ANONYMOUS, DEFAULT_SCOPE, "t", partition, offset, 1 << 20, 1 << 20
        ).run():
            values += [value for part in parts for value in part.values()]
            offset = parts[-1].end_offset
        found.append([value for value in values if value.startswith(app.encode())])
    return found


def check(fixture: BrokerFixture, clients: list[Client]) -> None:
    """After everything begun is finished: what was answered is there, and what was not is there whole or not at all."""
    for client in clients:
        found = stored(fixture, client.app)
        asked = client.asked or [[] for _ in range(PARTITIONS)]
        whole = [before + now for before, now in zip(client.expected, asked, strict=True)]
        assert found in (client.expected, whole), f"application {client.app}, batch {client.batch}"


def settle(fixture: BrokerFixture) -> None:
    """Time to finish what was begun."""
    for _ in range(3):
        fixture.pass_time(1.5)
        fixture.broker.sweep(fixture.now)
        fixture.commit()
    assert len(fixture.broker.publications) == 0


def turn(fixture: BrokerFixture, client: Client, rng: Random) -> None:
    """Stage if need be, publish, and perhaps hear the answer."""
    if not client.refs:
        client.stage(fixture)
    publishing = fixture.broker.publications.publish(ANONYMOUS, DEFAULT_SCOPE, client.app, client.batch, client.refs)
    for _ in range(rng.randint(0, 12)):
        fixture.committer.run()
        if rng.random() < 0.2:
            fixture.broker.sweep(fixture.now)
    if publishing.outcome.state is GroupState.COMMITTED:
        client.answered()


def run(seed: int, *, power: bool) -> tuple[int, int]:
    """One random schedule; how often it crashed, and how many batches were answered."""
    rng = Random(seed)
    limit = rng.choice((1, 200, 1 << 20))
    settings = LogSettings(file_bytes=16_384, snapshot_bytes=rng.choice((2_000, 1 << 20)))
    fixture = BrokerFixture(settings, limits=Limits(publication_entry_bytes=limit))
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", PARTITIONS)
    fixture.commit()
    clients = [Client(app, rng) for app in APPS]
    crashes = 0
    for _ in range(6):
        fixture.disk.crash_at(fixture.disk.operations + rng.choice((5, 20, 60, 150)))
        try:
            for _ in range(12):
                turn(fixture, rng.choice(clients), rng)
        except Crash:
            crashes += 1
        fixture.disk = fixture.disk.crash(rng) if power else fixture.disk.kill()
        fixture.open()
        settle(fixture)
        check(fixture, clients)
        for client in clients:  # what was staged and not begun may be used again, or was never finished
            if client.refs and rng.random() < 0.5:
                publishing = fixture.broker.publications.publish(
                    ANONYMOUS, DEFAULT_SCOPE, client.app, client.batch, client.refs
                )
                fixture.commit()
                assert publishing.outcome.state is GroupState.COMMITTED, publishing.outcome.error
                client.answered()
            elif client.asked and stored(fixture, client.app) != client.expected:
                client.answered()  # it is published; the client would learn that by asking again
            else:
                client.refs, client.asked = [], []
        check(fixture, clients)
    fixture.pass_time(86_400)
    fixture.broker.maintain(fixture.now)
    assert Staging(fixture.disk).names() == []
    return crashes, sum(client.batch for client in clients)


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_random_schedules(power: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES", 150)
    crashes = answered = 0
    for seed in range(40):
        try:
            more = run(seed, power=power)
        except Exception as error:
            error.add_note(f"seed {seed}, power {power}")
            raise
        crashes += more[0]
        answered += more[1]
    assert crashes > 60 and answered > 200, "hardly anything happened: this tests nothing"
