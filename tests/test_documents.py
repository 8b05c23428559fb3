"""The documents are true about the tree: every path in them exists, and the layers are those of `test_layers.py`."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.e2e.test_pages import PAGES, SECURED_PAGES
from tests.snippets import RUN, snippets
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
ELSEWHERE = {
    "penstock.toml",
    "tables/",
    "certificates/",
    "transformations/",
    "data/pipeline/pipeline.py",
    "build/fuzz/findings/",
    "build/clients/",
    "build/site/",
    "dist/",
}


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


# Pages whose snippets have a test of their own; those of `tests/e2e/test_pages.py` are in its lists.
RUN_BY = {
    "README.md": "tests/e2e/test_readme.py",
    "CONTRIBUTING.md": "tests/test_documents.py",
    "docs/api.md": "tests/admin/test_api_page.py",
    "docs/decoding.md": "tests/spark/test_decoding.py",
    "docs/flight.md": "tests/e2e/test_flight_docs.py",
    "docs/how-to/spark-cluster.md": "tests/spark/cluster.py",
    "docs/histories.md": "tests/histories/test_command.py",
    "docs/python.md": "tests/connection/test_page.py",
    "docs/spark.md": "tests/spark/test_docs.py",
    "docs/tutorial/index.md": "tests/e2e/test_readme.py",
    "examples/README.md": "tests/connection/test_examples.py",
}


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, ROOT / "examples/README.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_snippet_is_run_or_says_why_not(document: Path) -> None:
    name = str(document.relative_to(ROOT))
    if name in RUN_BY:
        assert document.name in (ROOT / RUN_BY[name]).read_text() or name == "CONTRIBUTING.md"
    elif name.removeprefix("docs/") not in (*PAGES, *SECURED_PAGES):
        silent = [each.line for each in snippets(document) if each.language in RUN and not each.why_not]
        assert not silent, f"{name}: add it to tests/e2e/test_pages.py, or <!-- not run: why --> above lines {silent}"


_LINK = re.compile(r"\]\(([^)\s]+?)(?: \"[^\"]*\")?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in set(_LINK.findall(text)):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if "://" in link:
            continue
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    shown = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - shown == set(), "add them to `nav` in mkdocs.yml"


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
