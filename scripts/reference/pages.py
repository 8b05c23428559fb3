"""The generated pages: file name in docs/reference/ → the function that makes its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.reference import commands, configuration, errors, metrics

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"

PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "errors.md": errors.page,
    "metrics.md": metrics.page,
}
