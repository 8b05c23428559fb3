"""Results of the vectors of one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

OK: Final = "ok"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"


class Result(msgspec.Struct, frozen=True):
    """The result of one vector or conversation. `detail` is the error, or why it was skipped."""

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
    """The counts of results from one file."""

    protocol: str
    group: str
    ok: int
    failed: int
    skipped: int


def counted(results: Sequence[Result]) -> list[Count]:
    """Counts by file, in order of appearance."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in results:
        groups.setdefault((each.protocol, each.group), []).append(each.status)
    return [
        Count(*key, found.count(OK), found.count(FAILED), found.count(SKIPPED)) for key, found in groups.items()
    ]  # fmt: skip


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """The results as JSON."""
    statuses = [each.status for each in results]
    return {
        "ok": FAILED not in statuses,
        "counts": {status: statuses.count(status) for status in (OK, FAILED, SKIPPED)},
        "results": [msgspec.structs.asdict(each) for each in results],
    }
