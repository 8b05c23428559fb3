"""The data classes of topics. Protected health information (PHI) requires a separate permission; `Access` checks it
here, so that no door can forget to.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.names import Scope
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.state.state import State

PHI: Final = "PHI"


def is_phi(state: State, scope: Scope, topic: str) -> bool:
    """Whether the topic's records are protected health information. So are the dead letters of such a topic."""
    known = state.topics.get(scope)
    if known is None:
        return False
    found = known.get(topic)
    if found is not None and found.settings.data_class == PHI:
        return True
    source = known.get(topic.removesuffix(SUFFIX)) if topic.endswith(SUFFIX) else None
    return source is not None and source.settings.data_class == PHI
