"""One frame out of its bytes."""

from __future__ import annotations

from penstock.wire.felix.frames import Frame, Framer


def only_frame(data: bytes) -> Frame:
    """The frame that these bytes are, exactly."""
    framer = Framer()
    framer.feed(data)
    frame = framer.next()
    assert frame is not None
    assert not framer.started
    return frame
