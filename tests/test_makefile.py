"""The Makefile names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_makefile_names_exists() -> None:
    text = (ROOT / "Makefile").read_text()
    named = re.findall(r"(?<!\S)tests/[\w/.]+", text)
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_target_is_listed_as_phony_or_makes_a_file() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    documented = re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE)
    assert set(documented) <= set(phony.split())
