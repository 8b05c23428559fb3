"""The documents are true about the tree: every path in them exists, and the layers are those of `test_layers.py`."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.test_layers import LAYERS, SHARED

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
ROOTS = (ROOT, ROOT / "src", SOURCE, ROOT / "conformance" / "vectors")
ANYWHERE = (SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts")
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "conformance/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# A file by its name, or a directory with a slash behind it; `*` stands for anything.
_PATH = re.compile(r"`((?:[\w.*-]+/)*[\w.*-]+\.(?:py|md|toml)|(?:[\w.*-]+/)+)(?:::\w+)?`")
# Files of the user, of a data directory or of a pipeline, in examples; and what a run makes.
ELSEWHERE = {"penstock.toml", "tables/", "certificates/", "transformations/", "build/fuzz/findings/", "build/clients/"}


def paths(document: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [found for found in _PATH.findall(text) if found not in ELSEWHERE]


def exists(path: str, document: Path) -> bool:
    """Beside the document or below one of the roots; a name alone, anywhere."""
    name = path.rstrip("/")
    if "/" not in name and any(any(place.rglob(name)) for place in ANYWHERE):
        return True
    return any(any(place.glob(name)) for place in (*ROOTS, document.parent))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_in_a_document_exists(document: Path) -> None:
    assert [path for path in paths(document) if not exists(path, document)] == []


def test_paths_are_found_and_looked_for(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("`log/batch.py`, `nowhere/x.py`, `log/`, `nowhere/`, `batch.py`, `nothing.py`, `a b/c.py`\n")
    found = paths(document)
    assert found == ["log/batch.py", "nowhere/x.py", "log/", "nowhere/", "batch.py", "nothing.py"]
    assert [path for path in found if not exists(path, document)] == ["nowhere/x.py", "nowhere/", "nothing.py"]


@pytest.mark.process
def test_searches_in_the_page_for_contributors_find_what_it_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    searches = re.findall(r"^\$ (grep .*)\n((?:(?!```).*\n)*)", text, re.MULTILINE)
    assert searches
    for command, expected in searches:
        done = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True)
        assert done.stdout == expected, command


def rows(title: str) -> dict[str, tuple[str, ...]]:
    """The table below a heading of the page on architecture: first column → names in the second."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = re.search(rf"^#+ {title}\n(.*?)(?=^#)", text, re.DOTALL | re.MULTILINE)
    assert section is not None, title
    found = {}
    for line in section[1].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            found[cells[0].strip("`")] = tuple(re.findall(r"`([\w.]+)`", cells[1]))
    return found


def test_the_page_has_the_one_list_of_layers() -> None:
    assert rows("Layers") == LAYERS
    assert rows("Shared modules") == SHARED


def test_every_package_says_what_it_is_for() -> None:
    for package in sorted(SOURCE.rglob("__init__.py")):
        if "templates" in package.parts:
            continue
        docstring = re.match(r'"""(.*?)"""', package.read_text(), re.DOTALL)
        assert docstring is not None, package
        for name in re.findall(r"`([\w/]+\.py)`", docstring[1]):
            assert any(package.parent.rglob(name)) or (SOURCE / name).exists(), (package, name)
