"""A transaction: records of several topics appear together, or not at all."""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


def transfer(db: penstock.Connection, source: str, target: str, amount: int) -> None:
    with db.transaction() as transaction:
        transaction.produce("debits", f"{amount}", key=source)
        if amount > 1000:
            raise ValueError("that is too much")  # leaves the block: nothing of it is stored
        transaction.produce("credits", f"{amount}", key=target)


with penstock.connect(address) as db:
    transfer(db, "ann", "bob", 100)
    try:
        transfer(db, "ann", "bob", 5000)
    except ValueError as error:
        print("refused:", error)

    for topic in ("debits", "credits"):
        for record in db.consume(topic, follow=False):
            assert record.key is not None
            print(topic, record.key.decode(), record.text)
