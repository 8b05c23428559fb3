"""Cleanup behind conversations: what they made on a server is removed again, and what could not be is told.

A protocol that can delete does it by the steps under `cleanup` in its files, on a connection of their own, after each
conversation, however that ended. The others have no word for it. Penstock has all protocols on one log, so topics can
be deleted through FlyMQ, which on its ports is spoken beside any other.
"""

from __future__ import annotations

import secrets
import ssl
import string
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from penstock.clients.flymq import AsyncClient, FlyMqError, RetryPolicy
from penstock.conformance.vectors import Conversation, Session

RemoveTopics: TypeAlias = Callable[[Sequence[str]], Awaitable["Removal"]]

_LETTERS: Final = string.ascii_lowercase + string.digits
_TENANTS: Final = 1 << 40  # a tenant's number of a run is above it: nobody counts so far by hand


class RunNames:
    """Names of one run: `conformance_` with five letters of the run and three digits of the conversation. All have
    one length, so that lengths can be written down."""

    def __init__(self) -> None:
        self._run = "".join(secrets.choice(_LETTERS) for _ in range(5))
        self._conversations = 0
        self.tenant = str(_TENANTS + secrets.randbelow(_TENANTS))  # of Kimberlite, where nobody names one

    def next(self) -> dict[str, str]:
        """The names for another conversation."""
        self._conversations += 1
        unique = f"{self._run}{self._conversations:03d}"
        return {"topic": f"conformance_{unique}", "group": f"readers_{unique}", "key": f"key_{unique}"}


def made_by(session: Session, conversation: Conversation) -> list[str]:
    """The variables whose things a conversation may have made: it sends them. A group's offsets go with their topic."""
    sent = "".join(_texts([step.send for step in conversation.steps]))
    removable = {name for each in session.cleanup for name in each.removes}
    return [name for name in ("topic", *sorted(removable - {"topic"})) if f"${{{name}}}" in sent]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


class Removal(msgspec.Struct, frozen=True):
    """The outcome of removing topics: those that are gone, and why the others are not."""

    removed: frozenset[str] = frozenset()
    reason: str = ""


class Leftover(msgspec.Struct, frozen=True):
    """A thing that a run could not remove: a topic, or a key of a cache."""

    kind: str
    name: str
    reason: str


class Leftovers:
    """Names that conversations have used and nobody has removed yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}

    def add(self, kinds: Iterable[str], variables: Mapping[str, bytes], reason: str) -> None:
        for kind in kinds:
            self._open[kind, variables[kind].decode()] = reason

    def discard(self, kinds: Iterable[str], variables: Mapping[str, bytes]) -> None:
        for kind in kinds:
            self._open.pop((kind, variables[kind].decode()), None)

    async def remove_topics(self, remove: RemoveTopics) -> None:
        """Remove the topics that the protocol itself could not delete."""
        names = [name for kind, name in self._open if kind == "topic"]
        if not names:
            return
        removal = await remove(names)
        for name in names:
            if name in removal.removed:
                del self._open["topic", name]
            elif removal.reason:
                self._open["topic", name] += f"; {removal.reason}"

    def remaining(self) -> list[Leftover]:
        return [Leftover(kind, name, reason) for (kind, name), reason in self._open.items()]


async def nowhere(_names: Sequence[str]) -> Removal:
    """For a server of which no other door is known."""
    return Removal(reason="name FlyMQ's address of a Penstock broker with --remove-at, to delete them there")


def through_flymq(
    host: str, port: int, tls: ssl.SSLContext | None, given: Mapping[str, str], seconds: float
) -> RemoveTopics:
    """Deletes topics where FlyMQ is spoken, and claims only what was listed there before. Any other server closes the
    connection over the first byte."""

    async def remove(names: Sequence[str]) -> Removal:
        removed: set[str] = set()
        try:
            async with AsyncClient(
                host, port, username=given.get("user"), password=given.get("password"), tls=tls, timeout=seconds,
                retry=RetryPolicy(attempts=1),
            ) as client:  # fmt: skip
                listed = set(await client.list_topics())
                for name in listed.intersection(names):
                    await client.delete_topic(name)
                    removed.add(name)
        except (FlyMqError, OSError, TimeoutError) as error:
            return Removal(frozenset(removed), f"FlyMQ at {host}:{port} did not delete them: {error}")
        if removed:  # the names of a run are all of one tenant: the others were never made
            return Removal(frozenset(names))
        return Removal(
            reason=f"FlyMQ at {host}:{port} lists none of them: they are of another tenant, if they are there"
        )

    return remove
