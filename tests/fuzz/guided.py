"""One fuzz target under atheris, in a process of its own, for `tests.fuzz.campaign`:

    python -m tests.fuzz.guided TARGET FINDINGS [flags of libFuzzer] CORPUS

The code under test is changed while it is imported, so that nothing of it may be imported before. libFuzzer ends the
process; what was found is on the disk by then, and figures go to the standard error with its own.
"""

from __future__ import annotations

import logging
import resource
import sys
from pathlib import Path
from typing import Final

import atheris

MEMORY: Final = 512 << 20  # bytes beyond what the imports take: a length that is only announced would take more
INSTRUMENTED: Final = {
    # Every input opens a broker: what guides is what follows.
    "sessions": ["penstock.admin", "penstock.doors", "penstock.wire", "penstock.broker", "h11"],
    "streams": ["penstock.doors", "penstock.wire", "penstock.broker"],
}
REPORT: Final = 2000  # inputs between two lines


def main() -> None:
    name, directory, *flags = sys.argv[1:]
    module = name.partition(".")[0]
    with atheris.instrument_imports(include=INSTRUMENTED.get(module, ["penstock"])):
        from tests.fuzz.findings import Findings
        from tests.fuzz.targets.table import load

        target = load([module])[name]
        for data in list(target.corpus())[:3]:
            target.run(data)  # so that what is imported on first use is instrumented too
    logging.getLogger("penstock").setLevel(logging.ERROR)
    findings = Findings(target, Path(directory))
    _limit_memory()

    def try_one(data: bytes) -> None:
        findings.run(data)
        if findings.inputs % REPORT == 0:
            print(f"{len(findings.sizes)} findings, slowest {findings.slowest:.4f} s", file=sys.stderr, flush=True)

    atheris.Setup([sys.argv[0], *flags], try_one)
    atheris.Fuzz()


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))


if __name__ == "__main__":
    main()
