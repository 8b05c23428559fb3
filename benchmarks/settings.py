"""What a run was asked for, and the places it may use."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.broker import BrokerProcess, profile_table


@dataclass(slots=True)
class Run:
    """One run of the benchmarks. `directory` is on the disk that is measured; `against` is a tree to compare with."""

    directory: str
    quick: bool = False
    profile: bool = False
    against: str = ""
    _number: int = field(default=0)

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 9

    @property
    def seconds(self) -> float:
        """Of one measurement in one round: short, so that what else the machine does falls on all of them."""
        return 0.5 if self.quick else 1.0

    @contextmanager
    def broker(
        self,
        durability: str,
        settings: Mapping[str, str] | None = None,
        *,
        felix: bool = False,
        packages: str | None = None,
    ) -> Iterator[BrokerProcess]:
        """A broker on an empty data directory, which goes with it. `felix`: with its QUIC port open; `packages`: where
        the package is, if not here."""
        self._number += 1
        data_dir = os.path.join(self.directory, f"broker-{self._number}")
        figures = f"{data_dir}.profile" if self.profile else None
        try:
            process = BrokerProcess(data_dir, durability, settings, figures, packages)
            process.felix = felix
            with process as broker:
                yield broker
            if figures is not None:
                print(profile_table(figures))
        finally:
            shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def scratch(parent: str) -> Iterator[str]:
    """A directory that is gone afterwards."""
    os.makedirs(parent, exist_ok=True)
    directory = tempfile.mkdtemp(prefix=".bench-", dir=parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
