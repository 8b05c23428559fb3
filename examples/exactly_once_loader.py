"""A loader that stores each line of its input exactly once, also if it is stopped anywhere and started again.

A producer is idempotent: whatever happens to the connection or the broker, a record is stored once. If the program
itself may end at any line, it has to remember how far it got; here it does so in the same transaction as the lines.
"""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
LINES = [f"line {number}" for number in range(10)]
BATCH = 3


class Crash(Exception):
    """The power fails."""


def load(db: penstock.Connection, crash_at: int | None = None) -> None:
    position = 0
    if db.admin.topics.list("loader.positions"):
        for record in db.consume("loader.positions", follow=False):
            position = int(record.text)  # the last one counts
    print("begins at line", position)
    while position < len(LINES):
        batch = LINES[position : position + BATCH]
        with db.transaction() as transaction:
            for line in batch:
                if line == f"line {crash_at}":
                    raise Crash
                transaction.produce("lines", line)
            position += len(batch)
            transaction.produce("loader.positions", str(position))


with penstock.connect(address) as db:
    try:
        load(db, crash_at=7)
    except Crash:
        print("crashed")

with penstock.connect(address) as db:  # started again
    load(db)
    stored = [record.text for record in db.consume("lines", follow=False)]
    print("each line once:", stored == LINES)
