"""The order of names is remembered, and never out of date."""

from __future__ import annotations

import pytest

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.state.events import TopicCreated, TopicDeleted
from penstock.broker.state.state import State, apply
from penstock.broker.topics import name_order
from penstock.broker.topics.name_order import NameOrder
from penstock.broker.topics.topic_settings import TopicSettings

OTHER = Scope("other", "default")


def create(state: State, number: int, name: str, scope: Scope = DEFAULT_SCOPE) -> None:
    apply(state, TopicCreated(number, *scope, name, 1, TopicSettings(), 0))


def test_topics_come_and_go() -> None:
    order, state = NameOrder(), State()
    assert order.of(state, DEFAULT_SCOPE) == []
    create(state, 1, "b")
    create(state, 2, "a")
    create(state, 3, "__audit")
    assert order.of(state, DEFAULT_SCOPE) == ["a", "b"]
    apply(state, TopicDeleted(2))
    assert order.of(state, DEFAULT_SCOPE) == ["b"]
    create(state, 4, "c")
    assert order.of(state, DEFAULT_SCOPE) == ["b", "c"]
    create(state, 5, "d", OTHER)
    assert order.of(state, OTHER) == ["d"]
    assert order.of(state, DEFAULT_SCOPE) == ["b", "c"]


def test_a_state_that_was_rolled_back_is_another() -> None:
    order, failed, restored = NameOrder(), State(), State()
    create(failed, 1, "lost")
    assert order.of(failed, DEFAULT_SCOPE) == ["lost"]
    create(restored, 1, "kept")
    assert order.of(restored, DEFAULT_SCOPE) == ["kept"]


def test_names_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    order, state = NameOrder(), State()
    create(state, 1, "a")
    order.of(state, DEFAULT_SCOPE)
    monkeypatch.setattr(name_order, "is_internal", None)  # fails if it is called
    assert order.of(state, DEFAULT_SCOPE) == ["a"]
