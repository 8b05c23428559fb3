"""A connection whose requests are carried out strictly in order, and when it may go on, end and be forgotten.

What the bytes mean is the subclass's business: it takes them apart, carries out what can be carried out now, and says
when it is idle. Replies go through the outbox, in order, each behind the commit that it depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.session import Channel

FLUSH_BYTES: Final = 256 << 10  # replies of this size are not collected any further before they are sent


class RequestPipeline(ABC):
    """The state of one connection; a `Session`."""

    def __init__(self, broker: Broker, channel: Channel, identity: Identity) -> None:
        self.broker = broker
        self.channel = channel
        self.identity = identity
        self.replies = ReplyQueue(channel.send, self._replied)
        self._working = False
        self._listening = True  # input is taken
        self._closed = False

    # -- what a protocol has to say

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Keep the frames that these bytes complete. After bytes that cannot be understood, call `_finish`, or set
        `_listening` to False if what came before is still to be carried out."""

    @abstractmethod
    def _carry_out(self) -> None:
        """Carry out requests, until there are no more or the next one has to wait."""

    @property
    @abstractmethod
    def _idle(self) -> bool:
        """Whether every request that was taken has been carried out."""

    @property
    @abstractmethod
    def _held_input(self) -> int:
        """Bytes of input that are kept."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop all input that was not carried out, and whatever belongs to the connection alone."""

    # -- what `net` calls

    def receive(self, data: bytes) -> None:
        if self._listening and data:
            self._take(data)
        self.work()

    def end_of_input(self) -> None:
        self._listening = False
        self.work()

    def stop(self) -> None:
        self.end_of_input()

    def lost(self) -> None:
        self._listening = False
        self._closed = True
        self._forget()
        self.replies.discard()

    @property
    def held_bytes(self) -> int:
        return self._held_input + self.replies.held_bytes

    # -- the order of things

    def work(self) -> None:
        """Carry out what can be carried out now, send what can be sent, and close if that was all."""
        if self._working or self._closed:
            return
        self._working = True
        try:
            self._carry_out()
        finally:
            self._working = False
        if self._closed:
            return  # a request has ended the connection
        self.replies.flush()
        if not self._listening and self.replies.empty and self._idle:
            self._closed = True
            self._forget()
            self.channel.close()

    def _replied(self) -> None:
        """Replies have left after a commit. With one request at a time there is nothing else to do then."""
        if self._listening and self._idle:
            self.channel.progress()
        else:
            self.progress()

    def progress(self) -> None:
        """Go on after something that was waited for."""
        self.work()
        if not self._closed:
            self.channel.progress()

    def _must_wait(self, *, reads: bool) -> bool:
        """Whether a request has to wait: for the client to take earlier replies and, if it reads, for earlier writes.
        The reply to a write is small, so there the client is looked at only now and then."""
        replies = self.replies
        if replies.held_bytes > FLUSH_BYTES:
            replies.flush()
        elif not reads:
            return False
        return self.channel.congested or (reads and replies.blocked)

    def _finish(self) -> None:
        """Take no more requests; the connection closes when all replies are out."""
        self._listening = False
        self._forget()
