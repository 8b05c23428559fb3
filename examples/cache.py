"""A cache: sessions that end, counters, and a lock by compare-and-set; asyncio."""

import asyncio
import sys

import penstock

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


async def main() -> None:
    async with await penstock.aconnect(address) as db:
        sessions = await db.cache("sessions")
        await sessions.put("ann", "logged in", ttl=0.2)
        print("ann:", await sessions.get("ann"))
        await asyncio.sleep(0.25)
        print("ann, later:", await sessions.get("ann"))

        visits = await db.cache("visits")
        await asyncio.gather(*[visits.increment("front page") for _ in range(100)])
        print("visits:", await visits.increment("front page", 0))

        locks = await db.cache("locks")
        mine = await locks.compare_and_set("report", None, "worker 1", ttl=30)
        theirs = await locks.compare_and_set("report", None, "worker 2", ttl=30)
        print("worker 1 has it:", mine.stored, "- worker 2 has it:", theirs.stored, theirs.value)
        await locks.delete("report")


asyncio.run(main())
