"""A canary: a bug that an engineer could make, and the tests that have to notice it.

A bug is a text of one module and what stands there instead. The text has to be there exactly once: whoever changes
that line moves the canary along with it (`tests/canaries/test_catalog.py` says so before anything is run)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "penstock"


KINDS: Final = frozenset(
    {
        "acknowledge before sync",
        "skip a checksum",
        "wrong offset after recovery",
        "redeliver after acknowledgement",
        "transaction split",
        "expiry ignored at one door",
        "access check skipped",
        "idempotent producer forgotten",
        "table and journal both serve an offset",
        "file deleted that readers need",
        "cursor not persisted",
        "wrong partition",
        "last batch of a group lost",
        "acknowledged record lost",
        "record stored twice",
        "order of replies",
        "read does not see own write",
        "credential accepted",
        "schema not enforced",
        "wrong moment",
        "another's data",
        "one client holds up others",
        "one tenant takes all",
        "reply claims too much",
    }
)
"""The kinds of bugs, of each of which there is one or more."""


class CanaryLost(Exception):
    """The text that a canary replaces is not there any more, or not only once."""


class Canary(NamedTuple):
    name: str
    kind: str  # of `KINDS`
    bug: str  # what goes wrong, as its victim would say it
    path: str  # of the module, below src/penstock
    before: str
    after: str
    caught_by: tuple[str, ...]
    """Tests, as pytest is told of them: two or more, in different files, that find it in different ways."""

    def planted(self, source: str) -> str:
        """The module with the bug. Raises CanaryLost."""
        found = source.count(self.before)
        if found != 1:
            raise CanaryLost(f"{self.name}: {self.path} has this text {found} times instead of once: {self.before!r}")
        return source.replace(self.before, self.after)


def plant(canary: Canary, package: Path) -> None:
    """Put the bug into a copy of the package. Raises CanaryLost."""
    module = package / canary.path
    module.write_text(canary.planted(module.read_text()))
    for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*"):
        compiled.unlink()
