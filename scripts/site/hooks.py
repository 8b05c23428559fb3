"""Hooks of mkdocs: pages of the repository beside docs/, links that leave the site, and diagrams without scripts.

On GitHub all of this works by itself; here it is done when the site is built, so that the documents are written once.
"""

from __future__ import annotations

import base64
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File, Files  # noqa: E402
from scripts.site.diagrams import diagram_svg  # noqa: E402

BESIDE: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md", "conformance/README.md")
"""Pages of the repository that become pages of the site, under the same path."""

_LINK: Final = re.compile(r"\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?P<title> \"[^\"]*\")?\)")
_MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEXT_OF_LINK: Final = re.compile(r"\[([^\]]*)\]$")


def on_files(files: Files, config: Any) -> Files:
    for path in BESIDE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - mkdocs' signature
    source = page.file.src_uri
    directory = posixpath.dirname(source if source in BESIDE else f"docs/{source}")
    here = posixpath.dirname(source)
    return _MERMAID.sub(_diagram, _relinked(markdown, directory, here))


def _relinked(markdown: str, directory: str, here: str) -> str:
    """Links into docs/ and to pages beside it stay links; those to other files of the repository become their text."""
    parts: list[str] = []
    end = 0
    for link in _LINK.finditer(markdown):
        path = posixpath.normpath(posixpath.join(directory, link["target"]))
        inside = path.removeprefix("docs/") if path.startswith("docs/") else path if path in BESIDE else None
        before = markdown[end : link.start() + 1]
        if inside is not None:
            target = posixpath.relpath(inside, here or ".")
            parts.append(f"{before}({target}{link['anchor'] or ''}{link['title'] or ''})")
        else:
            parts.append(_TEXT_OF_LINK.sub(r"\1", before))
        end = link.end()
    return "".join((*parts, markdown[end:]))


def _diagram(block: re.Match[str]) -> str:
    """As a picture of its own: its styles are not the page's, and it is scaled as pictures are."""
    data = base64.b64encode(diagram_svg(block[1]).encode()).decode()
    return f'<img alt="diagram" src="data:image/svg+xml;base64,{data}">\n'
