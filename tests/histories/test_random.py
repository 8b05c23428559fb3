"""Random histories of a log that does everything right: no rule has anything against them. And if something
acknowledged is taken away from one, some rule has."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.histories.checker import check
from tests.histories.history import History, Operation, Outcome, Place

PLACES = [Place(topic, number) for topic in ("one", "two") for number in range(2)]
LATER, ORDERS, LETTERS, MORTAL = (Place(name, 0) for name in ("later", "orders", "orders.dlq", "mortal"))
MS = 1000  # µs
CLIENTS = ("a", "b", "c")
QUEUE = "7"
ATTEMPTS = 3


@dataclass
class Model:
    """A broker that keeps its word, and clients that write down what it says. What was not answered happens, or not."""

    draw: st.DataObject
    now: int = MS  # µs; one ms passes with every moment
    log: dict[Place, list[str]] = field(default_factory=lambda: {place: [] for place in (*PLACES, LATER, ORDERS)})
    times: dict[str, int] = field(default_factory=dict)  # when each record was stored
    pending: dict[str, int] = field(default_factory=dict)  # delayed records → when they are due
    delayed: list[str] = field(default_factory=list)  # those that were accepted
    letters: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # all that were accepted as dead letters
    mortal: list[tuple[str, int]] = field(default_factory=list)  # with the time at which they expire
    committed: dict[Place, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)  # of records of PLACES[0] that the queue has not done with
    counter: int = 0
    serial: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.clock)

    def clock(self) -> int:
        self.now += MS
        return self.now

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
        """The reply to the client, and whether the operation takes effect."""
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
        self.times.update(dict.fromkeys(ids, self.now))
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

    def delay(self) -> None:
        (record,) = self.ids(1)
        wait = self.draw.draw(st.integers(0, 30))
        operation = self.history.invoke(self.client(), "delay", LATER, (record,), number=wait)
        outcome, happens = self.outcome()
        if happens:
            operation.stamp = self.now
            self.pending[record] = self.now + wait * MS
        self.answer(operation, outcome)
        if outcome is Outcome.ACKNOWLEDGED:
            self.delayed.append(record)
        self.appear()

    def appear(self) -> None:
        """Delayed records that are due, the first first."""
        for record, due in sorted(self.pending.items(), key=lambda item: item[1]):
            if due <= self.now:
                del self.pending[record]
                self.store(LATER, [record])

    def cancel(self) -> None:
        if self.delayed:
            record = self.draw.draw(st.sampled_from(self.delayed))
            operation = self.history.invoke(self.client(), "cancel", LATER, (record,))
            if record not in self.pending:
                self.answer(operation, Outcome.REJECTED)
                return
            outcome, happens = self.draw.draw(st.sampled_from([(Outcome.ACKNOWLEDGED, True), (Outcome.UNKNOWN, False)]))
            if happens:
                del self.pending[record]
            self.answer(operation, outcome)

    def letter(self) -> None:
        (record,) = self.ids(1)
        operation = self.history.invoke(self.client(), "letter", ORDERS, (record,))
        outcome, happens = self.outcome()
        if happens:
            self.letters.append(record)
        self.answer(operation, outcome)
        if outcome is Outcome.ACKNOWLEDGED:
            self.refused.append(record)

    def replay(self) -> None:
        self.history.note(self.client(), "letters", ORDERS, self.letters)
        if self.refused:
            record = self.draw.draw(st.sampled_from(self.refused))
            operation = self.history.invoke(self.client(), "replay", ORDERS, (record,))
            there = record in self.letters
            if there and self.pick(True, False):
                self.letters.remove(record)
                self.store(ORDERS, [record])
                self.answer(operation, self.draw.draw(st.sampled_from((Outcome.ACKNOWLEDGED, Outcome.UNKNOWN))))
            else:
                self.answer(operation, Outcome.UNKNOWN if there else Outcome.REJECTED)

    def purge(self) -> None:
        operation = self.history.invoke(self.client(), "purge", ORDERS)
        outcome, happens = self.outcome()
        if happens:
            self.letters.clear()
        self.answer(operation, outcome)

    def expire(self) -> None:
        """Send a record that expires, and read all of them that have not."""
        (record,) = self.ids(1)
        life = self.draw.draw(st.integers(1, 30))
        operation = self.history.invoke(self.client(), "append_ttl", MORTAL, (record,), number=life)
        outcome, happens = self.outcome()
        if happens:
            operation.stamp = self.now
            self.mortal.append((record, self.now + life * MS))
        self.answer(operation, outcome, len(self.mortal) - 1)
        read = self.history.invoke(self.client(), "read", MORTAL, offset=0, end=len(self.mortal), gaps=True)
        self.history.acknowledge(read, ids=[record for record, end in self.mortal if end > self.now])

    # -- the whole

    def run(self) -> None:
        self.history.note("q", "subscribe", PLACES[0], group=QUEUE, number=ATTEMPTS)
        steps = (
            self.append, self.append, self.append_at, self.transaction, self.read, self.commit, self.position,
            self.change, self.look, self.count, self.deliver, self.kill, self.delay, self.delay, self.cancel,
            self.letter, self.replay, self.purge, self.expire,
        )  # fmt: skip
        for _ in range(self.draw.draw(st.integers(0, 25))):
            self.draw.draw(st.sampled_from(steps))()
        while self.attempts:
            self.deliver()
        self.history.note("q", "drained", PLACES[0], group=QUEUE, number=0)
        self.now = max([self.now, *self.pending.values()])
        self.appear()
        self.history.note("d", "wait")

    def finish(self) -> None:
        for place, ids in self.log.items():
            times = tuple(self.times[record] for record in ids)
            self.history.note("end", "contents", place, ids, offset=0, end=len(ids), times=times)
            self.history.note("end", "position", place, group="g", offset=self.committed.get(place))
            self.history.note("end", "follow", place, ids, group="s", offset=0)
            self.history.note("end", "consume", place, ids, group="m", offset=0)
        offsets = tuple(range(len(self.letters)))
        self.history.note("end", "contents", LETTERS, self.letters, offset=0, offsets=offsets, gaps=True)


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
    places = [place for place, ids in model.log.items() if ids and place != ORDERS]  # letters have a rule of their own
    if places:
        place = draw.draw(st.sampled_from(places))
        model.log[place].append(draw.draw(st.sampled_from(model.log[place])))
        model.finish()
        assert "nothing_twice" in {violation.rule for violation in check(model.history)}
