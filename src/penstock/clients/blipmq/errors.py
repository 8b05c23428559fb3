"""Exceptions of the BlipMQ clients. What they mean in general is in `clients._core.errors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.clients._core import errors as core
from penstock.clients.blipmq.results import Refusal
from penstock.wire.blipmq.errors import OUTCOME_UNKNOWN


class BlipMQError(core.PenstockError):
    """Any failure."""


class Unsendable(BlipMQError, core.Unsendable):
    """The request cannot be written in this version, or does not fit a frame. Nothing was sent."""


class ReplyError(BlipMQError, core.ReplyError):
    """The server answered with a NACK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (code {code})")
        self.code = code
        self.text = text


class ClientError(ReplyError):
    """The request was wrong: to send it again would not help."""


class ServerError(ReplyError):
    """The server could not do it now. It may be sent again after a while."""


class PublishRefused(BlipMQError):
    """Messages were not stored. `refusals` has one entry for each, by the id that `publish` returned; of very many it
    has the last ones, and `count` says how many there were."""

    def __init__(self, refusals: Sequence[Refusal], count: int) -> None:
        super().__init__(f"{count} messages were refused, the last one with: {refusals[-1].text}")
        self.refusals = list(refusals)
        self.count = count


class BadReply(BlipMQError, core.BadReply):
    """The server sent something that is no answer. The connection was closed."""


class ConnectionFailed(BlipMQError, core.ConnectionFailed):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows."""


LOST: Final = "The connection was lost"


class OutcomeUnknown(BlipMQError, core.OutcomeUnknown):
    """The connection was lost while it was not known what became of `count` messages, or the server's disk failed while
    it wrote them: each may be stored, or not."""

    def __init__(self, count: int, reason: str = LOST) -> None:
        super().__init__(f"{reason}: {count} messages may be stored, or not")
        self.count = count


class WriteDoubtful(ReplyError, core.OutcomeUnknown):
    """The server's disk failed while it wrote what the request changes, and it said so."""


# All requests are idempotent, and a reply that does not come in time ends the connection: the core raises nothing else.
FAMILY: Final = core.ErrorFamily(unsendable=Unsendable, bad_reply=BadReply, connection_failed=ConnectionFailed)


def reply_error(code: int, text: str) -> ReplyError:
    if text.endswith(OUTCOME_UNKNOWN):
        return WriteDoubtful(code, text)
    return (ServerError if code >= 500 else ClientError)(code, text)
