"""Seeds for fuzzing: the same in every run, so that a failure can be repeated; something else in each round of
`make fuzz-rounds`, which prints its rounds. `PENSTOCK_FUZZ_ROUND=… pytest tests/fuzz` repeats one."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings

ROUND = os.environ.get("PENSTOCK_FUZZ_ROUND", "")


def seeded(seed: int | str) -> random.Random:
    return random.Random(f"{ROUND}/{seed}" if ROUND else seed)


def examples(count: int) -> settings:
    """Ten times as many, and others, in a round of `make fuzz-rounds`."""
    return settings(
        max_examples=10 * count if ROUND else count,
        deadline=None,
        derandomize=not ROUND,
        suppress_health_check=[HealthCheck.too_slow],
    )
