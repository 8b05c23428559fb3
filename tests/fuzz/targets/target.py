"""Fuzz targets: functions of bytes that must not fail, whatever the bytes are, and the inputs that they start from.

A target raises only for a finding: an error that is not its protocol's own, or a promise that was broken. Most inputs
are a stream with a script behind it, which says in what pieces it arrives and what else happens meanwhile:

    stream   bytes
    steps    one byte for each piece: the upper three bits are its size (`SIZES`), the lower five an action
    mode     u8, what else the target can choose
    count    u8, number of steps (the lower five bits)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from penstock.conformance import notation
from penstock.conformance.player import variables
from penstock.conformance.vectors import Step, Vector, sessions, vectors

SIZES: Final = (1, 2, 3, 5, 9, 17, 64, 1 << 20)  # bytes of a piece
MAX_STEPS: Final = 31
SEPARATOR: Final = b"\xfe\xed"
"""Stands between the frames of a stream whose lengths are put right: see `between`."""


class Target(NamedTuple):
    """`quick`: inputs of the short run in the tests, besides the corpus."""

    name: str
    run: Callable[[bytes], None]
    corpus: Callable[[], Iterable[bytes]]
    quick: int = 2000
    max_len: int = 1024


# -- scripts


class Script(NamedTuple):
    stream: bytes
    steps: bytes = b""
    mode: int = 0

    def encode(self) -> bytes:
        return b"".join((self.stream, self.steps[:MAX_STEPS], bytes((self.mode, len(self.steps[:MAX_STEPS])))))

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """The pieces of the stream, each with the action that follows it. The last one is all that is left."""
        at = 0
        for step in self.steps:
            size = SIZES[step >> 5]
            yield self.stream[at : at + size], step & 31
            at += size
        yield self.stream[at:], 0


def script(data: bytes) -> Script:
    """The script that any input is."""
    if len(data) < 2:
        return Script(data)
    count = min(data[-1] & MAX_STEPS, len(data) - 2)
    end = len(data) - 2
    return Script(data[: end - count], data[end - count : end], data[-2])


def between(stream: bytes) -> list[bytes]:
    """The frames of a stream that was written with separators between them."""
    return [part for part in stream.split(SEPARATOR) if part]


def begin_with(stream: bytes, magic: bytes) -> list[bytes]:
    """The parts of a stream that begin with this magic; what comes before the first is a part as well."""
    first, *others = stream.split(magic)
    return [first] * bool(first) + [magic + part for part in others]


# -- promises


def same(found: object, expected: object) -> None:
    """Equal, or the same text: a NaN is not equal to itself."""
    if found != expected and repr(found) != repr(expected):
        raise AssertionError(f"{found!r:.500}\nand not\n{expected!r:.500}")


class FeedFramer(Protocol):
    error: Any

    @property
    def buffered(self) -> int: ...

    def feed(self, data: bytes) -> list[Any]: ...


class PullFramer(Protocol):
    @property
    def buffered(self) -> int: ...

    def feed(self, data: bytes) -> None: ...

    def next(self) -> Any: ...


def check_feeding(make: Callable[[], FeedFramer], run: Script) -> list[Any]:
    """However a stream is cut, the same frames come out of it, and no more is held than was fed. Returns the frames."""
    whole, cut = make(), make()
    frames = whole.feed(run.stream)
    found = []
    for piece, _ in run.pieces():
        found += cut.feed(piece)
    same(found, frames)
    same((type(cut.error), str(cut.error)), (type(whole.error), str(whole.error)))
    assert whole.buffered <= len(run.stream)
    if whole.error is None:
        same(cut.buffered, whole.buffered)
    return frames


def check_pulling(
    make: Callable[[], PullFramer], run: Script, errors: type[Exception], content: Callable[[Any], object]
) -> list[Any]:
    """As `check_feeding`. `content`: what of a frame does not depend on where it lay."""
    whole, cut = make(), make()
    whole.feed(run.stream)
    frames, problem = pull(whole, errors)
    found: list[Any] = []
    complaint: Exception | None = None
    for piece, _ in run.pieces():
        if complaint is None:
            cut.feed(piece)
            more, complaint = pull(cut, errors)
            found += more
    same(list(map(content, found)), list(map(content, frames)))
    same((type(complaint), str(complaint)), (type(problem), str(problem)))
    if problem is None:
        same(cut.buffered, whole.buffered)
    return frames


def pull(framer: PullFramer, errors: type[Exception]) -> tuple[list[Any], Exception | None]:
    """All whole frames, and the error that came instead of the next one."""
    frames = []
    try:
        while (frame := framer.next()) is not None:
            frames.append(frame)
    except errors as error:
        return frames, error
    return frames, None


# -- corpora: the conformance vectors


def vector_data(protocol: str, *kinds: str) -> list[bytes]:
    """The bytes of vectors, of all kinds or of some."""
    return [each.data for each in of_kind(protocol, *kinds)]


def of_kind(protocol: str, *kinds: str) -> list[Vector]:
    return [each for each in vectors(protocol) if not kinds or each.kind in kinds]


def conversations(protocol: str) -> list[bytes]:
    """All that a client sends in each conversation of the vectors, with names in place of what only a server knows."""
    talks = [talk for session in sessions(protocol).values() for talk in session.conversations]
    streams = (b"".join([_sent(protocol, step) for step in talk.steps]) for talk in talks)
    return [stream for stream in streams if stream]


def _variables(protocol: str) -> dict[str, bytes]:
    """Names that there are, and the numbers that a server gives first. A stream of Kimberlite is a number too."""
    known = variables({"topic": "t", "group": "g", "key": "k", "user": "u", "password": "correct horse"})
    known |= {"sub": bytes(7) + b"\1", "tag": bytes(7) + b"\1", "txn": b"txn-" + b"0" * 32, "subscription": b"\1"}
    return known | {"stream": b"\2" if protocol == "kimberlite" else b"t"}


_JSON_HEADERS: Final[dict[str, Callable[[int], bytes]]] = {
    "rustlog": struct.Struct(">I").pack,
    "felix": lambda size: b"FLX1" + struct.pack(">HHI", 1, 0, size),
}


def _sent(protocol: str, step: Step) -> bytes:
    known = _variables(protocol)
    if isinstance(step.send, str):
        return notation.data(step.send, known)
    if step.send is None or "json" not in step.send:
        return b""
    payload = notation.filled(json.dumps(step.send["json"]), known).encode()
    return _JSON_HEADERS[protocol](len(payload)) + payload


def scripts(streams: Iterable[bytes], modes: Sequence[int] = (0,)) -> list[bytes]:
    """Each stream at once, and the first ones in pieces too."""
    found = [Script(stream, b"", mode).encode() for stream in streams for mode in modes]
    cut = [Script(script(data).stream, STEPS, script(data).mode).encode() for data in found[:8]]
    return [*found, *cut]


STEPS: Final = bytes(size << 5 | action for size, action in zip((5, 3, 6, 4, 5, 5, 6, 6), range(8), strict=True))
