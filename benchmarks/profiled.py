"""Runs the `penstock` command under cProfile: `python -m benchmarks.profiled FILE serve …`.

The figures of the event loop's thread go to FILE when the command ends; the commit and read threads are not in them.
"""

from __future__ import annotations

import cProfile
import sys

from penstock.cli.main import app


def main() -> None:
    path = sys.argv.pop(1)
    profile = cProfile.Profile()
    profile.enable()
    try:
        app()
    finally:
        profile.disable()
        profile.dump_stats(path)


if __name__ == "__main__":
    main()
