"""A small shop that never closes: orders and page views, written through three protocols, for `penstock up`.

Orders come through RustLog, page views of the web site through FlyMQ, those of the app through BlipMQ. Now and then
something comes that is neither, as in life. It ends with whoever started it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from penstock.clients import blipmq, flymq, rustlog
from penstock.transport.endpoint import Endpoint, parse_endpoint

ORDERS, PAGE_VIEWS = "orders", "page_views"
PARTITIONS = 2
PRODUCTS = {"anvil": 49.90, "birdseed": 3.20, "rocket skates": 199.00, "tunnel paint": 12.75, "giant magnet": 89.50}
PAGES = ("/", "/search", "/cart", *(f"/products/{name.replace(' ', '-')}" for name in PRODUCTS))
BAD = (b"not json at all", b'{"order_id": 17', b'{"hello": "world"}', b'{"order_id":"x","quantity":"many"}')
BAD_SHARE = 0.02
TURN_SECONDS = 0.5
RETRY_SECONDS = 1.0

Failures = (OSError, rustlog.RustLogError, flymq.FlyMqError, blipmq.BlipMQError)


class Shop:
    """A simulated shop: events by chance and by the clock."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def order(self, now: float) -> bytes:
        if self._chance.random() < BAD_SHARE:
            return self._chance.choice(BAD)
        product = self._chance.choice(list(PRODUCTS))
        return msgspec.json.encode(
            {
                "order_id": f"{self._chance.getrandbits(64):016x}",
                "customer": self._customer(),
                "product": product,
                "quantity": self._chance.randint(1, 5),
                "price": PRODUCTS[product],
                "ordered_at": _time_text(now),
            }
        )

    def page_view(self, now: float) -> tuple[bytes, bytes]:
        """One page view: the visitor and the page."""
        customer = self._customer()
        if self._chance.random() < BAD_SHARE:
            return customer.encode(), self._chance.choice(BAD)
        event = {
            "view_id": f"{self._chance.getrandbits(64):016x}",
            "customer": customer,
            "page": self._chance.choice(PAGES),
            "milliseconds": int(self._chance.lognormvariate(4, 1)),
            "viewed_at": _time_text(now),
        }
        return customer.encode(), msgspec.json.encode(event)

    def _customer(self) -> str:
        return f"customer-{self._chance.randrange(200)}"


def _time_text(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Doors:
    """The three ways into the broker. Each opens its connection when it is first used, and again after a failure."""

    def __init__(
        self, to_rustlog: Endpoint, to_flymq: Endpoint, to_blipmq: Endpoint, *, key: str = "generator"
    ) -> None:
        self._rustlog = rustlog.Client(to_rustlog.host, to_rustlog.port, busy_poll=0)
        self._flymq = flymq.Client(to_flymq.host, to_flymq.port)
        self._blipmq = blipmq.Client(to_blipmq.host, to_blipmq.port, key=key, busy_poll=0)
        self._turn = 0

    def create_topics(self) -> None:
        for topic in (ORDERS, PAGE_VIEWS):
            with contextlib.suppress(rustlog.ReplyError):  # it is there already
                self._rustlog.create_topic(topic, PARTITIONS)

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

    def close(self) -> None:
        for client in (self._rustlog, self._flymq, self._blipmq):
            with contextlib.suppress(*Failures):
                client.close()


def amounts(per_second: float) -> Iterator[tuple[int, int, int]]:
    """Orders, web views and app views of each turn, so that the sum comes out right although a turn has few."""
    due = [0.0, 0.0, 0.0]
    while True:
        counts = []
        for index, part in enumerate((0.4, 0.4, 0.2)):
            due[index] += per_second * TURN_SECONDS * part
            whole = int(due[index])
            due[index] -= whole
            counts.append(whole)
        yield counts[0], counts[1], counts[2]


def generate(doors: Doors, shop: Shop, per_second: float, stopped: threading.Event, say: Callable[[str], None]) -> None:
    """Until `stopped` is set. A broker that is away is waited for; what could not be written is not made up for."""
    started = failing = False
    for orders, web, app in amounts(per_second):
        began = time.monotonic()
        try:
            if not started:
                doors.create_topics()
            now = time.time()
            doors.orders([shop.order(now) for _ in range(max(orders, not started))])
            doors.web_views([shop.page_view(now) for _ in range(web)])
            doors.app_views([shop.page_view(now) for _ in range(app)])
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
    for name in ("rustlog", "flymq", "blipmq"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rate", type=float, required=True)
    given = parser.parse_args()
    to_rustlog, to_flymq, to_blipmq = (
        parse_endpoint(given.rustlog),
        parse_endpoint(given.flymq),
        parse_endpoint(given.blipmq),
    )
    assert to_rustlog and to_flymq and to_blipmq, "who starts this knows where the doors are"
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def end_with_parent() -> None:
        while os.read(0, 64):
            pass
        stopped.set()

    threading.Thread(target=end_with_parent, daemon=True).start()
    doors = Doors(to_rustlog, to_flymq, to_blipmq)
    generate(doors, Shop(random.Random()), given.rate, stopped, lambda text: print(text, flush=True))
    doors.close()


if __name__ == "__main__":
    main()
