"""Exceptions of the BlipMQ clients. `clients._core.errors` has their general meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.clients._core import errors as core
from penstock.clients.blipmq.results import Refusal
from penstock.wire.blipmq.errors import OUTCOME_UNKNOWN


class BlipMQError(core.PenstockError):
    """Any failure."""


class Unsendable(BlipMQError, core.Unsendable):
    """This version cannot express the request, or it does not fit into a frame. Nothing was sent."""


class ReplyError(BlipMQError, core.ReplyError):
    """The server answered with a NACK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (code {code})")
        self.code = code
        self.text = text


class ClientError(ReplyError):
    """The request was invalid: a retry would not help."""


class ServerError(ReplyError):
    """The server could not execute it now. It may be retried after a while."""


class PublishRefused(BlipMQError):
    """Messages were not stored. `refusals` has one entry for each, with the id that `publish` returned; if there are
    very many, only the last ones. `count` is their number."""

    def __init__(self, refusals: Sequence[Refusal], count: int) -> None:
        super().__init__(f"{count} messages were refused, the last one with: {refusals[-1].text}")
        self.refusals = list(refusals)
        self.count = count


class BadReply(BlipMQError, core.BadReply):
    """The server sent something that is not a valid reply. The connection was closed."""


class ConnectionFailed(BlipMQError, core.ConnectionFailed):
    """No connection was established, or none lasted until the reply, in as many attempts as the retry policy allows."""


LOST: Final = "The connection was lost"


class OutcomeUnknown(BlipMQError, core.OutcomeUnknown):
    """The connection was lost before `count` messages were confirmed, or the server's disk failed while it wrote them:
    each may be stored or not."""

    def __init__(self, count: int, reason: str = LOST) -> None:
        super().__init__(f"{reason}: {count} messages may be stored, or not")
        self.count = count


class WriteDoubtful(ReplyError, core.OutcomeUnknown):
    """The server reported that its disk failed while it wrote the change of the request."""


# All requests are idempotent, and a missing reply ends the connection: the core raises nothing else.
FAMILY: Final = core.ErrorFamily(unsendable=Unsendable, bad_reply=BadReply, connection_failed=ConnectionFailed)


def reply_error(code: int, text: str) -> ReplyError:
    if text.endswith(OUTCOME_UNKNOWN):
        return WriteDoubtful(code, text)
    return (ServerError if code >= 500 else ClientError)(code, text)
