"""`python -m tests.console.walk`: a new user's question, answered in the browser: which orders failed in the last ten
minutes, why, and send them again. Takes the pictures of it for docs/console.md, and the time.

The orders are those of the shop of `penstock up`; a worker took seven of them and never said that it was done. Before
each click the script waits as long as somebody takes who reads the page first."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright
from tests.console.conftest import CHROMIUM, MISSING, launch
from tests.console.demo import Api, append, fill, shop_orders
from tests.console.screenshots import open_page, save, visit
from tests.launcher import BrokerProcess

from penstock.clients import blipmq

READING = 4.0  # seconds before each click
FAILED = 7
LIMIT = 60.0


def give_up(broker: BrokerProcess, api: Api) -> None:
    """A worker takes orders from a queue and never says that it is done: after one attempt they are dead letters."""
    with blipmq.Client(*broker.endpoint("blipmq"), key="demo", version=2) as worker:
        queue = worker.queue("orders", "packing", lease=1.0, attempts=1)
        append(api, "orders", shop_orders(FAILED, seed=11))
        taken = 0
        while given_up(api) < FAILED:  # a poll also ends what was taken before for too long
            taken += len(queue.poll_many(FAILED - taken)) if taken < FAILED else 0
            time.sleep(0.2)


def given_up(api: Api) -> int:
    letters = api("GET", "/topics/orders/dead-letters?limit=1000")["items"]
    return sum("attempts" in letter["reason"] for letter in letters)


class Walk:
    """The steps, each with its picture and its time."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._began = time.monotonic()
        self.seconds = 0.0

    def step(self, number: int, text: str) -> None:
        save(self._page, f"step-{number}")
        self._page.wait_for_timeout(READING * 1000)
        self.seconds = time.monotonic() - self._began
        print(f"{self.seconds:5.1f} s  {text}")


def walk(page: Page, api: Api) -> float:
    visit(page, "/")
    page.get_by_role("link", name="Look at them").wait_for()
    steps = Walk(page)
    steps.step(1, "the overview says that there are dead letters; Look at them")
    page.get_by_role("link", name="Look at them").click()
    page.get_by_label("Given up").select_option("10")
    page.get_by_label("Reason, key or value has").fill("attempts")
    expect(page.locator("tbody tr")).to_have_count(FAILED)
    steps.step(2, "in the last 10 minutes, and given up after all attempts: these failed, and why")
    page.get_by_role("button", name="Open").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("after 1 attempt")
    steps.step(3, "one of them, with the place it was read from, and its value")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Replay these…").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"The {FAILED} dead letters that the list shows")
    steps.step(4, "the question: what will be appended again, and where")
    page.get_by_role("button", name=f"Replay {FAILED} dead letters").click()
    expect(page.locator(".toast").last).to_contain_text(f"{FAILED} dead letters replayed")
    steps.step(5, "done: the list is empty, and the orders are in their topic again")
    assert given_up(api) == 0
    return steps.seconds


def main() -> None:
    if CHROMIUM is None:
        sys.exit(MISSING)
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory)).ready() as broker,
        sync_playwright() as playwright,
    ):
        url = f"http://{broker.address('http')}"
        api = Api(url)
        fill(api)
        give_up(broker, api)
        browser = launch(playwright)
        seconds = walk(open_page(browser, url, 1180, "light"), api)
        browser.close()
    print(f"{seconds:.0f} seconds, of which {5 * READING:.0f} for reading")
    sys.exit(seconds >= LIMIT)


if __name__ == "__main__":
    main()
