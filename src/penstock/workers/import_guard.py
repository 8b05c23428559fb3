"""Import guard of the broker and the worker processes: prevents the import of pandas.

Arrow imports it, if installed, with the first array made from a list: that takes a second or more, and 40 MB, for
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
    """Make pandas appear not installed from now on. Call it before Arrow makes its first array."""
    sys.meta_path.insert(0, _WithoutPandas())
