"""A short history of each kind of operation in which everything is as it should be, to which tests add a fault."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories.history import History, Operation, Outcome, Place

ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN
MS = 1000  # µs
LOG, OTHER, RACE, TABLE = Place("log", 0), Place("log", 1), Place("race", 0), Place("table", 0)
LEFT, RIGHT, LATER, ORDERS, LETTERS = (Place(name, 0) for name in ("left", "right", "later", "orders", "orders.dlq"))
MORTAL, JOBS, INPUT = Place("mortal", 0), Place("jobs", 0), Place("input", 0)
PLACES = (LOG, OTHER, RACE, TABLE, LEFT, RIGHT, LATER, ORDERS, LETTERS, MORTAL, JOBS, INPUT)
GAPS = (MORTAL, LETTERS)


class Story:
    """`stored` is what there is in the end; `history()` is everything, with that read back."""

    def __init__(self) -> None:
        self.now = 1_000_000  # µs; one ms passes with every moment
        self.history = History(self._clock)
        self.stored: dict[Place, list[tuple[int, str, int]]] = {place: [] for place in PLACES}  # offset, id, time
        self.topics: list[str] = []
        self._records()
        self._race()
        self._queries()
        self._groups()
        self._transactions()
        self._delays()
        self._letters()
        self._mortals()
        self._queue()
        self._values()
        self._counters()
        self._values_with_a_time()
        self._pipelines()

    def _clock(self) -> int:
        self.now += MS
        return self.now

    def finish(self) -> History:
        """Read everything back, as the last thing that happens."""
        history = self.history
        for place, stored in self.stored.items():
            offsets = tuple(offset for offset, _, _ in stored)
            times = tuple(time for _, _, time in stored)
            ids = [record for _, record, _ in stored]
            contents = history.note("end", "contents", place, ids, offset=0, offsets=offsets, times=times)
            contents.gaps = place in GAPS
            contents.end = None if contents.gaps else (max(offsets) + 1 if offsets else 0)
            if place == INPUT:
                contents.keys = tuple(record[-1] for record in ids)
        history.note("end", "list", ids=self.topics, key="topic/")
        return history

    # -- what can happen

    def store(self, place: Place, *ids: str, time: int = 0) -> None:
        stored = self.stored[place]
        for record in ids:
            stored.append((stored[-1][0] + 1 if stored else 0, record, time))

    def replace(self, place: Place, *ids: str) -> None:
        self.stored[place] = [(offset, record, 0) for offset, record in enumerate(ids)]

    def settle(self, operation: Operation, outcome: Outcome, offset: int | None = None) -> Operation:
        if outcome is ACKNOWLEDGED:
            self.history.acknowledge(operation, offset=offset)
        elif outcome is REJECTED:
            self.history.reject(operation, "no")
        return operation

    def append(
        self, client: str, place: Place, ids: Sequence[str], outcome: Outcome = ACKNOWLEDGED, offset: int | None = None
    ) -> Operation:
        return self.settle(self.history.invoke(client, "append", place, ids), outcome, offset)

    def expect(self, client: str, ids: Sequence[str], at: int, outcome: Outcome) -> Operation:
        """Append to RACE at an offset that is named."""
        append = self.history.invoke(client, "append", RACE, ids, number=at)
        return self.settle(append, outcome, at if outcome is ACKNOWLEDGED else None)

    def read(self, place: Place, first: int, *ids: str, end: bool = True) -> Operation:
        last = first + len(ids) if end else None
        return self.history.note("reader", "read", place, ids, offset=first, end=last, door="rustlog")

    def transaction(self, name: str, outcome: Outcome, made: str = "") -> Operation:
        """Two records to the left, one to the right."""
        ids, places = [f"{name}{number}" for number in range(3)], (LEFT, LEFT, RIGHT)
        operation = self.history.invoke("t", "transaction", LEFT, ids, places=places, group=name, key=made)
        return self.settle(operation, outcome)

    def store_transaction(self, name: str) -> None:
        self.store(LEFT, f"{name}0", f"{name}1")
        self.store(RIGHT, f"{name}2")

    def recommit(self, name: str, outcome: Outcome) -> None:
        self.settle(self.history.invoke("t", "recommit", LEFT, group=name), outcome)

    def delay(self, record: str, wait: int, outcome: Outcome = ACKNOWLEDGED) -> int:
        """The earliest time at which it may appear."""
        delay = self.history.invoke("d", "delay", LATER, (record,), number=wait)
        delay.stamp = self.now
        self.settle(delay, outcome)
        return delay.stamp + wait * MS

    def cancel(self, record: str, outcome: Outcome) -> None:
        self.settle(self.history.invoke("d", "cancel", LATER, (record,)), outcome)

    def commit(self, offset: int, outcome: Outcome = ACKNOWLEDGED, client: str = "g") -> None:
        self.settle(self.history.invoke(client, "commit", LOG, group="group", offset=offset), outcome)

    def position(self, offset: int | None) -> None:
        self.history.note("g", "position", LOG, group="group", offset=offset)

    def mail(self, kind: str, outcome: Outcome, *ids: str) -> Operation:
        return self.settle(self.history.invoke("m", kind, ORDERS, ids), outcome)

    def mortal(self, record: str, life: int, offset: int, outcome: Outcome = ACKNOWLEDGED) -> Operation:
        mortal = self.history.invoke("x", "append_ttl", MORTAL, (record,), number=life, offset=offset)
        mortal.stamp = self.now
        return self.settle(mortal, outcome)

    def serve(self, first: int, end: int, *ids: str) -> None:
        self.history.note("x", "read", MORTAL, ids, offset=first, end=end, door="flymq", gaps=True)

    def deliver(self, record: str, offset: int, stamp: int = 0) -> Operation:
        return self.history.note("c", "deliver", JOBS, (record,), group="7", offset=offset, stamp=stamp)

    def ack(self, record: str, outcome: Outcome = ACKNOWLEDGED) -> None:
        self.settle(self.history.invoke("c", "ack", JOBS, (record,), group="7"), outcome)

    def give_up(self, record: str, offset: int, attempts: int = 3, queue: str = "7") -> None:
        self.history.note("c", "dead_letter", JOBS, (record,), group=queue, offset=offset, number=attempts)

    def put(self, key: str, value: str | None, outcome: Outcome = ACKNOWLEDGED) -> Operation:
        return self.settle(self.history.invoke("k", "put", key=key, value=value), outcome)

    def get(self, key: str, found: str | None) -> Operation:
        return self.history.note("k", "get", key=key, found=found)

    def swap(self, expected: str, value: str, found: str, done: bool) -> None:
        self.history.note("k", "swap", key="k", expected=expected, value=value, found=found, number=int(done))

    def add(self, number: int, found: str | None) -> None:
        if found is None:
            self.history.invoke("k", "add", key="sum", number=number)
        else:
            self.history.note("k", "add", key="sum", number=number, found=found)

    def kill(self) -> None:
        self.history.note("campaign", "kill")

    def the(self, kind: str, at: int) -> Operation:
        return self.history.of(kind)[at]

    # -- what has happened

    def _records(self) -> None:
        """Two writers and a subscriber; one append was never answered and is there, another is not."""
        first = self.history.invoke("a", "append", LOG, ["a1", "a2"])
        second = self.history.invoke("b", "append", LOG, ["b1"])
        self.settle(first, ACKNOWLEDGED, 0)
        self.settle(second, ACKNOWLEDGED, 2)
        self.store(LOG, "a1", "a2", "b1")
        self.history.note("s", "follow", LOG, ["a1", "a2"], group="s", offset=0, door="felix")
        self.append("a", LOG, ["a3", "a4"], UNKNOWN)
        self.store(LOG, "a3", "a4")
        self.append("b", LOG, ["b2"], UNKNOWN)
        self.kill()
        self.append("a", OTHER, ["a5"], REJECTED)
        self.append("a", OTHER, ["a6"], ACKNOWLEDGED, 0)
        self.append("a", OTHER, ["a7", "a8"])  # without an offset
        self.store(OTHER, "a6", "a7", "a8")
        self.append("c", OTHER, ["c1"], UNKNOWN)
        self.append("c", OTHER, ["c1"])  # again: it is there once for each time
        self.store(OTHER, "c1", "c1")
        self.read(LOG, 1, "a2", "b1", "a3", "a4")
        self.read(LOG, 1, "a2", end=False)
        self.history.note("s", "follow", LOG, ["b1", "a3", "a4"], group="s", offset=2, door="felix")

    def _race(self) -> None:
        """Two at the same offsets, one of whom tries again after a kill."""
        self.expect("p", ["p1"], 0, ACKNOWLEDGED)
        self.expect("q", ["q1"], 0, REJECTED)
        self.expect("p", ["p2", "p3"], 1, UNKNOWN)
        self.expect("q", ["q2"], 3, UNKNOWN)
        self.expect("p", ["p9"], 50, REJECTED)  # nobody knows that the log came so far
        self.kill()
        self.expect("p", ["p2", "p3"], 1, ACKNOWLEDGED)
        self.expect("q", ["q2"], 3, REJECTED)
        self.store(RACE, "p1", "p2", "p3", "q2")

    def _queries(self) -> None:
        for position, ids in ((10, ["s1", "s2"]), (12, ["s3"])):
            self.history.note("s", "append", TABLE, ids, position=position, door="sql")
        for position, ids in ((10, ["s1", "s2"]), (12, ["s1", "s2", "s3"]), (10, ["s1", "s2"])):
            self.history.note("s", "query_at", TABLE, ids, position=position)
        self.store(TABLE, "s1", "s2", "s3")

    def _groups(self) -> None:
        self.position(None)
        self.commit(1)
        self.commit(3)
        self.position(3)
        self.commit(5, UNKNOWN)
        self.kill()
        self.position(5)
        self.commit(4, REJECTED)
        self.position(5)
        for first, ids in ((0, ["a1", "a2"]), (1, ["a2", "b1", "a3"]), (4, ["a4"])):
            self.history.note("member", "consume", LOG, ids, group="group", offset=first, door="kimberlite")

    def _transactions(self) -> None:
        self.transaction("a-", ACKNOWLEDGED, made="topic/a")
        self.topics.append("topic/a")
        self.store_transaction("a-")
        self.read(LEFT, 0, "a-0", "a-1")
        self.read(RIGHT, 0, "a-2")
        self.transaction("b-", REJECTED, made="topic/b")
        self.recommit("a-", ACKNOWLEDGED)
        self.recommit("b-", REJECTED)

    def _delays(self) -> None:
        first, second = self.delay("later0", 1), self.delay("later1", 3)
        self.delay("away", 5)
        self.cancel("away", ACKNOWLEDGED)
        self.delay("far", 3_600_000)
        self.now += 20 * MS
        self.store(LATER, "later0", time=first)
        self.store(LATER, "later1", time=second)
        self.cancel("later0", REJECTED)
        self.history.note("d", "wait")

    def _letters(self) -> None:
        for record in ("stays", "back", "thrown"):
            self.mail("letter", ACKNOWLEDGED, record)
        self.mail("letter", ACKNOWLEDGED, "unfit").number = 0
        self.mail("replay", REJECTED, "unfit")
        self.store(LETTERS, "unfit")
        self.mail("letters", ACKNOWLEDGED, "stays", "back", "thrown")
        self.mail("replay", ACKNOWLEDGED, "back")
        self.mail("replay", REJECTED, "back")
        self.store(ORDERS, "back")
        self.store(LETTERS, "stays")
        self.read(ORDERS, 0, "back")
        self.mail("letters", ACKNOWLEDGED, "stays", "thrown")
        self.mail("replay", ACKNOWLEDGED, "thrown")
        self.store(ORDERS, "thrown")

    def _mortals(self) -> None:
        self.mortal("short", 4, 0)
        self.mortal("long", 3_600_000, 1)
        self.serve(0, 2, "short", "long")
        self.now += 10 * MS
        self.serve(0, 2, "long")
        self.stored[MORTAL].append((1, "long", 0))

    def _queue(self) -> None:
        """Two messages, one acknowledged, the other given up; a third whose publish and ack were never answered."""
        self.history.note("c", "subscribe", JOBS, group="7", number=3)
        for message in ("j1", "j2"):
            self.append("p", JOBS, [message])
        self.append("p", JOBS, ["j3"], UNKNOWN)
        self.store(JOBS, "j1", "j2", "j3", time=self.now)
        self.deliver("j1", 0, self.now)
        self.ack("j1")
        for _ in range(3):
            self.deliver("j2", 1)
        self.give_up("j2", 1)
        self.deliver("j3", 2)
        self.ack("j3", UNKNOWN)
        self.history.note("c", "drained", JOBS, group="7", number=0)

    def _values(self) -> None:
        self.put("k", "1")
        self.get("k", "1")
        self.put("k", "2", UNKNOWN)
        self.kill()
        self.get("k", "2")
        self.swap("2", "3", "3", True)
        self.swap("2", "4", "3", False)
        self.put("k", "9", REJECTED)
        self.history.note("k", "delete", key="k", number=1)
        self.history.invoke("k", "swap", key="k", value="5", expected="3")
        self.get("k", None)
        self.add(7, "7")
        self.add(1, None)
        self.kill()
        self.add(2, "10")
        for number in (1, 2, 3):
            self.put(f"tenant/{number}", "there")
        self.put("tenant/2", None)
        self.history.invoke("k", "delete", key="tenant/3")
        self.history.note("k", "list", ids=["tenant/1"], key="tenant/")

    def _counters(self) -> None:
        """Two at the same time, one of whom is not answered."""
        first, second = (self.history.invoke(name, "count", key="c") for name in "xy")
        for count, found in ((second, "1"), (first, "2")):
            count.found = found
            self.history.acknowledge(count)
        self.history.invoke("x", "count", key="c")
        self.kill()
        self.history.note("y", "count", key="c", found="4")

    def _values_with_a_time(self) -> None:
        history = self.history
        history.note("u", "put_ttl", key="m", value="v", number=1000)
        history.invoke("u", "put_ttl", key="n", value="w", number=1000)
        self.now += 800 * MS
        history.note("u", "get_ttl", key="m", found="v")
        self.kill()
        self.now += 210 * MS  # the clock of a start may be a little off
        history.note("u", "get_ttl", key="m", found="v")
        self.now += 300 * MS
        history.note("u", "get_ttl", key="n", found="w")  # nobody knows when it was put, but for the kill
        history.note("u", "get_ttl", key="m")

    def _pipelines(self) -> None:
        inputs = ["i1:a", "i2:b", "i3:a"]
        self.append("i", INPUT, inputs, ACKNOWLEDGED, 0)
        self.store(INPUT, *inputs)
        self.history.note("sink", "copy", INPUT, inputs[:2], key="copy", offsets=(0, 1))
        self.history.note("sink", "copy", INPUT, inputs[2:], key="copy", offsets=(2,))
        self.history.note("sink", "copy_start", INPUT, key="newest", offset=1)
        self.history.note("sink", "copy", INPUT, inputs[1:], key="newest", offsets=(1, 2))
        for key, number in (("a", 1), ("b", 1), ("a", 2)):
            self.history.note("sink", "tally", key=key, number=number)
