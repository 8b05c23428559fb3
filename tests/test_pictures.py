"""The pictures of the documents are those that `scripts/pictures` draws, and every one is shown somewhere."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from scripts.pictures.drawings import DIRECTORY, DRAWINGS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_the_one_that_the_script_draws(name: str) -> None:
    assert (DIRECTORY / name).read_text() == DRAWINGS[name](), f"docs/pictures/{name} is stale: run `make pictures`"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_has_a_title_and_is_shown(name: str) -> None:
    root = ElementTree.parse(DIRECTORY / name).getroot()
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and title.text
    assert any(f"pictures/{name})" in page.read_text() for page in PAGES)
