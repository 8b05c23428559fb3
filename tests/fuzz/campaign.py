"""The fuzzing campaign, for `make fuzz`: every target in turn, in a process of its own, guided by coverage; a table at
the end.

    python -m tests.fuzz.campaign                        half a minute for each target
    python -m tests.fuzz.campaign --seconds 600 --only sessions streams.felix
    python -m tests.fuzz.campaign --inputs 250000        so many inputs for each, or the seconds, whichever ends first

Corpora grow from run to run in `build/fuzz/corpus/`; findings are in `build/fuzz/findings/`, and any makes this end
with 1. Without atheris (there are wheels for few machines) the inputs are random.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz.findings import Findings, regressions
from tests.fuzz.mutation import mutations, words
from tests.fuzz.targets.table import load
from tests.fuzz.targets.target import Target

BUILD: Final = Path("build/fuzz")
HANG: Final = 120  # s for one input, of a machine that may be busy with something else
# What a library in C does alone has no coverage, and libFuzzer leaves it out.
_COVERED: Final = re.compile(r"^#(\d+)\s+\w+\s+(?:cov: (\d+) ft: \d+ )?corp: (\d+)", re.MULTILINE)
_SLOWEST: Final = re.compile(r"slowest ([\d.]+) s")


class Row(NamedTuple):
    """One target's line of the table."""

    target: str
    inputs: int
    seconds: float
    coverage: int  # edges; 0 without atheris
    corpus: int
    slowest: float
    findings: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30, help="for each target")
    parser.add_argument("--inputs", type=int, default=0, help="for each target; 0: as many as there is time for")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="TARGET", help="a target, or what its name begins with"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn by lot; 0: another one each time")
    parser.add_argument("--plain", action="store_true", help="random inputs, as without atheris")
    options = parser.parse_args(arguments)
    targets = [each for each in load().values() if not options.only or each.name.startswith(tuple(options.only))]
    guided = importlib.util.find_spec("atheris") is not None and not options.plain
    if not guided:
        print("without atheris: inputs are random, and nothing guides them")
    rows = []
    for target in targets:
        rows.append((_guided if guided else _plain)(target, options.seconds, options.inputs, options.seed))
        print(_line(rows[-1]), flush=True)
    print("\n" + "\n".join(table(rows)))
    return int(any(row.findings for row in rows))


# -- one target


def _guided(target: Target, seconds: float, inputs: int, seed: int) -> Row:
    corpus = BUILD / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [*target.corpus(), *(path.read_bytes() for path in regressions(target.name))]
    for data in seeds:
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    dictionary = BUILD / "words" / target.name
    dictionary.parent.mkdir(exist_ok=True)
    known = words(seeds)
    dictionary.write_text("".join(f'"{word.decode()}"\n' for word in known))
    log = BUILD / "logs" / target.name
    log.parent.mkdir(exist_ok=True)
    flags = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={max(target.max_len, *(len(data) for data in seeds))}",
        f"-timeout={HANG}",
        f"-artifact_prefix={_folder(BUILD / 'findings' / target.name)}/",
        "-rss_limit_mb=0",
        f"-seed={seed}",
    ]
    if known:
        flags.append(f"-dict={dictionary}")  # an empty one is an error
    if inputs:
        flags.append(f"-runs={inputs}")
    begin = time.monotonic()
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(BUILD / "findings"), *flags, str(corpus)]
        ended = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text(errors="replace")
    covered = _COVERED.findall(text)
    if ended or not covered:
        print(f"{target.name} ended with {ended}: see {log}")
    done, edges, kept = (int(number or 0) for number in covered[-1]) if covered else (0, 0, 0)
    slowest = max(map(float, _SLOWEST.findall(text)), default=0.0)
    return Row(target.name, done, time.monotonic() - begin, edges, kept, slowest, _found(target.name) + bool(ended))


def _plain(target: Target, seconds: float, inputs: int, seed: int) -> Row:
    corpus = [*target.corpus(), *(path.read_bytes() for path in regressions(target.name))]
    findings = Findings(target, BUILD / "findings")
    begin = time.monotonic()
    for data in corpus:
        findings.run(data)
    for data in mutations(corpus, random.Random(seed or None), target.max_len):
        if time.monotonic() - begin > seconds or (inputs and findings.inputs >= inputs):
            break
        findings.run(data)
    spent = time.monotonic() - begin
    return Row(target.name, findings.inputs, spent, 0, len(corpus), findings.slowest, _found(target.name))


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _found(name: str) -> int:
    """Findings on the disk, also of earlier runs: they stay until somebody has looked at them."""
    notes = [path for path in (BUILD / "findings" / name).glob("*.txt") if path.stem != "slowest"]
    hangs = list((BUILD / "findings" / name).glob("timeout-*"))
    return len(notes) + len(hangs)


# -- the table

_HEAD: Final = ("target", "inputs", "per second", "edges", "corpus", "slowest ms", "findings")
_WIDTHS: Final = (26, 12, 12, 8, 8, 12, 10)


def _cells(row: Row) -> tuple[str, ...]:
    rate = row.inputs / row.seconds if row.seconds else 0.0
    numbers = f"{row.inputs:,}", f"{rate:,.0f}", f"{row.coverage:,}", f"{row.corpus:,}"
    return row.target, *numbers, f"{row.slowest * 1000:,.1f}", str(row.findings)


def _line(row: Row | None) -> str:
    cells = _HEAD if row is None else _cells(row)
    first, *others = (cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return cells[0].ljust(_WIDTHS[0]) + "".join(others) if first else ""


def table(rows: Sequence[Row]) -> list[str]:
    total = Row(
        "all",
        sum(row.inputs for row in rows),
        sum(row.seconds for row in rows),
        sum(row.coverage for row in rows),
        sum(row.corpus for row in rows),
        max((row.slowest for row in rows), default=0.0),
        sum(row.findings for row in rows),
    )
    return [_line(None), *map(_line, rows), _line(total)]


if __name__ == "__main__":
    sys.exit(main())
