"""The vectors themselves: what they must say, and that our codecs are as they say."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.conformance import vectors
from penstock.conformance.checker import check_protocol
from penstock.conformance.results import OK
from penstock.conformance.vectors import PROTOCOLS, BadVectors

PROJECT = Path(__file__).parents[2]
FELIX = PROJECT / "conformance" / "vectors" / "felix"

# Printed in the documents, and typed from there.
WORKED_EXAMPLES = {
    "blipmq": ["0000000b0100000000000000010001", "00000010 04 0000000000000003 0004 64656d6f 01"],
    "flymq": ["af01010100000022000474657374 00000000 000000000000002a 0000018d5a3b2c00 ffffffff 00000005"],
    "rustlog": ["0000002cfe00020027"],
    "kimberlite": ["56444220 0005 00000007 a036cf3b 00012a00000500", "56444220 0001 00000017 07dbe72f"],
    "felix": [
        "464c5831000100000000000d7b2274797065223a226f6b227d",
        "464c5831000100010000002600027431000764656661756c74000464656d6f000000020000000568656c6c6f000000026869",
        "464c5831000100020000001a000000000000000700000002000000036f6e650000000374776f",
        "464c5831000100040000001200000002000000036f6e650000000374776f",
        "464c583100010022000000220000000000000007000000000000002a00000002000000036f6e650000000374776f",
        "464c5831000100240000001a000000000000002a00000002000000036f6e650000000374776f",
        "464c58310001000900000029000000000000000702",
        "464c5831000100100000000b0000000000000000070000",
    ],
}

ORIGINALS = {
    "auth_with_capabilities", "auth_ok", "publish", "subscribe", "event", "cache_put", "cache_get", "cache_value", "ok",
    "error", "binary_publish_acked", "binary_publish_ack_ok", "binary_publish_ack_error",
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_codec_is_as_all_vectors_say(protocol: str) -> None:
    results = check_protocol(protocol)
    assert len(results) >= 50
    assert [each for each in results if each.status != OK] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_vector_says_what_it_shows_and_where_that_is_written(protocol: str) -> None:
    found = vectors.vectors(protocol)
    assert all(each.why and each.source and each.hex == each.data.hex() for each in found)
    named = [each.name for each in found if not each.name.startswith("original/")]  # those are a frame and a message
    assert len(set(named)) == len(named)
    assert any(each.reject for each in found) and any(each.expect for each in found)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_conversation_says_what_it_shows_and_where_that_is_written(protocol: str) -> None:
    sessions = vectors.sessions(protocol).values()
    assert sum(len(session.conversations) for session in sessions) >= 20
    for session in sessions:
        assert all(each.why and each.source and each.steps for each in session.conversations)
        assert len({each.name for each in session.conversations}) == len(session.conversations)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_documents_worked_examples_are_among_them(protocol: str) -> None:
    known = [each.hex for each in vectors.vectors(protocol)]
    for example in WORKED_EXAMPLES[protocol]:
        assert any(each.startswith(example.replace(" ", "")) for each in known), example


def test_the_files_that_the_document_of_felix_names_are_there() -> None:
    named = ("frame_valid.json", "frame_invalid.json", "message_valid.json", "message_invalid.json")
    for name in (*named, "binary_batch_valid.bin"):
        assert (FELIX / name).is_file(), name


def test_the_thirteen_vectors_of_the_original_are_there() -> None:
    assert {path.stem for path in (FELIX / "original").glob("*.json")} == ORIGINALS


def test_the_installed_package_gets_them() -> None:
    """By the build's configuration; where the loader looks first."""
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    package = Path(vectors.__file__).parent.relative_to(PROJECT / "src")
    assert build["force-include"] == {"conformance/vectors": str(package / "vectors")}


def test_vectors_beside_the_module_go_before_those_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vectors.directory() == PROJECT / "conformance" / "vectors"
    monkeypatch.setattr(vectors, "_INSTALLED", tmp_path)
    assert vectors.directory() == tmp_path


def test_missing_vectors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_INSTALLED", tmp_path / "a")
    monkeypatch.setattr(vectors, "_PROJECT", tmp_path / "b")
    with pytest.raises(BadVectors, match="the vectors are missing"):
        vectors.vectors("felix")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "frame.json"),
        ('{"protocol": "felix", "about": "", "vectors": [{"name": "x"}]}', "missing required field"),
        ('{"protocol": "felix", "about": "", "vectors": [], "colour": 1}', "unknown field `colour`"),
        ('{"protocol": "felix", "about": "", "vectors": []}', "no vectors in"),
    ],
)
def test_a_file_that_is_not_as_the_readme_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    monkeypatch.setattr(vectors, "_INSTALLED", tmp_path)
    (tmp_path / "felix").mkdir()
    (tmp_path / "felix" / "frame.json").write_text(content)
    with pytest.raises(BadVectors, match=said):
        vectors.vectors("felix")


def test_a_bin_file_must_hold_what_its_description_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_INSTALLED", tmp_path)
    (tmp_path / "felix").mkdir()
    described = (FELIX / "binary_batch_valid.json").read_bytes()
    (tmp_path / "felix" / "binary_batch_valid.json").write_bytes(described)
    (tmp_path / "felix" / "binary_batch_valid.bin").write_bytes((FELIX / "binary_batch_valid.bin").read_bytes() + b"x")
    with pytest.raises(BadVectors, match="differ"):
        vectors.vectors("felix")
