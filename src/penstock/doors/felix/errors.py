"""What went wrong, in the words that Felix clients know: one table of texts for the errors of `core` and `log`.

Where an error's own text is for the operator's eyes, clients get another. What is sent with the text, and whether the
stream goes on, is decided by `refusals`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.broker import errors as core
from penstock.log import errors as log

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame
MAX_NAME: Final = 300  # of each of the names in it

Names: TypeAlias = tuple[str, str, str]  # tenant, namespace, stream


class RequestRefused(Exception):
    """A request that is not carried out, for a reason that this protocol has. `ends`: nor any other on its stream."""

    def __init__(self, text: str, *, ends: bool = False) -> None:
        super().__init__(text)
        self.ends = ends


def _not_found(error: Exception, names: Names | None) -> str:  # noqa: ARG001 - the shape of `Text`
    if names is None:
        return "stream not found"
    tenant, namespace, stream = (name[:MAX_NAME] for name in names)
    return f"stream not found: tenant={tenant} namespace={namespace} stream={stream}"


def _no_partition(error: core.PartitionNotFound, names: Names | None) -> str:
    return f"{_not_found(error, names)} (topic '{error.topic[:MAX_NAME]}' has {error.partitions} partitions)"


def _overloaded(error: Exception, _names: Names | None) -> str:
    return f"server overloaded: {error}"


Text: TypeAlias = Callable[[Any, Names | None], str] | str | None
"""A text, or how to make one of the error and what the request names; None: the error's own."""

# Looked up for the error's class and its bases in turn.
TABLE: Final[dict[type[Exception], Text]] = {
    RequestRefused: None,
    core.TopicNotFound: _not_found,
    core.TenantNotFound: _not_found,
    core.PartitionNotFound: _no_partition,
    core.TooFast: _overloaded,
    core.LimitReached: _overloaded,
    core.ShuttingDown: "the broker is shutting down",
    core.StateUnreadable: "storage error",
    core.BrokerError: None,
    log.EntryTooLarge: "larger than the log accepts as one",
    log.LogClosed: "the broker is shutting down",
    log.LogReadOnly: "the log takes no writes",
    log.LogFull: "no space left",
    log.LogDamaged: "stored data is damaged",
    log.TableUnreadable: "the table that has these events cannot be read now",
    log.LogError: "storage error",
    Exception: "internal error",
}

EXPECTED: Final = (core.BrokerError, log.LogError, RequestRefused)
"""What is told to the client. Anything else is a mistake of ours: logged, and told as such."""


def text(error: Exception, *, original: bool, names: Names | None = None) -> str:
    """`names`: what the request was about, if it was a stream."""
    if isinstance(error, core.AccessDenied):
        return "forbidden" if original else f"unauthorized: {error}"[:MAX_TEXT]
    found = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(found):
        found = found(error, names)
    return (str(error) if found is None else found)[:MAX_TEXT]
