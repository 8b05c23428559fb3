"""Errors of tables besides `TableUnreadable`, which readers of the log get too."""

from __future__ import annotations

import re
from typing import Final

from penstock.log.errors import LogError, TableUnreadable
from penstock.log.tables.location import TableRef

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class TableGap(LogError):
    """A table ends before the records that are to follow: those in between are missing. Nothing was added."""


class TableNotWritten(LogError):
    """A table could not be changed, and is unchanged. A retry may succeed later."""


class TableFenced(TableNotWritten):
    """A later owner of the journal has changed the table, so this one must not. The table is unchanged."""


def unreadable(ref: TableRef, error: object) -> TableUnreadable:
    return TableUnreadable(f"the table of topic {ref.name!r} at {ref.url} cannot be read: {plain(error)}")


def not_written(ref: TableRef, error: object) -> TableNotWritten:
    return TableNotWritten(f"the table of topic {ref.name!r} at {ref.url} cannot be written: {plain(error)}")


def fenced(ref: TableRef, term: int) -> TableFenced:
    return TableFenced(
        f"the table of topic {ref.name!r} at {ref.url} is written by another broker, which owns the journal since term "
        f"{term}"
    )


def plain(error: object) -> str:
    """A library's message in one line, without colours and arrows."""
    text = _COLOURS.sub("", str(error)).replace("↳", ":")
    return " ".join(text.split()) or type(error).__name__
