"""Frames about the connection itself: HELLO, AUTH and PING."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.doors.blipmq.request_context import BlipMqContext
from penstock.doors.reply import COMMITTED, Reply
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f


def handshake(context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply:
    """HELLO, AUTH, and every frame that arrives before them, or that a client may not send."""
    step = context.handshake
    reply = step.step(frames[0]) or b""
    context.version = step.version
    context.identity = step.identity or context.identity
    return Reply(reply, COMMITTED)


def ping(_context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply:
    return Reply(codec.encode_pong(frames[0][1]), COMMITTED)
