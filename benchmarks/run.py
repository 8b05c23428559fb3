"""Measures the broker against this machine's own limits: `make bench`, or `python benchmarks/run.py --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))

# ruff: noqa: E402 - the imports need the path
from benchmarks import (
    calls,
    catch_up,
    checksums,
    connection,
    dialects,
    felix,
    figures,
    first_query,
    flight,
    flymq,
    kimberlite,
    machine,
    many,
    one_at_a_time,
    publish,
    queues,
    quic,
    size,
    tables,
    turns,
)
from benchmarks.report import Report
from benchmarks.settings import Run, scratch

from penstock.log.compiled import compiled

BUSY = 0.5  # load over the last minute

SUBJECTS = {
    "one-at-a-time": one_at_a_time,
    "many": many,
    "catch-up": catch_up,
    "dialects": dialects,
    "figures": figures,
    "queues": queues,
    "flymq": flymq,
    "connection": connection,
    "kimberlite": kimberlite,
    "first-query": first_query,
    "felix": felix,
    "quic": quic,
    "flight": flight,
    "checksums": checksums,
    "publish": publish,
    "size": size,
    "tables": tables,
    "turns": turns,
    "calls": calls,
}


def main() -> None:
    options = _options()
    conditions = {**machine.describe(options.dir), "penstock": "compiled" if compiled() else "not compiled"}
    for name, value in conditions.items():
        print(f"{name:<12} {value}")
    if os.getloadavg()[0] > BUSY:
        print(
            f"{'':<12} this machine is busy with other things: do not trust figures that wait for a disk or a process"
        )
    reports = []
    with scratch(options.dir) as directory:
        run = Run(directory, options.quick, options.profile, options.against)
        for name in options.only or SUBJECTS:
            subject = SUBJECTS[name]
            about = f"{run.rounds} rounds of {run.seconds:g} s, interleaved"
            if hasattr(subject, "about"):
                about = subject.about(run)
            print(f"\n{name}: {subject.TITLE} ({about})", flush=True)
            report = Report(name, f"{subject.TITLE}; {about}")
            subject.measure(run, report)
            reports.append(report)
    print(f"\nload after   {' '.join(f'{load:.1f}' for load in os.getloadavg())}")
    missed = [f"{report.name}: {line.name.strip()}" for report in reports for line in report.lines if line.met is False]
    doubtful = [f"{report.name}: {line.name.strip()}" for report in reports for line in report.lines if line.doubt]
    for title, names in (("missed", missed), ("not judged", doubtful)):
        if names:
            print(f"{title}:\n  " + "\n  ".join(names))
    if not missed and not doubtful:
        print("every target was met")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": conditions, "results": [report.as_dict() for report in reports]}, file, indent=2)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a look, no result")
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="only this subject; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--dir", default=ROOT, help="where to put data: on the disk to be measured (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="run brokers under cProfile; the rates are then wrong")
    parser.add_argument(
        "--against",
        metavar="TREE",
        default="",
        help="with --only turns or felix: compare with another checkout, or with build/compiled",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
