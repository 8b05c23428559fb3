"""A simulated shop for `penstock up`: orders, page views and payments, produced through five protocols.

Orders are produced through RustLog, page views of the web site through FlyMQ, of the app through BlipMQ and of screens
in shops through Felix, payments through Kimberlite. Each event has its protocol in `via`. Like real data, some events
are malformed, duplicated or late, and some orders are not paid, or with a wrong amount. It ends with its parent
process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from penstock.clients import blipmq, felix, flymq, kimberlite, rustlog
from penstock.transport.endpoint import Endpoint, parse_endpoint

DOORS = ("rustlog", "flymq", "blipmq", "felix", "kimberlite")
ORDERS, PAGE_VIEWS, PAYMENTS = "orders", "page_views", "payments"
PARTITIONS = 2
PRODUCTS = {"anvil": 49.90, "birdseed": 3.20, "rocket skates": 199.00, "tunnel paint": 12.75, "giant magnet": 89.50}
PAGES = ("/", "/search", "/cart", *(f"/products/{name.replace(' ', '-')}" for name in PRODUCTS))
BAD = (b"not json at all", b'{"order_id": 17', b'{"hello": "world"}', b'{"order_id":"x","quantity":"many"}')
BAD_SHARE = 0.02
TWICE_SHARE, LATE_SHARE, UNPAID_SHARE, WRONG_SHARE = 0.01, 0.005, 0.05, 0.02
LATE_SECONDS = 120.0
UNPAID_ORDERS = 1_000  # maximum number of orders waiting for payment
TURN_SECONDS = 0.5
RETRY_SECONDS = 1.0

Failures = (
    OSError,
    rustlog.RustLogError,
    flymq.FlyMqError,
    blipmq.BlipMQError,
    felix.FelixError,
    kimberlite.KimberliteError,
)


class Shop:
    """A simulated shop: random events, with the current time."""

    def __init__(self, chance: random.Random, late: float = LATE_SHARE) -> None:
        self._chance = chance
        self._late = late
        self._to_pay: deque[tuple[str, str, float]] = deque(maxlen=UNPAID_ORDERS)  # order, customer, amount

    def order(self, now: float) -> bytes:
        if self._chance.random() < BAD_SHARE:
            return self._chance.choice(BAD)
        product = self._chance.choice(list(PRODUCTS))
        order, customer, quantity = f"{self._chance.getrandbits(64):016x}", self._customer(), self._chance.randint(1, 5)
        if self._chance.random() >= UNPAID_SHARE:
            self._to_pay.append((order, customer, round(quantity * PRODUCTS[product], 2)))
        return msgspec.json.encode(
            {
                "order_id": order,
                "customer": customer,
                "product": product,
                "quantity": quantity,
                "price": PRODUCTS[product],
                "ordered_at": self._time(now),
                "via": "rustlog",
            }
        )

    def page_view(self, now: float, via: str = "flymq") -> tuple[bytes, bytes]:
        """One page view: key (the visitor) and value."""
        customer = self._customer()
        if self._chance.random() < BAD_SHARE:
            return customer.encode(), self._chance.choice(BAD)
        event = {
            "view_id": f"{self._chance.getrandbits(64):016x}",
            "customer": customer,
            "page": self._chance.choice(PAGES),
            "milliseconds": int(self._chance.lognormvariate(4, 1)),
            "viewed_at": self._time(now),
            "via": via,
        }
        return customer.encode(), msgspec.json.encode(event)

    def payments(self, now: float) -> list[bytes]:
        """Payments for the orders that are not paid yet."""
        paid = []
        while self._to_pay:
            order, customer, amount = self._to_pay.popleft()
            if self._chance.random() < WRONG_SHARE:
                amount = round(amount + 1, 2)
            event = {
                "payment_id": f"{self._chance.getrandbits(64):016x}",
                "order_id": order,
                "customer": customer,
                "amount": amount,
                "paid_at": _time_text(now),
                "via": "kimberlite",
            }
            paid.append(msgspec.json.encode(event))
        return paid

    def some_twice(self, events: list[bytes]) -> list[bytes]:
        """Some events twice, as from clients that retry after success."""
        return [event for once in events for event in (once, once)[: 1 + (self._chance.random() < TWICE_SHARE)]]

    def _time(self, now: float) -> str:
        return _time_text(now - LATE_SECONDS if self._chance.random() < self._late else now)

    def _customer(self) -> str:
        return f"customer-{self._chance.randrange(200)}"


def _time_text(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Doors:
    """Clients of the five protocols; nothing is produced through Felix or Kimberlite if those doors are closed. Each
    connects on first use, and again after a failure."""

    def __init__(self, at: Mapping[str, Endpoint], *, key: str = "generator") -> None:
        self._rustlog = rustlog.Client(at["rustlog"].host, at["rustlog"].port, busy_poll=0)
        self._flymq = flymq.Client(at["flymq"].host, at["flymq"].port)
        self._blipmq = blipmq.Client(at["blipmq"].host, at["blipmq"].port, key=key, busy_poll=0)
        self._felix = self._kimberlite = None
        if "felix" in at:
            self._felix = felix.FelixClient(str(at["felix"]), insecure=True)  # the local broker
        if "kimberlite" in at:
            self._kimberlite = kimberlite.KimberliteClient(str(at["kimberlite"]))
        self._stream = 0  # of payments
        self._turn = 0

    def create_topics(self) -> None:
        for topic, partitions in ((ORDERS, PARTITIONS), (PAGE_VIEWS, PARTITIONS), (PAYMENTS, 1)):
            with contextlib.suppress(rustlog.ReplyError):  # it exists
                self._rustlog.create_topic(topic, partitions)
        if self._kimberlite is not None:
            self._stream = self._kimberlite.create_stream(PAYMENTS)

    def orders(self, values: list[bytes]) -> None:
        if values:
            self._turn += 1
            self._rustlog.produce(ORDERS, self._turn % PARTITIONS, values)

    def web_views(self, views: list[tuple[bytes, bytes]]) -> None:
        if views:
            self._flymq.produce_many(PAGE_VIEWS, [value for _, value in views], [key for key, _ in views])

    def app_views(self, views: list[tuple[bytes, bytes]]) -> None:
        if views:
            self._blipmq.publish_many(PAGE_VIEWS, [value for _, value in views])
            self._blipmq.flush()

    def screen_views(self, views: list[tuple[bytes, bytes]]) -> None:
        if views and self._felix is not None:
            self._felix.publish_many(PAGE_VIEWS, [value for _, value in views])

    def payments(self, values: list[bytes]) -> None:
        if values and self._kimberlite is not None:
            self._kimberlite.append(self._stream, values)

    def close(self) -> None:
        """Close connections; clients reconnect when they are used again."""
        for client in (self._rustlog, self._flymq, self._blipmq, self._kimberlite):
            if client is not None:
                with contextlib.suppress(*Failures):
                    client.close()

    def end(self) -> None:
        """Close all clients for the last time, including Felix's."""
        self.close()
        if self._felix is not None:
            with contextlib.suppress(*Failures):
                self._felix.close()


