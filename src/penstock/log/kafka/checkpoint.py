"""The checkpoint: which journal a data directory caches, and up to which offset. A small file next to the segments.

It is written periodically, after a sync of the segments; groups that they have beyond it are read again, and
skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.log import segment
from penstock.log.errors import LogError
from penstock.log.files import Files, replace
from penstock.log.kafka.fencing import JournalView, Term
from penstock.log.kafka.landmarks import Landmark
from penstock.typed_decoding import decode_json

PATH: Final = "KAFKA"
COPY: Final = "COPY"  # exists while `penstock storage copy` fills the directory


class WrongJournal(LogError):
    """The data directory and the journal do not belong together. Nothing was changed."""


class JournalSource(msgspec.Struct, frozen=True):
    """The journal that a directory caches."""

    cluster: str  # Kafka's id of the cluster
    topic: str  # Kafka's id of the topic: it changes if the topic is recreated
    name: str
    cell: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The content of the file, in JSON."""

    source: JournalSource
    offset: int = 0  # of the next record to read
    term: tuple[int, str] = (0, "")
    group: int = 0
    owner: str = ""  # the value of the claim of that term
    landmarks: list[Landmark] = []  # of the local segments
    filling: bool = False  # the segments do not reach the snapshot that they need yet: see `filling.py`

    @property
    def view(self) -> JournalView:
        return JournalView(self.offset, Term(*self.term), self.group)


def load(files: Files) -> Checkpoint | None:
    """The checkpoint, or None. Raises LogError if it cannot be decoded."""
    if PATH not in files.list(""):
        return None
    with contextlib.closing(files.open(PATH, writable=False)) as file:
        content = file.read(0, file.size())
    try:
        return decode_json(content, Checkpoint)
    except msgspec.MsgspecError as error:
        raise LogError(
            f"{PATH} in the data directory is damaged: {error}. All it caches is in Kafka: start with an empty one"
        ) from None


def store(
    files: Files,
    source: JournalSource,
    view: JournalView,
    owner: bytes = b"",
    landmarks: Sequence[Landmark] = (),
    *,
    filling: bool = False,
) -> Checkpoint:
    """Raises OSError."""
    term = (view.term.number, view.term.owner)
    made = Checkpoint(source, view.offset, term, view.group, owner.decode(errors="replace"), list(landmarks), filling)
    replace(files, PATH, msgspec.json.encode(made) + b"\n")
    files.sync_directory("")
    return made


def adopt(files: Files, source: JournalSource) -> Checkpoint:
    """The checkpoint to continue from. A directory without a journal becomes the cache of this one. Raises
    WrongJournal."""
    found = load(files)
    if found is None:
        if segment.exist(files):
            raise WrongJournal("the data directory has a journal of its own, and is not the cache of one on Kafka")
        return store(files, source, JournalView())
    if found.source != source:
        raise WrongJournal(
            f"the data directory is the cache of cell {found.source.cell} of {found.source.name!r} (Kafka cluster "
            f"{found.source.cluster}, topic {found.source.topic}), and not of cell {source.cell} of {source.name!r} "
            f"(Kafka cluster {source.cluster}, topic {source.topic})"
        )
    return found


def refuse_cache(files: Files) -> None:
    """Refuse a directory that caches a journal, for callers that would write to the segments alone. Raises
    WrongJournal."""
    try:
        names = files.list("")
    except FileNotFoundError:
        return
    if COPY in names:
        raise WrongJournal(
            "the data directory is a copy that is not whole: run the same `penstock storage copy` again, to its end"
        )
    if PATH in names and (found := load(files)) is not None:
        raise WrongJournal(
            f"the data directory is the cache of the journal {found.source.name!r} on Kafka: start with --storage"
        )
