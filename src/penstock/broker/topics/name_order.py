"""Name order: the names of a scope's topics in alphabetical order, sorted once while no topic comes or goes."""

from __future__ import annotations

from penstock.broker.names import Scope, is_internal
from penstock.broker.state.state import State


class NameOrder:
    """Remembers the order of the scope that was asked for last."""

    __slots__ = ("_known", "_names")

    def __init__(self) -> None:
        self._known: tuple[State, Scope, int, int] | None = None
        self._names: list[str] = []

    def of(self, state: State, scope: Scope) -> list[str]:
        """Without internal topics. Do not change the list."""
        known = self._known
        # Every new topic takes the next id, and between two of them there can only be fewer; a state that was rolled
        # back is another object.
        if known is None or known[0] is not state or known[1:] != (scope, state.next_topic_id, len(state.topics_by_id)):
            self._known = (state, scope, state.next_topic_id, len(state.topics_by_id))
            self._names = [name for name in sorted(state.topics.get(scope, {})) if not is_internal(name)]
        return self._names
