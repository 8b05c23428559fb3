"""A topic as a table: all of its records as Arrow columns, by Flight, and as a data frame."""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with penstock.connect(address, timeout=60) as db:
    db.produce_many("measurements", [f"{number / 10:.1f}" for number in range(10_000)])

    table = db.table("measurements", ["offset", "value"])  # a pyarrow.Table
    print(table.num_rows, "rows,", table.nbytes // 1024, "KiB")

    frame = table.to_pandas()
    print("mean:", frame["value"].astype(float).mean())

    # The same as the result of a statement, which may compute before anything is sent.
    print(db.sql("SELECT max(data::DOUBLE) AS top FROM measurements").pandas())
