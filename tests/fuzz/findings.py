"""Findings of fuzzing: inputs on which a target failed, one for each way to fail, the shortest that was seen.

Each is kept as two files, the input and what happened, so that it survives whatever ends the process. Fixing one begins
with moving the input to `tests/fuzz/regressions/<target>/`, where `test_targets` tries it ever after.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from pathlib import Path
from typing import Final

from tests.fuzz.targets.target import Target

REGRESSIONS: Final = Path(__file__).parent / "regressions"
_TESTS: Final = str(Path(__file__).parents[1])


class Findings:
    """Runs one target, and keeps what it finds below a directory. Also the slowest input, in processor time."""

    def __init__(self, target: Target, directory: Path) -> None:
        self._run = target.run
        self._directory = directory / target.name
        self.sizes: dict[str, int] = {}  # way to fail → length of the shortest input
        self.inputs = 0
        self.slowest = 0.0  # s

    def run(self, data: bytes) -> None:
        self.inputs += 1
        start = time.process_time()
        try:
            self._run(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._note(data, error)
        spent = time.process_time() - start
        if spent > self.slowest:
            self.slowest = spent
            if spent > 0.05:
                self._write("slowest", data, f"{spent:.3f} s of processor time for {len(data)} bytes\n")

    def _note(self, data: bytes, error: BaseException) -> None:
        way = way_to_fail(error)
        if self.sizes.get(way, len(data) + 1) > len(data):
            self.sizes[way] = len(data)
            name = hashlib.sha256(way.encode()).hexdigest()[:12]
            self._write(name, data, f"{way}\n\n{''.join(traceback.format_exception(error))}")

    def _write(self, name: str, data: bytes, text: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / name).write_bytes(data)
        (self._directory / f"{name}.txt").write_text(text)


def way_to_fail(error: BaseException) -> str:
    """The kind of error, and the place of our code where it came from: inputs with the same are one finding."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if "/penstock/" in frame.filename and not frame.filename.startswith(_TESTS)]
    where = "".join(
        f" in {Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in list(ours or frames)[-1:]
    )
    text = str(error).partition("\n")[0][:60] if type(error) is AssertionError and not ours else ""
    return f"{type(cause).__name__}{where} {text}".strip()


def regressions(name: str) -> list[Path]:
    """The inputs that were findings once."""
    return sorted(path for path in (REGRESSIONS / name).glob("*") if path.is_file())
