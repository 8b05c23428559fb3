"""Results of the vectors of one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

OK: Final = "ok"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"


class Result(msgspec.Struct, frozen=True):
    """Of one vector or one conversation. `detail` says what is wrong, or why it was left out."""

    protocol: str
    name: str
    status: str
    detail: str = ""
    why: str = ""
    source: str = ""

    @property
    def group(self) -> str:
        """The file that it is from."""
        return self.name.partition("/")[0]


class Count(msgspec.Struct, frozen=True):
    """Of the results that are from one file."""

    protocol: str
    group: str
    ok: int
    failed: int
    skipped: int


def counted(results: Sequence[Result]) -> list[Count]:
    """By file, in the order in which they come."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in results:
        groups.setdefault((each.protocol, each.group), []).append(each.status)
    return [
        Count(*key, found.count(OK), found.count(FAILED), found.count(SKIPPED)) for key, found in groups.items()
    ]  # fmt: skip


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """For machines."""
    statuses = [each.status for each in results]
    return {
        "ok": FAILED not in statuses,
        "counts": {status: statuses.count(status) for status in (OK, FAILED, SKIPPED)},
        "results": [msgspec.structs.asdict(each) for each in results],
    }
