"""A consumer group: several processes share a topic's partitions, and each goes on where the group has committed."""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


def bill(order: str) -> None:
    print("billed", order)


with penstock.connect(address) as db:
    if not db.admin.topics.list("shipments"):
        db.admin.topics.create("shipments", partitions=2)
    db.produce_many("shipments", [f"shipment {number}" for number in range(6)], keys=[str(n) for n in range(6)])

    # Each member of a group says which partitions are its own. Here one reads both.
    with db.consume("shipments", "billing", partitions=[0, 1], auto_commit=False, follow=False) as consumer:
        while records := consumer.poll(limit=2):
            for record in records:
                bill(record.text)
            consumer.commit()  # only now: a crash before this line bills these two again, and loses none

    # The group stands at the end. Whoever joins it next, today or after a restart, gets what comes after that.
    with db.consume("shipments", "billing", follow=False) as consumer:
        print("left over:", [record.text for record in consumer])
    print("lag:", db.admin.groups.get("billing", "shipments").lag)
