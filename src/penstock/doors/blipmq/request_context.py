"""The context of a BlipMQ request."""

from __future__ import annotations

from typing import Final, Protocol

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import Identity
from penstock.broker.security.key import Verdict
from penstock.doors.blipmq.produce_batch import PublishProperties
from penstock.doors.blipmq.states import Handshake
from penstock.doors.blipmq.subscriptions import Pushes
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.request_context import RequestContext
from penstock.doors.session import Channel
from penstock.log.engine import CommitGroup
from penstock.wire.blipmq import codec
from penstock.wire.blipmq.errors import EMPTY_TOPIC, NUL_IN_TOPIC, Nack

SCOPE: Final = DEFAULT_SCOPE  # BlipMQ has no tenants


class Pausable(Protocol):
    def resume(self) -> None: ...


class BlipMqContext(RequestContext):
    """One connection. AUTH changes its identity."""

    __slots__ = ("channel", "handshake", "paused", "publications", "pushes", "replies", "version", "written")

    def __init__(
        self, broker: Broker, identity: Identity, channel: Channel, replies: ReplyQueue, pushes: Pushes
    ) -> None:
        super().__init__(broker, identity, channel.peer)
        self.channel = channel
        self.replies = replies
        self.pushes = pushes
        self.version = 0  # of the protocol, known after HELLO
        self.handshake = Handshake(self._authenticate)
        self.publications: dict[bytes, PublishProperties] = {}  # by the bytes of a PUBLISH before the value
        self.paused: Pausable | None = None  # waits until the client receives earlier replies
        self.written: CommitGroup | None = None  # of the last message or subscription of this connection

    def _authenticate(self, key: str) -> Verdict:
        verdict = self.broker.keys.authenticate(key, self.peer.rpartition(":")[0])
        if isinstance(verdict, Identity):
            self.count_connection(verdict)
        return verdict

    def refuse(self, correlation: int, nack: Nack) -> None:
        self.replies.enqueue(codec.encode_nack(correlation, *nack))

    def topic(self, name: bytes, malformed: Nack) -> tuple[str, Nack | None]:
        """The name as text, or the reason why it is invalid."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return "", malformed
        if not topic:
            return "", EMPTY_TOPIC
        if self.version == 2 and "\0" in topic:
            return "", NUL_IN_TOPIC
        return topic, None
