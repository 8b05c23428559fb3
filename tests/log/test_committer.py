"""Group commit: which appends go to the disk together, and what happens when a write or a callback fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.log.committer import INLINE_BYTES, MAX_POLLS, InlineCommitter, ThreadCommitter
from penstock.log.engine import CommitGroup, GroupState


class Group:
    def __init__(self, items: list[str], outcome: CommitGroup, *, must_sync: bool, byte_size: int) -> None:
        self.items = items
        self.outcome = outcome
        self.must_sync = must_sync
        self.byte_size = byte_size


class DiskError(Exception):
    pass


class ToyLog:
    """A log of words. Its disk writes when the test lets it, and fails at a chosen word."""

    def __init__(self, committer: ThreadCommitter | InlineCommitter, *, must_sync: bool = True, size: int = 10) -> None:
        self.disk: list[list[str]] = []
        self.writers: list[str] = []  # the thread of each write
        self.fail_at = ""
        self._may_write = threading.Event()
        self._may_write.set()
        self.writing = threading.Event()
        self._open: list[str] = []
        self._outcome = CommitGroup()
        self._must_sync, self._size = must_sync, size
        self._committer = committer
        committer.attach(self)

    def append(self, word: str) -> CommitGroup:
        self._open.append(word)
        self._committer.request()
        return self._outcome

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    @property
    def gathered(self) -> int:
        return len(self._open) if self._must_sync and self._size <= INLINE_BYTES else 0

    def seal(self) -> Group | None:
        if not self._open:
            return None
        group = Group(self._open, self._outcome, must_sync=self._must_sync, byte_size=self._size)
        self._open, self._outcome = [], CommitGroup()
        return group

    def write(self, group: Group) -> None:
        self.writers.append(threading.current_thread().name)
        self.writing.set()
        assert self._may_write.wait(30), "the test forgot to let the disk write"
        if self.fail_at in group.items:
            raise DiskError(self.fail_at)
        self.disk.append(group.items)

    def complete(self, group: Group, error: Exception | None) -> None:
        group.outcome.finish(error)
        if error is not None:  # as the engine does: what came behind it is not in the log either
            self._open.clear()
            behind, self._outcome = self._outcome, CommitGroup()
            behind.finish(error)

    def hold(self) -> None:
        """The disk writes nothing until `release`."""
        self._may_write.clear()

    def release(self) -> None:
        self._may_write.set()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


async def settled(*outcomes: CommitGroup) -> None:
    async with asyncio.timeout(30):
        for outcome in outcomes:
            done = asyncio.Event()
            outcome.on_done(lambda _, done=done: done.set())  # type: ignore[misc]
            await done.wait()


async def started(log: ToyLog) -> None:
    """Wait until the thread is inside a write."""
    await asyncio.get_running_loop().run_in_executor(None, log.writing.wait, 30)
    log.writing.clear()


def with_thread(
    loop: asyncio.AbstractEventLoop, test: Callable[[ToyLog], Awaitable[None]], **options: bool | int
) -> ToyLog:
    committer = ThreadCommitter(loop)
    log = ToyLog(committer, **options)  # type: ignore[arg-type]

    async def run() -> None:
        await test(log)

    try:
        loop.run_until_complete(run())
    finally:
        log.release()
        committer.drain()
        loop.run_until_complete(loop.shutdown_default_executor())
    return log


def test_appends_of_one_turn_form_one_group(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        outcomes = [log.append(word) for word in ("a", "b", "c")]
        assert log.disk == []  # nothing happens inside the turn
        await settled(*outcomes)
        assert {outcome.state for outcome in outcomes} == {GroupState.COMMITTED}
        await settled(log.append("d"))

    log = with_thread(loop, test)
    assert log.disk == [["a", "b", "c"], ["d"]]
    assert set(log.writers) == {"penstock-commit"}


@pytest.mark.parametrize("must_sync", [True, False], ids=["synced", "written"])
def test_what_arrives_during_a_write_forms_the_next_group(loop: asyncio.AbstractEventLoop, must_sync: bool) -> None:
    async def test(log: ToyLog) -> None:
        log.hold()
        first = log.append("a")
        await started(log)
        later = []
        for word in ("b", "c", "d"):
            later.append(log.append(word))
            await asyncio.sleep(0)  # in turns of their own
        assert first.state is GroupState.OPEN
        log.release()
        await settled(first, *later)  # without `drain`: the committer goes on by itself

    log = with_thread(loop, test, must_sync=must_sync, size=INLINE_BYTES + 1)
    assert log.disk == [["a"], ["b", "c", "d"]]


def test_the_next_group_is_written_while_replies_to_the_last_are_sent(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        log.hold()
        first = log.append("a")
        await started(log)
        second = log.append("b")
        first.on_done(lambda _: written.append(log.writing.wait(30)))
        log.release()
        await settled(first, second)

    written: list[bool] = []
    with_thread(loop, test, size=INLINE_BYTES + 1)
    assert written == [True]


def test_nobody_is_answered_before_the_write_is_done(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        log.hold()
        told: list[list[list[str]]] = []
        outcome = log.append("a")
        outcome.on_done(lambda _: told.append(list(log.disk)))
        await started(log)
        for _ in range(10):
            await asyncio.sleep(0)
        assert told == []
        log.release()
        await settled(outcome)
        assert told == [[["a"]]]

    with_thread(loop, test)


def test_an_error_in_a_callback_stops_nothing(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(log: ToyLog) -> None:
        told = []
        outcome = log.append("a")

        def broken(_: CommitGroup) -> None:
            raise ZeroDivisionError

        outcome.on_done(broken)
        outcome.on_done(lambda _: told.append("after the broken one"))
        await settled(outcome)
        await settled(log.append("b"))
        assert told == ["after the broken one"]

    log = with_thread(loop, test)
    assert log.disk == [["a"], ["b"]]
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_append(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        second: list[CommitGroup] = []
        first = log.append("a")
        first.on_done(lambda _: second.append(log.append("b")))
        await settled(first)
        await settled(*second)

    assert with_thread(loop, test).disk == [["a"], ["b"]]


@pytest.mark.parametrize("must_sync", [True, False], ids=["synced", "written"])
def test_a_failed_write_fails_all_that_is_behind_it(loop: asyncio.AbstractEventLoop, must_sync: bool) -> None:
    async def test(log: ToyLog) -> None:
        log.hold()
        log.fail_at = "bad"
        failing = log.append("bad")
        await started(log)
        behind = log.append("behind")
        log.release()
        await settled(failing, behind)
        for outcome in (failing, behind):
            assert outcome.state is GroupState.FAILED
            assert isinstance(outcome.error, DiskError)
        await settled(log.append("new"))  # whether to go on is the log's decision, and this one does

    log = with_thread(loop, test, must_sync=must_sync, size=INLINE_BYTES + 1)
    assert log.disk == [["new"]]


def test_a_group_that_fails_while_replies_to_the_last_are_sent_takes_nothing_back(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def test(log: ToyLog) -> None:
        log.hold()
        log.fail_at = "bad"
        first = log.append("a")
        await started(log)
        failing = log.append("bad")
        behind: list[CommitGroup] = []

        def answered(_: CommitGroup) -> None:
            assert log.writing.wait(30)
            behind.append(log.append("behind"))

        first.on_done(answered)
        log.release()
        await settled(first, failing)
        await settled(*behind)
        assert [first.state, failing.state, behind[0].state] == [
            GroupState.COMMITTED,
            GroupState.FAILED,
            GroupState.FAILED,
        ]

    assert with_thread(loop, test, size=INLINE_BYTES + 1).disk == [["a"]]


def test_a_group_behind_the_failed_one_is_never_written(loop: asyncio.AbstractEventLoop) -> None:
    """Not even by the thread that was free at that moment."""

    async def test(log: ToyLog) -> None:
        log.fail_at = "bad"
        failing = log.append("bad")
        failing.on_done(lambda _: None)
        await settled(failing)
        for _ in range(10):
            await asyncio.sleep(0.001)

    log = with_thread(loop, test)
    assert log.disk == []
    assert len(log.writers) == 1


@pytest.mark.parametrize(("size", "inline"), [(INLINE_BYTES, True), (INLINE_BYTES + 1, False)], ids=["small", "large"])
def test_small_groups_that_need_no_sync_are_written_at_once(
    loop: asyncio.AbstractEventLoop, size: int, inline: bool
) -> None:
    async def test(log: ToyLog) -> None:
        await settled(log.append("a"))

    log = with_thread(loop, test, must_sync=False, size=size)
    assert (log.writers == [threading.current_thread().name]) is inline
    assert log.disk == [["a"]]


async def one_in_each_turn(log: ToyLog, words: str) -> None:
    """As when a request arrives while the one before is decoded."""
    outcomes = []
    for word in words:
        outcomes.append(log.append(word))
        await asyncio.sleep(0)
    await settled(*outcomes)


def test_those_who_arrive_while_others_are_decoded_go_with_them(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        await settled(log.append("a"), log.append("b"))  # there is more than one client
        await one_in_each_turn(log, "cdef")

    log = with_thread(loop, test)
    assert log.disk == [["a", "b"], list("cdef")]


def test_a_group_waits_for_others_a_few_turns_at_most(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        await settled(log.append("a"), log.append("b"))
        await one_in_each_turn(log, "c" * 100)

    log = with_thread(loop, test)
    assert len(log.disk[1]) == MAX_POLLS + 1


@pytest.mark.parametrize("options", [{"must_sync": False}, {"size": INLINE_BYTES + 1}])
def test_groups_that_are_large_or_not_synced_wait_for_nobody(
    loop: asyncio.AbstractEventLoop, options: dict[str, int]
) -> None:
    async def test(log: ToyLog) -> None:
        await settled(log.append("a"), log.append("b"))
        await one_in_each_turn(log, "cdef")

    log = with_thread(loop, test, **options)
    assert log.disk[1] == ["c"]


def test_a_single_client_is_not_kept_waiting(loop: asyncio.AbstractEventLoop) -> None:
    async def test(log: ToyLog) -> None:
        await settled(log.append("a"))
        log.append("b")
        await asyncio.sleep(0)
        assert not log.waiting

    assert with_thread(loop, test).disk == [["a"], ["b"]]


def test_other_work_is_done_in_order_and_holds_up_no_group(loop: asyncio.AbstractEventLoop) -> None:
    done: list[int] = []
    may_work = threading.Event()

    def work(number: int) -> None:
        assert may_work.wait(30), "the test forgot to let it work"
        done.append(number)

    committer = ThreadCommitter(loop)
    log = ToyLog(committer)
    for number in range(3):
        committer.run_in_background(lambda number=number: work(number))  # type: ignore[misc]
    loop.run_until_complete(settled(log.append("a")))
    assert (log.disk, done) == ([["a"]], [])
    may_work.set()
    committer.drain()  # waits for that work too
    assert done == [0, 1, 2]
    committer.run_in_background(lambda: work(3))  # at once: there is no thread any more
    assert done == [0, 1, 2, 3]


def test_failing_work_does_not_end_the_thread(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    committer = ThreadCommitter(loop)
    log = ToyLog(committer)

    def broken() -> None:
        raise ZeroDivisionError

    committer.run_in_background(broken)
    done = threading.Event()
    committer.run_in_background(done.set)
    assert done.wait(30)
    loop.run_until_complete(settled(log.append("a")))
    committer.drain()
    assert log.disk == [["a"]]
    assert "ZeroDivisionError" in caplog.text


def test_drain_completes_everything_without_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    """A group is with the thread, another is open, and the loop never runs again."""
    committer = ThreadCommitter(loop)
    log = ToyLog(committer)
    log.hold()

    async def test() -> tuple[CommitGroup, CommitGroup]:
        first = log.append("a")
        await started(log)
        return first, log.append("b")

    outcomes = loop.run_until_complete(test())
    loop.run_until_complete(loop.shutdown_default_executor())
    log.release()
    committer.drain()
    assert log.disk == [["a"], ["b"]]
    assert [outcome.state for outcome in outcomes] == [GroupState.COMMITTED] * 2


def test_drain_tells_of_a_write_that_failed(loop: asyncio.AbstractEventLoop) -> None:
    committer = ThreadCommitter(loop)
    log = ToyLog(committer)
    log.hold()
    log.fail_at = "a"

    async def test() -> tuple[CommitGroup, CommitGroup]:
        first = log.append("a")
        await started(log)
        return first, log.append("b")

    outcomes = loop.run_until_complete(test())
    loop.run_until_complete(loop.shutdown_default_executor())
    log.release()
    committer.drain()
    assert log.disk == []
    assert [outcome.state for outcome in outcomes] == [GroupState.FAILED] * 2


def test_drain_ends_the_threads_and_may_be_repeated(loop: asyncio.AbstractEventLoop) -> None:
    before = threading.active_count()
    committer = ThreadCommitter(loop)
    log = ToyLog(committer)
    log.append("a")
    committer.drain()
    committer.drain()
    assert log.disk == [["a"]]
    assert threading.active_count() == before


# -- inline


def test_inline_writes_when_told_to() -> None:
    committer = InlineCommitter()
    log = ToyLog(committer)
    outcomes = [log.append("a"), log.append("b")]
    assert log.disk == []
    assert committer.run()
    assert log.disk == [["a", "b"]]
    assert [outcome.state for outcome in outcomes] == [GroupState.COMMITTED] * 2
    assert not committer.run()


def test_inline_tells_of_failures() -> None:
    committer = InlineCommitter()
    log = ToyLog(committer)
    log.fail_at = "a"
    outcome = log.append("a")
    committer.drain()
    assert isinstance(outcome.error, DiskError)


def test_a_quick_disk_does_not_let_a_small_group_overtake_a_large_one(loop: asyncio.AbstractEventLoop) -> None:
    order: list[str] = []

    async def test(log: ToyLog) -> None:
        log._committer._seconds = 0.0  # type: ignore[union-attr]
        log.hold()
        large = log.append("large")
        await started(log)
        log._size = 10
        small = log.append("small")
        for name, outcome in (("large", large), ("small", small)):
            outcome.on_done(lambda _, name=name: order.append(name))  # type: ignore[misc]
        log.release()
        await settled(large, small)

    with_thread(loop, test, size=INLINE_BYTES + 1)
    assert order == ["large", "small"]


def test_small_groups_are_synced_at_once_on_a_quick_disk_and_by_the_thread_on_a_slow_one(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def test(log: ToyLog) -> None:
        for seconds in (0.0, 1.0):
            log._committer._seconds = seconds  # type: ignore[union-attr]
            await settled(log.append("a"))

    log = with_thread(loop, test)
    assert log.writers == ["MainThread", "penstock-commit"]
