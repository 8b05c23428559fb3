"""Random schedules of work, crashes and lost disks on the engine of a journal on Kafka, each compared with the model.

`PENSTOCK_CRASH_SEEDS` sets how many run, as for the file engine: one for four of its schedules. A failure names its
seed; `python -m tests.crash.long --kafka-schedule SEED` does the same again.
"""

from __future__ import annotations

import logging
import os

import pytest
from tests.crash import kafka_schedule

SEEDS = int(os.environ.get("PENSTOCK_CRASH_SEEDS", "1000")) // 4
CHUNKS = 5
BOUNDARY_SEEDS = (3, 8)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "penstock.log")  # groups fail all the time


def run_seed(seed: int) -> kafka_schedule.KafkaSchedule:
    try:
        return kafka_schedule.run(seed)
    except Exception as error:
        error.add_note(f"schedule {seed}; to repeat it: python -m tests.crash.long --kafka-schedule {seed}")
        raise


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules(chunk: int) -> None:
    done = [run_seed(seed) for seed in range(chunk, SEEDS, CHUNKS)]
    assert sum(each.crashes for each in done) >= len(done), "hardly any schedule crashed: they test nothing"
    for what, found in {
        "lost its disk": [each.empty_disks for each in done],
        "got an old disk": [each.old_disks for each in done],
        "read from a table": [each.table.reads for each in done],
        "trimmed the journal": [each.journal.first for each in done],
        "lost a group": [each.failures for each in done],
    }.items():
        assert sum(map(bool, found)) >= len(done) // 25, f"hardly any schedule {what}"


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("seed", BOUNDARY_SEEDS)
def test_a_crash_at_every_boundary(seed: int, power: bool) -> None:
    assert kafka_schedule.run_every_boundary(seed, power=power) > 20
