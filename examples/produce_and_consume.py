"""Produce records and read them back: keys, headers, batches, and a producer that pipelines."""

import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with penstock.connect(address) as db:
    # One record. When this returns, it is on disk, once.
    place = db.produce("orders", '{"item": "lamp"}', key="customer-7", headers={"source": "web"})
    print(f"stored at offset {place.offset} of partition {place.partition}")

    # Several at once.
    db.produce_many("orders", ['{"item": "chair"}', '{"item": "table"}'], keys=["customer-7", "customer-8"])

    # Thousands, without waiting for each: `send` returns at once, leaving the block waits for all of them.
    with db.producer() as producer:
        deliveries = [producer.send("orders", f'{{"item": "nail {number}"}}') for number in range(1000)]
    print(f"the last nail is at offset {deliveries[-1].result().offset}")

    # Read it all back, from the beginning to the end that the topic has now.
    for record in db.consume("orders", start="earliest", follow=False):
        if record.key is not None:
            print(record.offset, record.time.date(), record.key.decode(), record.text, dict(record.headers))
