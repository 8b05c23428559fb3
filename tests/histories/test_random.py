"""Random histories of a log that does everything right: no rule has anything against them. And if something
acknowledged is taken away from one, some rule has."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.histories.checker import check
from tests.histories.history import History, Operation, Outcome, Place

PLACES = [Place(topic, number) for topic in ("one", "two") for number in range(2)]
CLIENTS = ("a", "b", "c")
QUEUE = "7"
ATTEMPTS = 3


@dataclass
class Model:
    """A broker that keeps its word, and clients that write down what it says. What was not answered happens, or not."""

    draw: st.DataObject
    history: History = field(default_factory=lambda: History())
    log: dict[Place, list[str]] = field(default_factory=lambda: {place: [] for place in PLACES})
    committed: dict[Place, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)  # of records of PLACES[0] that the queue has not done with
    counter: int = 0
    serial: int = 0

    def pick(self, *choices: object) -> object:
        return self.draw.draw(st.sampled_from(choices))

    def ids(self, most: int = 3) -> list[str]:
        count = self.draw.draw(st.integers(1, most))
        self.serial += count
        return [f"r{number}" for number in range(self.serial - count, self.serial)]

    def place(self) -> Place:
        return self.draw.draw(st.sampled_from(PLACES))

    def client(self) -> str:
        return self.draw.draw(st.sampled_from(CLIENTS))

    def outcome(self) -> tuple[Outcome, bool]:
        """What the client is told, and whether it happens."""
        choices = [(Outcome.ACKNOWLEDGED, True)] * 3
        choices += [(Outcome.REJECTED, False), (Outcome.UNKNOWN, True), (Outcome.UNKNOWN, False)]
        return self.draw.draw(st.sampled_from(choices))

    def answer(self, operation: Operation, outcome: Outcome, offset: int | None = None) -> None:
        if outcome is Outcome.ACKNOWLEDGED:
            self.history.acknowledge(operation, offset=offset)
        elif outcome is Outcome.REJECTED:
            self.history.reject(operation, "no")
        else:
            self.kill()  # why else would nobody answer

    def store(self, place: Place, ids: list[str]) -> None:
        self.log[place] += ids
        if place == PLACES[0]:
            self.attempts.update(dict.fromkeys(ids, 0))

    # -- what clients do

    def kill(self) -> None:
        self.history.note("campaign", "kill")

    def append(self) -> None:
        place, ids = self.place(), self.ids()
        operation = self.history.invoke(self.client(), "append", place, ids)
        outcome, happens = self.outcome()
        offset = len(self.log[place]) if self.pick(True, False) else None
        if happens:
            self.store(place, ids)
        self.answer(operation, outcome, offset)

    def append_at(self) -> None:
        """With an expected offset, which may be wrong, and once more if it was not answered."""
        place, ids, client = self.place(), self.ids(), self.client()
        at = len(self.log[place]) + self.draw.draw(st.integers(-1, 1))
        for _ in range(2):
            operation = self.history.invoke(client, "append", place, ids, number=at)
            fits = at == len(self.log[place])
            unanswered = self.pick(True, False)
            if fits and (not unanswered or self.pick(True, False)):
                self.store(place, ids)
            if not unanswered:
                self.answer(operation, Outcome.ACKNOWLEDGED if fits else Outcome.REJECTED, at if fits else None)
                return
            self.kill()

    def transaction(self) -> None:
        ids = self.ids(5)
        places = tuple(self.place() for _ in ids)
        group = ids[0]
        operation = self.history.invoke(self.client(), "transaction", places[0], ids, places=places, group=group)
        outcome, happens = self.outcome()
        for record, place in zip(ids, places, strict=True) if happens else ():
            self.store(place, [record])
        self.answer(operation, outcome)
        if self.pick(True, False):
            again = self.history.invoke("c", "recommit", group=group)
            self.answer(again, Outcome.ACKNOWLEDGED if happens else Outcome.REJECTED)

    def read(self) -> None:
        place = self.place()
        start = self.draw.draw(st.integers(0, len(self.log[place])))
        kind = self.draw.draw(st.sampled_from(("read", "contents")))
        start = 0 if kind == "contents" else start
        ids = self.log[place][start:]
        self.history.note(self.client(), kind, place, ids, offset=start, end=start + len(ids))

    def commit(self) -> None:
        place, offset = self.place(), self.draw.draw(st.integers(0, 9))
        operation = self.history.invoke(self.client(), "commit", place, group="g", offset=offset)
        outcome, happens = self.outcome()
        if happens:
            self.committed[place] = offset
        self.answer(operation, outcome)

    def position(self) -> None:
        place = self.place()
        self.history.note(self.client(), "position", place, group="g", offset=self.committed.get(place))

    def change(self) -> None:
        key = self.draw.draw(st.sampled_from(("k/1", "k/2")))
        kind = self.draw.draw(st.sampled_from(("put", "delete", "add", "swap")))
        operation = self.history.invoke("k", kind, key=key)
        before = self.values.get(key)
        after: str | None
        outcome, happens = self.outcome()
        match kind:
            case "put":
                after = operation.value = str(self.draw.draw(st.integers(0, 9)))
            case "delete":
                after, operation.number = None, int(before is not None)
            case "add":
                operation.number = self.draw.draw(st.integers(-3, 3))
                after = operation.found = str(int(before or 0) + operation.number)
            case _:
                operation.expected = self.draw.draw(st.sampled_from((before, "0", None)))
                operation.value = str(self.draw.draw(st.integers(0, 9)))
                operation.number = int(before == operation.expected)
                after = operation.found = operation.value if operation.number else before
        if happens:
            self.values.pop(key, None)
            if after is not None:
                self.values[key] = after
        self.answer(operation, outcome)

    def look(self) -> None:
        key = self.draw.draw(st.sampled_from(("k/1", "k/2")))
        self.history.note("k", "get", key=key, found=self.values.get(key))
        self.history.note("k", "list", ids=list(self.values), key="k/")

    def count(self) -> None:
        operation = self.history.invoke(self.client(), "count", key="counter")
        outcome, happens = self.outcome()
        if happens:
            self.counter += 1
            operation.found = str(self.counter)
        self.answer(operation, outcome)

    def deliver(self) -> None:
        """One attempt of the oldest record that is not done with; perhaps the last."""
        if not self.attempts:
            return
        record = next(iter(self.attempts))
        place, offset = PLACES[0], self.log[PLACES[0]].index(record)
        self.history.note("q", "deliver", place, (record,), group=QUEUE, offset=offset)
        self.attempts[record] += 1
        done = False
        if self.pick(True, False):
            ack = self.history.invoke("q", "ack", place, (record,), group=QUEUE)
            outcome, done = self.outcome()
            self.answer(ack, outcome)
        if done:
            del self.attempts[record]
        elif self.attempts[record] == ATTEMPTS:
            self.history.note("q", "dead_letter", place, (record,), group=QUEUE, offset=offset, number=ATTEMPTS)
            del self.attempts[record]

    # -- the whole

    def run(self) -> None:
        self.history.note("q", "subscribe", PLACES[0], group=QUEUE, number=ATTEMPTS)
        steps = (
            self.append, self.append, self.append_at, self.transaction, self.read, self.commit, self.position,
            self.change, self.look, self.count, self.deliver, self.kill,
        )  # fmt: skip
        for _ in range(self.draw.draw(st.integers(0, 25))):
            self.draw.draw(st.sampled_from(steps))()
        while self.attempts:
            self.deliver()
        self.history.note("q", "drained", PLACES[0], group=QUEUE, number=0)

    def finish(self) -> None:
        for place, ids in self.log.items():
            self.history.note("end", "contents", place, ids, offset=0, end=len(ids))
            self.history.note("end", "position", place, group="g", offset=self.committed.get(place))
            self.history.note("end", "follow", place, ids, group="s", offset=0)
            self.history.note("end", "consume", place, ids, group="m", offset=0)


@given(st.data())
def test_no_rule_is_against_a_broker_that_keeps_its_word(draw: st.DataObject) -> None:
    model = Model(draw)
    model.run()
    model.finish()
    assert check(model.history) == []


@given(st.data())
def test_a_record_that_was_acknowledged_and_is_gone_is_always_found(draw: st.DataObject) -> None:
    model = Model(draw)
    model.run()
    known = [record for one in model.history.of("append", "transaction") if one.acknowledged for record in one.ids]
    if known:
        lost = draw.draw(st.sampled_from(known))
        for ids in model.log.values():
            if lost in ids:
                ids.remove(lost)
        model.finish()
        rules = {violation.rule for violation in check(model.history)}
        assert rules & {"acknowledged_are_there", "transactions_are_whole"}


@given(st.data())
def test_a_record_that_is_there_twice_is_always_found(draw: st.DataObject) -> None:
    model = Model(draw)
    model.run()
    places = [place for place, ids in model.log.items() if ids]
    if places:
        place = draw.draw(st.sampled_from(places))
        model.log[place].append(draw.draw(st.sampled_from(model.log[place])))
        model.finish()
        assert "nothing_twice" in {violation.rule for violation in check(model.history)}
