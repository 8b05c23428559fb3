"""The vectors as values, and their location: next to this module in an installed package, otherwise in the project.

`conformance/README.md` describes the fields. An invalid file stops the suite with a readable message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from penstock.typed_decoding import decode_json

PROTOCOLS: Final = ("rustlog", "blipmq", "flymq", "kimberlite", "felix")

_INSTALLED: Final = Path(__file__).parent / "vectors"
_PROJECT: Final = Path(__file__).parents[3] / "conformance" / "vectors"

Reply: TypeAlias = str | dict[str, Any]
T = TypeVar("T")


class BadVectors(Exception):
    """Files are missing, or do not follow the README."""


class Vector(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Bytes and their meaning (`expect`), or the fact that they must be rejected (`reject`)."""

    name: str
    why: str
    source: str
    kind: str
    hex: str
    dialect: str = ""
    expect: dict[str, Any] | None = None
    reject: dict[str, Any] | None = None
    canonical: bool = True  # encoding this message must yield these bytes
    text: str = ""  # what the hex means, for human readers

    @property
    def data(self) -> bytes:
        return bytes.fromhex(self.hex)


class Step(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One action or expectation: one of the first eight fields. The others modify it."""

    send: Reply | None = None  # together with `reply` only if it is repeated every `again_ms` until there is a reply
    reply: Reply | None = None
    events: list[str] | None = None
    accept: str | None = None
    ended: bool = False
    closed: bool = False
    reset: int | None = None
    wait_ms: int = 0

    stream: str = "main"
    one_way: bool = False  # for a stream opened here: the server sends nothing on it
    end: bool = False  # nothing more is sent on the stream
    encoding: str = ""  # of events: json, binary, or empty for either
    again_ms: int = 0
    slow: bool = False  # the server may have to start something first
    note: str = ""


class Conversation(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The steps of a client, and the replies that it must get."""

    name: str
    why: str
    source: str
    steps: list[Step]
    needs: list[str] = []  # required variables
    without: list[str] = []  # variables with which it cannot be played, as it cannot express them
    login: bool = True  # log in first, if credentials are given


class VectorFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    protocol: str
    about: str
    vectors: list[Vector]


class Cleanup(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Steps that remove what a conversation created, on a separate connection, however it ended."""

    removes: list[str]  # variables whose objects are removed
    steps: list[Step]
    without: list[str] = []  # not with these variables: others' objects would be removed too


class Session(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    protocol: str
    about: str
    conversations: list[Conversation]
    cleanup: list[Cleanup] = []
    login: list[Step] = []
    login_needs: list[str] = []
    without: list[str] = []  # like that of a conversation, for all of them


class Original(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A vector in the Felix project's own format."""

    name: str
    frame_hex: str
    payload_hex: str
    why: str
    source: str
    payload_json: dict[str, Any] | None = None
    kind: str = "json"
    flags: int = 0
    fields: dict[str, Any] | None = None

    def vectors(self) -> Iterator[Vector]:
        """Vectors for the frame, and for the message in it."""
        whole: dict[str, Any] = {"name": f"original/{self.name}", "why": self.why, "source": self.source}
        said = {"flags": self.flags, "payload": "0x" + self.payload_hex}
        yield Vector(kind="frame", hex=self.frame_hex, expect=said, **whole)
        if self.payload_json is not None:
            yield Vector(kind="message", hex=self.payload_hex, expect=self.payload_json, dialect="original", **whole)
        elif self.fields is not None:
            yield Vector(kind=self.kind, hex=self.frame_hex, expect=self.fields, **whole)


def directory() -> Path:
    """The directory of the vectors."""
    for place in (_INSTALLED, _PROJECT):
        if place.is_dir():
            return place
    raise BadVectors(f"the vectors are missing: neither {_INSTALLED} nor {_PROJECT} is there. Install penstock again")


def vectors(protocol: str) -> list[Vector]:
    """All vectors that need no server, with names that begin with their file."""
    folder = directory() / protocol
    found: list[Vector] = []
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("session_"):
            continue
        read = _read(path, VectorFile)
        if path.with_suffix(".bin").exists():
            _compare_with_bin(path.with_suffix(".bin"), read.vectors)
        found += [msgspec.structs.replace(each, name=f"{path.stem}/{each.name}") for each in read.vectors]
    for path in sorted(folder.glob("original/*.json")):
        found += _read(path, Original).vectors()
    if not found:
        raise BadVectors(f"there are no vectors in {folder}")
    return found


def sessions(protocol: str) -> dict[str, Session]:
    """All conversations to play to a server, by file name."""
    return {path.stem: _read(path, Session) for path in sorted((directory() / protocol).glob("session_*.json"))}


def _read(path: Path, kind: type[T]) -> T:
    try:
        return decode_json(path.read_bytes(), kind)
    except (OSError, msgspec.DecodeError) as error:
        raise BadVectors(f"{path}: {error}") from error


def _compare_with_bin(path: Path, described: list[Vector]) -> None:
    """Compare a .bin file with the concatenated bytes of the vectors in its .json file. Raises BadVectors."""
    if path.read_bytes() != b"".join(each.data for each in described):
        raise BadVectors(f"{path} and {path.with_suffix('.json').name} differ: the one must hold the other's bytes")
