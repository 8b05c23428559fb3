"""Nexmark's events: people who open auctions and bid in them, one person and three auctions to forty-six bids. The same
number of events is the same events, always."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

TOPICS: Final = ("person", "auction", "bid")
SCHEMAS: Final = {
    "person": "id long, name string, city string, state string, ts timestamp",
    "auction": "id long, item string, initial long, seller long, category long, ts timestamp, expires timestamp",
    "bid": "auction long, bidder long, price long, channel string, ts timestamp",
}
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
GAP: Final = timedelta(milliseconds=20)  # between two events
AUCTION: Final = timedelta(seconds=20)  # how long one lasts at most
FLUSH: Final = timedelta(hours=1)  # after the last event: what closes everything that is open

CITIES: Final = (("Portland", "OR"), ("Boise", "ID"), ("Palo Alto", "CA"), ("Phoenix", "AZ"), ("Seattle", "WA"))
CHANNELS: Final = ("google", "facebook", "baidu", "apple")
RECENT: Final = 40  # of the newest people and auctions, those that act and are bid for


class Event(NamedTuple):
    topic: str
    fields: dict[str, Any]


def events(count: int, seed: int = 7) -> Iterator[Event]:
    """So many events in the order of their times."""
    chance = random.Random(seed)
    people = auctions = 0
    for number in range(count):
        at = BEGIN + number * GAP
        turn = number % 50
        if turn == 0:
            city, state = chance.choice(CITIES)
            yield Event("person", {"id": people, "name": f"person {people}", "city": city, "state": state, "ts": at})
            people += 1
        elif turn < 4:
            yield Event(
                "auction",
                {
                    "id": auctions,
                    "item": f"item {chance.randrange(1000)}",
                    "initial": chance.randint(1, 100),
                    "seller": _recent(chance, people),
                    "category": 10 + chance.randrange(5),
                    "ts": at,
                    "expires": at + AUCTION * chance.uniform(0.2, 1),
                },
            )
            auctions += 1
        else:
            yield Event(
                "bid",
                {
                    "auction": _recent(chance, auctions),
                    "bidder": _recent(chance, people),
                    "price": int(100 * chance.lognormvariate(3, 1)),
                    "channel": chance.choice(CHANNELS),
                    "ts": at,
                },
            )


def flush(count: int) -> list[Event]:
    """One event of each kind, long after the others, that is part of no result."""
    at = BEGIN + count * GAP + FLUSH
    return [
        Event("person", {"id": -1, "name": "", "city": "", "state": "", "ts": at}),
        Event(
            "auction",
            {"id": -1, "item": "", "initial": 0, "seller": -2, "category": 0, "ts": at, "expires": at + AUCTION},
        ),
        Event("bid", {"auction": -3, "bidder": -1, "price": 0, "channel": "", "ts": at}),
    ]


def encoded(event: Event) -> bytes:
    return msgspec.json.encode(event.fields)


def _recent(chance: random.Random, made: int) -> int:
    """One of the newest, the newest more often than the others, as in Nexmark's generator."""
    return max(0, made - 1 - min(int(chance.expovariate(0.1)), RECENT, made - 1))
