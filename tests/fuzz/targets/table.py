"""All fuzz targets, by name: `<module>.<what>`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Final

from tests.fuzz.targets.target import Target

MODULES: Final = (
    "rustlog",
    "blipmq",
    "flymq",
    "kimberlite",
    "felix",
    "sessions",
    "streams",
    "clients",
    "transport",
    "log",
    "tables",
    "schemas",
    "security",
    "sql",
    "processes",
)


def load(modules: Iterable[str] = MODULES) -> dict[str, Target]:
    """The targets of these modules. Nothing else is imported: some take long to load."""
    found: dict[str, Target] = {}
    for module in modules:
        for target in importlib.import_module(f"tests.fuzz.targets.{module}").TARGETS:
            assert target.name.startswith(f"{module}.") and target.name not in found, target.name
            found[target.name] = target
    return found
