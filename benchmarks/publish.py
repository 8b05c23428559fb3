"""Publishing: how fast record batches are staged over Arrow Flight and then become part of the log, and what that does
to those who produce meanwhile.

Two clients put at the same time, as two Spark tasks would; the record batches are made beforehand, so that what is
measured is gRPC, the Flight process and its files, and then the broker.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks import load, wire
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, Sample, latency, merged
from benchmarks.settings import Run

TITLE: Final = "publishing over Arrow Flight: 4 partitions, records of 100 B, written"
TOPIC: Final = "bench"
PARTITIONS: Final = 4
SIZE: Final = 100
TASKS: Final = 2
ROWS: Final = 10_000  # of a record batch, as Spark makes them
START_SECONDS: Final = 60.0
SETTINGS: Final = {"TABLES__ENABLED": "false"}


def rounds(run: Run) -> int:
    return 2 if run.quick else 5


def records(run: Run) -> int:
    """Of one batch."""
    return 1_000_000 if run.quick else 5_000_000


def about(run: Run) -> str:
    return f"batches of {records(run):,} records by {TASKS} tasks; {rounds(run)} rounds"


def measure(run: Run, report: Report) -> None:
    data_dir = os.path.join(run.directory, "publish")
    broker = BrokerProcess(data_dir, "written", SETTINGS)
    broker.flight = True
    try:
        with broker:
            broker.create_topic(TOPIC, PARTITIONS)
            broker.create_topic("other")
            _wait(broker.flight_port)
            _measure(run, report, broker)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _measure(run: Run, report: Report, broker: BrokerProcess) -> None:
    count = records(run)
    staged, published, whole = list[Sample](), list[Sample](), list[Sample]()
    job = load.Produce(broker.port, wire.binary_produce("other", [os.urandom(1024)]), 2 * run.seconds)
    load.run_one(job)
    alone, beside = list[Sample](), list[Sample]()
    for number in range(rounds(run)):
        began = time.perf_counter()
        refs = _stage(broker.flight_port, number, count)
        middle = time.perf_counter()
        _publish(broker.flight_port, number, refs, count)
        end = time.perf_counter()
        staged.append(Sample(count, middle - began))
        published.append(Sample(count, end - middle))
        whole.append(Sample(count, end - began))
        alone.append(load.run_one(job))
        refs = _stage(broker.flight_port, 1000 + number, count)
        publishing = threading.Thread(target=_publish, args=(broker.flight_port, 1000 + number, refs, count))
        publishing.start()
        beside.append(load.run_one(job))
        publishing.join()
    for name, samples in (("put", staged), ("publish", published), ("both", whole)):
        rate = merged(samples).rate
        report.add(name, rate / 1e6, "M records/s", note=f"{rate * SIZE / 1e6:,.0f} MB/s of values")
    report.add("produce, one at a time, alone", merged(alone).rate, "appends/s", note=latency(merged(alone)))
    report.add("  while a batch is published", merged(beside).rate, "appends/s", note=latency(merged(beside)))


def _wait(port: int) -> None:
    """Until the Flight process serves; the broker's own port is open before that."""
    from pyarrow import flight

    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with flight.connect(f"grpc://127.0.0.1:{port}") as client:
                list(client.list_actions())
            return
        except flight.FlightUnavailableError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _stage(port: int, number: int, count: int) -> list[str]:
    """Its refs. Batches have rising numbers in an application of their own each, so that none is a repeat."""
    with ThreadPoolExecutor(TASKS) as tasks:
        return list(tasks.map(lambda _: _put(port, number, count // TASKS), range(TASKS)))


def _put(port: int, number: int, count: int) -> str:
    import pyarrow as pa
    from pyarrow import flight

    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(SIZE), ROWS, [None, pa.py_buffer(os.urandom(SIZE * ROWS))])
    batch = pa.record_batch({"value": values.cast(pa.binary())})
    command = {"app": f"bench-{number}", "batch": 0, "topic": TOPIC}
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        writer, answers = client.do_put(descriptor, batch.schema)
        for _ in range(count // ROWS):
            writer.write_batch(batch)
        writer.done_writing()
        answer: dict[str, Any] = json.loads(answers.read().to_pybytes())
        writer.close()
    assert answer["rows"] == count
    return str(answer["ref"])


def _publish(port: int, number: int, refs: list[str], count: int) -> None:
    from pyarrow import flight

    body = json.dumps({"app": f"bench-{number}", "batch": 0, "refs": refs}).encode()
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        (answer,) = client.do_action(flight.Action("publish", body))
        assert json.loads(answer.body.to_pybytes())["rows"] == count
