"""A work queue with three workers, asyncio: at least once, retries, and dead letters for what keeps failing."""

import asyncio
import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


async def worker(name: str, done: list[str]) -> None:
    async with await penstock.aconnect(address) as db, db.queue("mails", "senders", attempts=2) as queue:
        while (message := await queue.get(timeout=1.0)) is not None:
            try:
                async with message:  # acknowledged at the end of the block, given back on an exception
                    if "@" not in message.text:
                        raise ValueError(f"no address: {message.text}")
                    done.append(message.text)
            except ValueError as error:
                print(f"{name}: {error}")


async def main() -> None:
    async with await penstock.aconnect(address) as db:
        queue = db.queue("mails", "senders", attempts=2)
        await queue.open()  # a queue holds what comes after it was opened for the first time
        await db.produce_many("mails", ["ann@example.org", "nonsense", "bob@example.org", "cy@example.org"])
        done: list[str] = []
        await asyncio.gather(*[worker(f"worker {number}", done) for number in range(3)])
        print("sent:", sorted(done))

        await asyncio.sleep(0.5)  # the broker puts away what was given up about ten times a second
        for letter in await queue.dead_letters.list():
            print(f"given up after {letter.attempts} attempts: {letter.value.decode()}")
        await queue.dead_letters.purge()


asyncio.run(main())
