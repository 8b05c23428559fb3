"""Every fuzz target with its corpus, with what was found once, with a few thousand random inputs, and with lengths that
only claim to be large. `make fuzz` goes on from here, guided by coverage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from tests.effort import scaled
from tests.fuzz import campaign
from tests.fuzz.findings import REGRESSIONS, Findings, regressions, way_to_fail
from tests.fuzz.mutation import mutations
from tests.fuzz.seeds import seeded
from tests.fuzz.targets.table import load
from tests.fuzz.targets.target import Script, Target, script

from penstock.conformance.vectors import PROTOCOLS

TARGETS = load()
MIB = 1 << 20
CLAIMS = (b"\x00\xff\xff\xff", b"\xff\xff\xff\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x9f\xff\xff")
"""Lengths and counts, large and larger than anything may be, in either order."""

every_target = pytest.mark.parametrize("name", TARGETS)


def findings_of(target: Target, inputs: Iterator[bytes], directory: Path) -> str:
    """The finding as text."""
    findings = Findings(target, directory)
    for data in inputs:
        findings.run(data)
    notes = [path for path in directory.rglob("*.txt") if path.stem != "slowest"]
    return "\n".join(f"{path.with_suffix('').read_bytes()!r}\n{path.read_text()}" for path in notes)


@every_target
def test_the_corpus(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    corpus = list(target.corpus())
    assert corpus
    assert findings_of(target, iter(corpus), tmp_path) == ""


@pytest.mark.parametrize("path", [path for name in TARGETS for path in regressions(name)], ids=lambda path: path.stem)
def test_what_was_found_once(path: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes())


def test_every_regression_belongs_to_a_target() -> None:
    assert {path.name for path in REGRESSIONS.iterdir() if path.is_dir()} <= set(TARGETS)


@every_target
def test_random_inputs(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    inputs = mutations(list(target.corpus()), seeded(name), target.max_len)
    assert findings_of(target, islice(inputs, scaled(target.quick)), tmp_path) == ""


def most_taken(target: Target) -> int:
    """Bytes of memory, beside those that its length allows, for the worst of some inputs with lengths that lie."""
    rng = seeded(f"memory of {target.name}")
    corpus = sorted(target.corpus(), key=len)[-12:]
    target.run(corpus[0])  # what is made once is not counted
    worst = 0
    tracemalloc.start()
    try:
        for data in corpus:
            for claim in CLAIMS:
                at = rng.randrange(len(data) + 1)
                changed = data[:at] + claim + data[at + len(claim) :]
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                target.run(changed)
                _, peak = tracemalloc.get_traced_memory()
                worst = max(worst, peak - before - 256 * len(changed))
    finally:
        tracemalloc.stop()
    return worst


@every_target
def test_no_memory_is_taken_for_what_is_only_announced(name: str) -> None:
    assert most_taken(TARGETS[name]) < 2 * MIB


def test_every_protocol_is_fuzzed_in_both_directions_and_as_a_session() -> None:
    for protocol in PROTOCOLS:
        names = {name for name in TARGETS if name.startswith(f"{protocol}.")}
        assert f"{protocol}.frames" in names
        assert names & {f"{protocol}.request", f"{protocol}.payload"}
        assert names & {f"{protocol}.reply", f"{protocol}.answer", f"{protocol}.payload"}
        assert TARGETS.keys() & {f"sessions.{protocol}", f"streams.{protocol}"}


# -- what it is done with


def test_a_script_is_read_as_it_was_written() -> None:
    one = Script(b"stream", bytes((0x20, 0xE3)), 5)
    assert script(one.encode()) == one
    assert list(one.pieces()) == [(b"st", 0), (b"ream", 3), (b"", 0)]
    assert script(b"") == Script(b"") and script(b"\xff") == Script(b"\xff")


@pytest.mark.parametrize("data", [b"\x05\x09", b"abc\x00\xff", b"abc\x00\x02"])
def test_any_bytes_are_a_script(data: bytes) -> None:
    read = script(data)
    assert b"".join(piece for piece, _ in read.pieces()) == read.stream
    assert len(read.stream) + len(read.steps) == len(data) - 2


def failing(data: bytes) -> None:
    if b"\xff" in data:
        raise KeyError("found")
    assert b"\xee" not in data, "another way"


PLANTED = Target("planted.failing", failing, lambda: [b"fine"])


def believing(data: bytes) -> None:
    bytes(min(int.from_bytes(data[:4], "big"), 16 * MIB))


def test_memory_that_is_taken_for_a_length_is_found() -> None:
    assert most_taken(Target("planted.believing", believing, lambda: [bytes(4)])) > 8 * MIB


def test_each_way_to_fail_is_kept_once_with_its_shortest_input(tmp_path: Path) -> None:
    found = findings_of(PLANTED, iter([b"ok", b"\xff123", b"\xff1", b"\xff12", b"\xee"]), tmp_path)
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and not path.suffix) == [
        b"\xee",
        b"\xff1",
    ]
    assert "KeyError: 'found'" in found and "AssertionError: another way" in found


def test_random_inputs_find_what_is_planted(tmp_path: Path) -> None:
    inputs = mutations([b"fine"], seeded("planted"), 64)
    assert "KeyError" in findings_of(PLANTED, islice(inputs, 1000), tmp_path)


def test_the_cause_of_an_error_tells_how_it_failed() -> None:
    def fails() -> None:
        try:
            raise LookupError("inner")
        except LookupError as error:
            raise AssertionError("logged") from error

    with pytest.raises(AssertionError) as raised:
        fails()
    assert way_to_fail(raised.value).startswith("LookupError in test_targets.py:fails")


def test_the_campaign_ends_with_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "BUILD", tmp_path)
    assert campaign.main(["--plain", "--inputs", "200", "--only", "security.name", "--seed", "1"]) == 0
    *_, head, row, total = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["target", "inputs"]
    assert row.split()[:2] == ["security.name", "200"] and total.split()[:2] == ["all", "200"]


def test_a_campaign_with_a_finding_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "BUILD", tmp_path)
    monkeypatch.setattr(campaign, "load", lambda: {PLANTED.name: PLANTED})
    assert campaign.main(["--plain", "--inputs", "2000", "--seed", "1"]) == 1
