"""Exceptions of the BlipMQ clients. What they mean in general is in `clients._core.errors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.clients._core import errors as core
from penstock.clients.blipmq.results import Refusal


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


class OutcomeUnknown(BlipMQError, core.OutcomeUnknown):
    """The connection was lost while it was not known what became of `count` messages: each may be stored, or not."""

    def __init__(self, count: int) -> None:
        super().__init__(f"The connection was lost: {count} messages may be stored, or not")
        self.count = count


# All requests are idempotent, and a reply that does not come in time ends the connection: the core raises nothing else.
FAMILY: Final = core.ErrorFamily(unsendable=Unsendable, bad_reply=BadReply, connection_failed=ConnectionFailed)


def reply_error(code: int, text: str) -> ReplyError:
    return (ServerError if code >= 500 else ClientError)(code, text)
