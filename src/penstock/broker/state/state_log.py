"""The state log: keeps the broker's state and the log consistent. All services change state through it.

A change is applied as soon as it is appended, before it is durable. So that no client sees what a crash could take
back, a reply waits for the commit group of its request, and a reply that only read the state waits for
`pending_commit`. If such a group fails, the state is reloaded from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from penstock.broker.errors import ShuttingDown
from penstock.broker.state.events import AnyEvent, decode, encode
from penstock.broker.state.state import State, apply, apply_all, decode_snapshot, encode_snapshot
from penstock.log.engine import COMMITTED, FAILED, OPEN, Appended, CommitGroup, Engine, Producer, Write


class StateLog:
    """`engine` must be open and not read from yet. Raises LogError or StateUnreadable if its state cannot be read."""

    def __init__(self, engine: Engine, on_rebuilt: Callable[[], None] = lambda: None) -> None:
        """`on_rebuilt` is called after `state` was replaced by one reloaded from the log."""
        self.engine = engine
        self.closed = False
        self._on_rebuilt = on_rebuilt
        self._speculation: deque[CommitGroup] = deque()  # groups whose events are applied but not yet committed
        self._shown: CommitGroup | None = None  # the last of them with events that a reply could show
        self.state, self.notes = self._recover()  # notes: messages from recovery, for the operator
        engine.snapshot_from(self._snapshot)
        engine.on_late_commit(self._reread)

    def current(self) -> State:
        """The state, including changes that are still to be committed, but none that has failed. Raises
        ShuttingDown.
        """
        if self.closed:
            raise ShuttingDown("The broker is shutting down")
        if self._speculation and self._speculation[0].state is FAILED:
            self.drop_failed()
        return self.state

    def commit(self, events: Sequence[AnyEvent], writes: Sequence[Write] = ()) -> CommitGroup:
        """Append records and events as one entry of the log, and apply the events speculatively, before they are
        committed. Raises LogError, and then nothing has changed.
        """
        if writes or len(events) != 1:
            return self.append(writes, events).group
        event = events[0]
        group = self.engine.append_event(encode(event))
        apply(self.state, event)
        self._watch(group)
        return group

    def append(
        self,
        writes: Sequence[Write],
        events: Sequence[AnyEvent],
        producer: Producer | None = None,
        door: int = 0,
        *,
        shown: bool = True,
    ) -> Appended:
        """Like `commit`, but returns the records' offsets. If the events are not `shown` in any reply, no reply has to
        wait for them.
        """
        appended = self.engine.append(writes, list(map(encode, events)), producer, door)
        if appended.repeated:
            return appended  # its events were applied the first time
        apply_all(self.state, events)
        self._watch(appended.group, shown=shown)
        return appended

    def _watch(self, group: CommitGroup, *, shown: bool = True) -> None:
        if shown:
            self._shown = group
        if not self._speculation or self._speculation[-1] is not group:
            self._speculation.append(group)
            group.on_done(self._settle)

    @property
    def pending_commit(self) -> CommitGroup | None:
        """The last uncommitted group with state changes that a reply could show; None if there is none."""
        group = self._shown
        return group if group is not None and group.state is OPEN else None

    def drop_failed(self) -> None:
        """Reload the state if a group with events has failed. The first caller to need the state does this, because the
        order of the groups' callbacks is unspecified.

        A group fails together with all later ones, and no event is appended without calling this first. So all changes
        that are applied and not committed are dropped.
        """
        if self._speculation and self._speculation[0].state is FAILED:
            self._reread()

    def _reread(self) -> None:
        self.state = self._recover()[0]
        self._speculation.clear()
        self._shown = None
        self._on_rebuilt()

    def follow(self, events: Sequence[bytes]) -> None:
        """Apply events that another broker has committed to the log."""
        apply_all(self.state, map(decode, events))

    def detach(self) -> None:
        """Stop using the log, and leave it open: another broker goes on with it."""
        self.closed = True

    def close(self) -> None:
        """Commit pending appends, then close the log. Blocks."""
        if not self.closed:
            self.closed = True
            self.engine.close()

    def _settle(self, group: CommitGroup) -> None:
        if group.state is COMMITTED:
            assert self._speculation[0] is group, "groups are committed in order"
            self._speculation.popleft()
            if self._shown is group:
                self._shown = None
        else:
            self.drop_failed()

    def _recover(self) -> tuple[State, list[str]]:
        """The committed state, and the engine's messages from recovery."""
        recovered = self.engine.recover()
        state = State() if recovered.snapshot is None else decode_snapshot(recovered.snapshot)
        apply_all(state, map(decode, recovered.events))
        return state, recovered.notes

    def _snapshot(self) -> bytes:
        self.drop_failed()
        return encode_snapshot(self.state)
