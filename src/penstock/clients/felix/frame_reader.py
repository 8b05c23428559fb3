"""Reading the frames of a stream, in either direction."""

from __future__ import annotations

from collections.abc import Callable

from penstock.clients.felix.errors import BadReply
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.frames import BadFrame, Frame, Framer


def read_frames(framer: Framer, data: bytes, on_frame: Callable[[Frame], None]) -> BadReply | None:
    """Call `on_frame` with each received frame. Returns the error if the data cannot be decoded; the stream must then
    be closed."""
    try:
        framer.feed(data)
        while (frame := framer.next()) is not None:
            on_frame(frame)
    except (BadFrame, Malformed, BadReply) as error:
        return BadReply(f"the server sent what cannot be read: {error}")
    return None
