"""Import guard of the broker and the worker processes: they do without pandas.

Arrow loads it, where it is installed, with the first array that it makes of a list: a second or more, and 40 MB, for
something that a process which only moves records never uses.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not for this process")
        return None


def without_pandas() -> None:
    """From now on it looks as if pandas were not installed. Call it before Arrow makes its first array."""
    sys.meta_path.insert(0, _WithoutPandas())
