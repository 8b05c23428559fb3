"""Cleanup after conversations: removes what they created on a server, and reports what could not be removed.

Protocols that can delete do so with the steps under `cleanup` in their files, on a separate connection after each
conversation, however it ended. The others cannot. Penstock has all protocols on one log, so topics can be deleted
through FlyMQ, which its TCP ports serve besides their own protocol.
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
_TENANTS: Final = 1 << 40  # tenant numbers of a run are above it, where nobody uses them by hand


class RunNames:
    """Names for one run: `conformance_` with five letters for the run and three digits for the conversation. All have
    the same length, so that vectors can contain lengths."""

    def __init__(self) -> None:
        self._run = "".join(secrets.choice(_LETTERS) for _ in range(5))
        self._conversations = 0
        self.tenant = str(_TENANTS + secrets.randbelow(_TENANTS))  # for Kimberlite, if none is given

    def next(self) -> dict[str, str]:
        """The names for the next conversation."""
        self._conversations += 1
        unique = f"{self._run}{self._conversations:03d}"
        return {"topic": f"conformance_{unique}", "group": f"readers_{unique}", "key": f"key_{unique}"}


def made_by(session: Session, conversation: Conversation) -> list[str]:
    """The variables whose objects a conversation may have created, since it sends them. A group's offsets are removed
    with their topic."""
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
    """The outcome of removing topics: those removed, and the reason why others were not."""

    removed: frozenset[str] = frozenset()
    reason: str = ""


class Leftover(msgspec.Struct, frozen=True):
    """An object that a run could not remove: a topic, or a key of a cache."""

    kind: str
    name: str
    reason: str


class Leftovers:
    """Names that conversations used and that are not removed yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}

    def add(self, kinds: Iterable[str], variables: Mapping[str, bytes], reason: str) -> None:
        for kind in kinds:
            self._open[kind, variables[kind].decode()] = reason

    def discard(self, kinds: Iterable[str], variables: Mapping[str, bytes]) -> None:
        for kind in kinds:
            self._open.pop((kind, variables[kind].decode()), None)

    async def remove_topics(self, remove: RemoveTopics) -> None:
        """Remove the topics that the protocol itself cannot delete."""
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
    """Removes nothing: for a server without another known door."""
    return Removal(reason="name FlyMQ's address of a Penstock broker with --remove-at, to delete them there")


def through_flymq(
    host: str, port: int, tls: ssl.SSLContext | None, given: Mapping[str, str], seconds: float
) -> RemoveTopics:
    """Deletes topics through FlyMQ, and only reports those as removed that were listed there before. Any other server
    closes the connection at the first byte."""

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
        if removed:  # the names of a run are all in one tenant: the others were never created
            return Removal(frozenset(names))
        return Removal(
            reason=f"FlyMQ at {host}:{port} lists none of them: they are of another tenant, if they are there"
        )

    return remove
