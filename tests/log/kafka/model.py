"""A model of brokers that write to one journal over a network that loses, repeats and delays, and a search of all that
can happen to them, up to given budgets.

A broker of the model does what `CellWriter` does, by the same functions of `fencing`. Every step that the search takes
is checked: what was acknowledged counts for every reader, and what was refused never does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.log.kafka import fencing
from penstock.log.kafka.fencing import GroupOutcome, JournalView, Kind, Stamp, Term, Verdict


class Rules(Protocol):
    """The functions under test, so that broken ones can be put in their place."""

    def read(self, view: JournalView, stamp: Stamp) -> tuple[JournalView, Verdict]: ...

    def acknowledged(self, expected: int, offset: int) -> int | None: ...

    def outcome(self, view: JournalView, term: Term, counted: int, group: int) -> GroupOutcome: ...


class RealRules:
    read = staticmethod(fencing.read)
    acknowledged = staticmethod(fencing.acknowledged)
    outcome = staticmethod(fencing.outcome)


class Session(NamedTuple):
    """One producer: what it sent and has not arrived, and answers on their way back."""

    requests: tuple[Stamp, ...] = ()
    answers: tuple[tuple[Stamp, int], ...] = ()


class Broker(NamedTuple):
    view: JournalView = JournalView()
    term: Term | None = None  # that it believes to be its own
    claimed: Stamp | None = None  # on its way
    expected: int = 0  # offset of the next answer
    counted: int = 0  # last group of its term known to count
    sent: tuple[Stamp, ...] = ()  # in order, without an answer
    doubtful: bool = False  # it must read before it acknowledges
    session: int = -1
    groups: int = 0  # budgets
    claims: int = 0


class World(NamedTuple):
    log: tuple[Stamp, ...]
    brokers: tuple[Broker, ...]
    sessions: tuple[Session, ...]
    acknowledged: frozenset[Stamp]
    refused: frozenset[Stamp]
    faults: int  # budget of the network: requests that are lost or stored twice


class Violation(AssertionError):
    pass


class Model:
    """`groups` and `claims`: how many each broker may send, by its number."""

    def __init__(
        self, groups: tuple[int, ...], claims: tuple[int, ...], faults: int = 1, rules: Rules | None = None
    ) -> None:
        self.rules: Rules = rules or RealRules()
        brokers = tuple(Broker(groups=most, claims=tries) for most, tries in zip(groups, claims, strict=True))
        self.start = World((), brokers, (), frozenset(), frozenset(), faults)

    # -- every step that can be taken

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for number in range(len(world.sessions)):
            yield from self._network(world, number)
        for number, broker in enumerate(world.brokers):
            yield from self._broker(world, number, broker)

    def _network(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        """A lost answer is one that nobody ever hears, and needs no step of its own."""
        session = world.sessions[number]
        if not session.requests:
            return
        head, rest = session.requests[0], session.requests[1:]
        stored = world._replace(log=(*world.log, head))
        heard = head.kind is Kind.GROUP and any(broker.session == number for broker in world.brokers)
        answers = (*session.answers, (head, len(world.log))) if heard else ()
        yield f"store {number}", _with_session(stored, number, Session(rest, answers))
        if world.faults:
            again = stored._replace(faults=world.faults - 1)
            yield f"store {number}, to be sent again", _with_session(again, number, session)
            gone = world._replace(faults=world.faults - 1)
            yield f"lose {number}", _with_session(gone, number, session._replace(requests=rest))

    def _broker(self, world: World, number: int, broker: Broker) -> Iterator[tuple[str, World]]:
        name = "ABC"[number]
        if broker.doubtful or (broker.term is None and broker.view.offset < len(world.log)):
            yield f"{name} reads", self._read(world, number, broker)
        if broker.term is None and broker.claimed is None and broker.claims:
            yield f"{name} claims", self._claim(world, number, broker)
        if broker.term is not None and not broker.doubtful:
            if broker.groups:
                yield f"{name} sends", self._send(world, number, broker)
            if broker.sent:
                yield f"{name} waits no longer", _with_broker(world, number, broker._replace(doubtful=True))
        if broker.term is not None and not broker.doubtful and world.sessions[broker.session].answers:
            yield f"{name} is answered", self._answer(world, number, broker)

    # -- what a broker does

    def _send(self, world: World, number: int, broker: Broker) -> World:
        assert broker.term is not None
        last = broker.sent[-1].group if broker.sent else broker.counted
        stamp = Stamp(Kind.GROUP, broker.term, last + 1)
        session = world.sessions[broker.session]
        world = _with_session(world, broker.session, session._replace(requests=(*session.requests, stamp)))
        changed = broker._replace(sent=(*broker.sent, stamp), groups=broker.groups - 1)
        return _with_broker(world, number, changed)

    def _claim(self, world: World, number: int, broker: Broker) -> World:
        """By a producer of its own, so that what an earlier one had sent can come at any time."""
        stamp = fencing.claim(broker.view, f"{'ABC'[number]}{broker.claims}")
        changed = broker._replace(claimed=stamp, claims=broker.claims - 1, session=len(world.sessions))
        if broker.session >= 0:  # nobody hears its answers any more
            world = _with_session(world, broker.session, world.sessions[broker.session]._replace(answers=()))
        world = world._replace(sessions=(*world.sessions, Session((stamp,))))
        return _with_broker(world, number, changed)

    def _answer(self, world: World, number: int, broker: Broker) -> World:
        session = world.sessions[broker.session]
        (stamp, offset), rest = session.answers[0], session.answers[1:]
        world = _with_session(world, broker.session, session._replace(answers=rest))
        if not broker.sent or broker.sent[0] != stamp:
            return _with_broker(world, number, broker._replace(doubtful=True))
        expected = self.rules.acknowledged(broker.expected, offset)
        if expected is None:
            return _with_broker(world, number, broker._replace(doubtful=True))
        world = world._replace(acknowledged=world.acknowledged | {stamp})
        changed = broker._replace(sent=broker.sent[1:], counted=stamp.group, expected=expected)
        return _with_broker(world, number, changed)

    def _read(self, world: World, number: int, broker: Broker) -> World:
        """To the end of the journal, and what follows from it."""
        view, counted = broker.view, broker.counted
        for stamp in world.log[view.offset :]:
            view, verdict = self.rules.read(view, stamp)
            if verdict is Verdict.COUNTS and stamp.term == broker.term:
                counted = max(counted, stamp.group)
        broker = broker._replace(view=view, counted=counted)
        if broker.term is not None and (broker.doubtful or view.term != broker.term):
            world, broker = self._settle(world, broker)
        if broker.claimed is not None and view.term == broker.claimed.term:
            broker = broker._replace(
                term=view.term, claimed=None, expected=view.offset, counted=view.group, sent=(), doubtful=False
            )
        elif broker.claimed is not None and view.term.number >= broker.claimed.term.number:
            broker = broker._replace(claimed=None, term=None, sent=(), doubtful=False)
        elif broker.doubtful and broker.term is not None and broker.claimed is None:
            if not broker.sent:
                broker = broker._replace(doubtful=False, expected=view.offset)
            elif broker.claims:
                return self._claim(world, number, broker)
        return _with_broker(world, number, broker)

    def _settle(self, world: World, broker: Broker) -> tuple[World, Broker]:
        """The fates of what was sent."""
        assert broker.term is not None
        left = []
        for stamp in broker.sent:
            outcome = self.rules.outcome(broker.view, broker.term, broker.counted, stamp.group)
            if outcome is GroupOutcome.STORED:
                world = world._replace(acknowledged=world.acknowledged | {stamp})
            elif outcome is GroupOutcome.NOT_STORED:
                world = world._replace(refused=world.refused | {stamp})
            else:
                left.append(stamp)
        broker = broker._replace(sent=tuple(left))
        if broker.view.term != broker.term:
            broker = broker._replace(term=None, doubtful=False)
        return world, broker

    # -- what must hold

    def check(self, world: World) -> None:
        counts = counted(world.log, self.rules)
        numbers = [stamp.group for stamp in counts]
        if numbers != list(range(1, len(numbers) + 1)):
            raise Violation(f"the journal does not go on by one: {numbers}")
        terms = [stamp.term.number for stamp in counts]
        if terms != sorted(terms):
            raise Violation(f"two owners write at once: {counts}")
        if lost := world.acknowledged.difference(counts):
            raise Violation(f"acknowledged, and does not count: {lost}")
        if back := world.refused.intersection(counts):
            raise Violation(f"refused, and counts: {back}")
        for term in {stamp.term for stamp in world.acknowledged}:
            mine = sorted(stamp.group for stamp in world.acknowledged if stamp.term == term)
            if mine != list(range(mine[0], mine[0] + len(mine))):
                raise Violation(f"acknowledged out of order: {mine}")


class Searched(NamedTuple):
    worlds: int
    acknowledged: int  # worlds in which something is acknowledged by two owners
    refused: int


def search(model: Model, most: int = 3_000_000) -> Searched:
    """Every world that can be reached. Raises Violation, with the steps that lead to it."""
    origin: dict[World, tuple[World, str] | None] = {model.start: None}
    waiting = [model.start]
    both = refused = 0
    while waiting:
        world = waiting.pop()
        try:
            model.check(world)
        except Violation as violation:
            steps = []
            found = origin[world]
            while found is not None:
                steps.append(found[1])
                found = origin[found[0]]
            raise Violation(f"{violation}\nafter: {'; '.join(reversed(steps))}\nin: {world.log}") from None
        both += len({stamp.term for stamp in world.acknowledged}) > 1
        refused += bool(world.refused)
        for step, following in model.steps(world):
            if following not in origin:
                origin[following] = world, step
                waiting.append(following)
                assert len(origin) <= most, "more worlds than expected"
    return Searched(len(origin), both, refused)


def counted(log: tuple[Stamp, ...], rules: Rules | None = None) -> list[Stamp]:
    """The groups that count."""
    view, found = JournalView(), []
    for stamp in log:
        view, verdict = (rules or RealRules()).read(view, stamp)
        if verdict is Verdict.COUNTS:
            found.append(stamp)
    return found


def _with_session(world: World, number: int, session: Session) -> World:
    sessions = world.sessions
    return world._replace(sessions=(*sessions[:number], session, *sessions[number + 1 :]))


def _with_broker(world: World, number: int, broker: Broker) -> World:
    brokers = world.brokers
    return world._replace(brokers=(*brokers[:number], broker, *brokers[number + 1 :]))
