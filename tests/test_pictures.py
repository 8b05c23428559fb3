"""The pictures of the documents are those that `scripts/pictures` draws, and every one is shown somewhere."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from scripts.pictures.drawings import DIRECTORY, DRAWINGS
from scripts.pictures.drawings import LAYERS as DRAWN
from tests.test_layers import LAYERS

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


def test_the_picture_of_layers_has_every_package_above_those_that_it_imports() -> None:
    rows = {name: number for number, row in enumerate(DRAWN) for name, _, _ in row}
    assert set(rows) == {name for name in LAYERS if "." not in name}
    for name, imported in LAYERS.items():
        for other in imported if "." not in name else ():
            assert rows[name] < rows[other], (name, other)
