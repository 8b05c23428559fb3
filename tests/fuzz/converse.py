"""A stream of bytes to a session in memory, in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from tests.broker.broker_fixture import BrokerFixture

from penstock.doors.session import Session


class Peer(Protocol):
    """A client in memory, of any door."""

    sent: list[bytes]
    closed: bool

    @property
    def session(self) -> Session: ...


def converse(
    peer: Peer, fixture: BrokerFixture, stream: bytes, pieces: Sequence[int] = (), commits: Iterable[bool] = ()
) -> bytes:
    """The replies to a stream that arrives in pieces, the log committing after some of them, up to the close."""
    commit_next = iter(commits)
    points = sorted({0, *(piece % (len(stream) + 1) for piece in pieces), len(stream)})
    for start, end in pairwise(points):
        if not peer.closed:
            peer.session.receive(stream[start:end])
            if next(commit_next, False):
                fixture.commit()
    fixture.commit()
    if not peer.closed:
        peer.session.end_of_input()
        fixture.commit()
    assert peer.closed
    return b"".join(peer.sent)