class EventCounts(NamedTuple):
    """The number of events of each kind in a turn."""

    orders: int
    web: int
    app: int
    screens: int


SHARES = EventCounts(30, 40, 20, 10)  # per hundred events; payments come on top


def amounts(per_second: float) -> Iterator[EventCounts]:
    """The events of each turn, with fractions carried over so that the rate is exact."""
    due = [0.0] * len(SHARES)
    while True:
        counts = []
        for index, share in enumerate(SHARES):
            due[index] += per_second * TURN_SECONDS * share / sum(SHARES)
            whole = int(due[index] + 1e-9)
            due[index] -= whole
            counts.append(whole)
        yield EventCounts(*counts)


def generate(doors: Doors, shop: Shop, per_second: float, stopped: threading.Event, say: Callable[[str], None]) -> None:
    """Run until `stopped` is set. Waits for a broker that is down; events that could not be written are not
    repeated."""
    started = failing = False
    for turn in amounts(per_second):
        began = time.monotonic()
        try:
            if not started:
                doors.create_topics()
            now = time.time()
            doors.orders(shop.some_twice([shop.order(now) for _ in range(max(turn.orders, not started))]))
            doors.web_views([shop.page_view(now, "flymq") for _ in range(turn.web)])
            doors.app_views([shop.page_view(now, "blipmq") for _ in range(turn.app)])
            doors.screen_views([shop.page_view(now, "felix") for _ in range(turn.screens)])
            doors.payments(shop.some_twice(shop.payments(now)))
            if not started:
                say("the first events are there")
            started = True
            failing = False
        except Failures as error:
            if not failing:
                say(f"the broker does not take records: {error}")
            failing = True
            doors.close()
            stopped.wait(RETRY_SECONDS)
        if stopped.wait(max(0.0, TURN_SECONDS - (time.monotonic() - began))):
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="penstock.cli.generator")
    for name in DOORS:
        parser.add_argument(f"--{name}", default="off")
    parser.add_argument("--rate", type=float, required=True)
    given = parser.parse_args()
    found = {name: parse_endpoint(getattr(given, name)) for name in DOORS}
    at = {name: endpoint for name, endpoint in found.items() if endpoint is not None}
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def end_with_parent() -> None:
        while os.read(0, 64):
            pass
        stopped.set()

    threading.Thread(target=end_with_parent, daemon=True).start()
    doors = Doors(at)
    generate(doors, Shop(random.Random()), given.rate, stopped, lambda text: print(text, flush=True))
    doors.end()


if __name__ == "__main__":
    main()
