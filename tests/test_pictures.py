"""The pictures of the documents are those that `scripts/pictures` draws, and every one is shown somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from scripts.pictures.drawings import DIRECTORY, DRAWINGS
from scripts.pictures.drawings import LAYERS as DRAWN
from scripts.site.diagrams import UnknownLine, diagram_svg
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


MERMAID = [
    (str(page.relative_to(ROOT)), block)
    for page in PAGES
    for block in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "diagram"), MERMAID, ids=[f"{page}-{n}" for n, (page, _) in enumerate(MERMAID)])
def test_a_diagram_of_a_page_can_be_drawn_for_the_site(page: str, diagram: str) -> None:  # noqa: ARG001 - names the test
    drawn = ElementTree.fromstring(diagram_svg(diagram))
    shown = " ".join("".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg" and shown.strip()


def test_a_diagram_that_cannot_be_drawn_says_so() -> None:
    with pytest.raises(UnknownLine, match="scripts/pictures"):
        diagram_svg("pie\n  a: 1\n")
