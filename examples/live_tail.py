"""Follow a topic as it grows, with asyncio: a producer and a reader at the same time."""

import asyncio
import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


async def write(db: penstock.AsyncConnection) -> None:
    async with db.producer() as producer:
        for number in range(5):
            await producer.send("ticks", f"tick {number}")
            await producer.flush()
            await asyncio.sleep(0.02)


async def tail(db: penstock.AsyncConnection) -> None:
    # The fetch waits at the broker: a record is here as soon as it is stored, and nothing is asked in vain.
    async with db.consume("ticks", start="latest") as consumer:
        await consumer.poll(timeout=0)  # find the end before anything is written
        started.set()
        async for record in consumer:
            print(f"{record.time:%H:%M:%S} {record.text}"[9:])
            if record.text == "tick 4":
                break


started = asyncio.Event()


async def main() -> None:
    async with await penstock.aconnect(address) as db:
        await db.produce("ticks", "before")
        tailing = asyncio.create_task(tail(db))
        await started.wait()
        await write(db)
        await tailing


asyncio.run(main())
