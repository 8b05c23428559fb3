"""The files of the console, as the HTTP door serves them: types, caching, and the policy that browsers enforce."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer, Peer

from penstock.admin import console
from penstock.admin.console import CONTENT_TYPES, POLICY, Console, read_files

pytestmark = pytest.mark.unit

HERE = Path(console.__file__).parent


@pytest.fixture
def peer() -> Iterator[Peer]:
    fixture = BrokerFixture()
    yield Peer(fixture, Console())
    fixture.broker.close()


def address(page: Answer, name: str) -> str:
    found = re.search(rf'"(/console/[0-9a-f]+/{name})"', page.body.decode())
    assert found is not None
    return found[1]


def test_the_page_is_asked_for_again_and_its_parts_are_kept(peer: Peer) -> None:
    page = peer.ask("GET", "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-cache"
    style = peer.ask("GET", address(page, "style.css"))
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in style.headers["cache-control"]
    again = peer.ask("GET", "/", **{"If-None-Match": page.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_every_reply_has_the_policy_and_cannot_be_framed(peer: Peer) -> None:
    page = peer.ask("GET", "/")
    for path in ("/", address(page, "app.js"), address(page, "icon.svg")):
        headers = peer.ask("GET", path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY


@pytest.mark.parametrize(
    "path",
    ["/console/", "/console/old/app.js", "/console/../http.py", "/console/%2e%2e/http.py", "/console/x/__init__.py"],
)
def test_there_is_nothing_else(peer: Peer, path: str) -> None:
    peer.ask("GET", "/")
    answer = peer.ask("GET", path)
    assert answer.status == 404
    assert "location" not in answer.headers  # nobody is sent elsewhere


def test_a_version_has_only_its_files(peer: Peer) -> None:
    version = address(peer.ask("GET", "/"), "app.js").removesuffix("app.js")
    for name in ("__init__.py", "../http.py", "screens/../app.js", "//app.js", ""):
        assert peer.ask("GET", version + name).status == 404, name
    assert peer.ask("POST", "/", b"").status == 405


def test_no_script_or_style_stands_in_the_page() -> None:
    text = (HERE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
    assert not re.search(r"https?://|//cdn", text)


def test_no_module_writes_html_or_asks_another_host() -> None:
    words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
    for name, body in read_files().items():
        if name.endswith(".js"):
            assert not re.search(words, body.decode()), name


def test_no_module_leads_to_an_address_that_somebody_gave_it() -> None:
    """Views are fragments of the console's own address: no link to it can send anybody elsewhere."""
    words = r"\blocation(\.href)?\s*=[^=]|location\.(assign|replace)\(|window\.open|navigation\."
    for name, body in read_files().items():
        if name.endswith(".js"):
            assert not re.search(words, body.decode()), name


@pytest.mark.parametrize("path", ["//elsewhere.example", "/%2f%2felsewhere.example", "/?next=//elsewhere.example"])
def test_no_address_sends_elsewhere(peer: Peer, path: str) -> None:
    answer = peer.ask("GET", path)
    assert answer.status in (200, 400, 404) and "location" not in answer.headers


def test_every_import_of_a_module_is_there() -> None:
    files = read_files()
    for name, body in files.items():
        if name.endswith(".js"):
            for target in re.findall(r'from "(\.[^"]+)"', body.decode()):
                found = (Path("/") / name).parent.joinpath(target)
                assert str(Path(*_resolved(found))) in files, f"{name} imports {target}"


def test_all_files_have_a_type_that_is_served() -> None:
    others = {each.name for each in HERE.rglob("*") if each.is_file() and each.suffix not in CONTENT_TYPES}
    assert {name for name in others if not name.endswith((".py", ".pyc"))} == set()


PAIRS = [
    *((text, ground) for text in ("text", "muted", "accent", "ok", "warn", "bad") for ground in ("bg", "surface")),
    *((text, "sunken") for text in ("text", "muted", "string", "number", "keyword", "name")),
    *(("ok", "ok-soft"), ("warn", "warn-soft"), ("bad", "bad-soft"), ("text", "warn-soft"), ("text", "bad-soft")),
    *(("accent-strong", "accent-soft"), ("on-accent", "accent"), ("surface", "bad"), ("surface", "ok")),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_the_contrast_of_aa(theme: str) -> None:
    style = (HERE / "style.css").read_text()
    block = style.split("}")[0 if theme == "light" else 1]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    low = {
        f"{text} on {ground}": found
        for text, ground in PAIRS
        if (found := contrast(colors[text], colors[ground])) < 4.5
    }
    assert low == {}


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _resolved(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return parts
