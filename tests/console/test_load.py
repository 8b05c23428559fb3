"""The console of a broker under load: pages open and work while a producer writes 1,000 records a second, and a live
tail shows every one of them without growing. `make console-load` does it for the whole minute."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.demo import Api, fill
from tests.console.test_screens import SCREENS
from tests.launcher import BrokerProcess

from penstock.clients.rustlog import Client

SECONDS = float(os.environ.get("CONSOLE_LOAD_SECONDS", "4"))
RATE = 1000  # records a second
KEPT = 20_000  # of a tail, by the page
HEAP = 40e6  # bytes of a page that has all of those
GROWTH = 5e6  # between two moments at which it has all of those
VALUE = b'{"status": "settled", "amount": 12.5, "note": "%s"}' % (b"x" * 60)


class Load:
    """A producer that writes to a topic at a steady rate, in a thread."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.sent = 0
        self._endpoint = broker.endpoint("rustlog")
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        with Client(*self._endpoint) as client:
            while not self._over.wait(0.05):
                due = int((time.monotonic() - began) * RATE) - self.sent
                if due > 0:
                    client.produce(self._topic, 0, [VALUE] * due)
                    self.sent += due


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with BrokerProcess(tmp_path_factory.mktemp("load")).ready() as process:
        fill(Api(f"http://{process.address('http')}"), 100)
        yield process


@pytest.fixture(scope="module")
def broker(process: BrokerProcess) -> str:
    return f"http://{process.address('http')}"


def test_a_live_tail_shows_every_record_and_does_not_grow(page: Page, broker: str, process: BrokerProcess) -> None:
    Api(broker)("POST", "/topics", {"name": "tail"})
    page.goto("/#/topics/tail/messages?live=1")
    expect(page.locator(".progress")).to_contain_text("live")
    heaps = []
    with Load(process, "tail") as load:
        for _ in range(2):
            page.wait_for_timeout(SECONDS * 500)
            heaps.append(page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize }"))
    expect(page.locator(".progress")).to_contain_text(f"{load.sent:,} messages since the tail began")
    assert load.sent >= RATE
    assert page.locator(".vlist").get_attribute("aria-rowcount") == str(min(load.sent, KEPT))
    expect(page.locator(".vrow").first).to_contain_text(f"0:{load.sent - 1}")
    half, end = (heap / 1e6 for heap in heaps)
    print(f"{load.sent} records sent and seen; heap {half:.1f} MB at half time, {end:.1f} MB at the end")
    assert max(heaps) < HEAP
    if load.sent > 2 * KEPT:  # it had all that it keeps at half time
        assert heaps[1] - heaps[0] < GROWTH


def test_pages_open_and_work_while_a_producer_writes(page: Page, broker: str, process: BrokerProcess) -> None:
    api = Api(broker)
    api("POST", "/topics", {"name": "busy"})
    with Load(process, "busy") as load:
        for path, title in {"/": "Overview", "/topics": "Topics", "/topics/busy": "busy", **SCREENS}.items():
            page.goto(f"/#{path}")
            expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
            expect(page.locator("main .spinner")).to_have_count(0)
            expect(page.locator(".state.failed")).to_have_count(0)
        page.goto("/#/topics/busy/messages?path=%24.status%3Dsettled")
        expect(page.locator(".progress")).to_contain_text("500 messages found")
        page.get_by_role("button", name="Produce").click()
        page.get_by_role("dialog").get_by_label("Value", exact=True).fill("by hand")
        page.get_by_role("button", name="Append 1 record to busy").click()
        expect(page.locator(".toast").last).to_contain_text(re.compile(r"partition 0 at offset [\d,]+"))
        page.goto("/#/topics")
        expect(page.get_by_role("row").filter(has_text="busy")).to_contain_text(re.compile(r"[\d.]+k?/s"))
    assert api("GET", "/topics/busy")["topic"]["records"] == load.sent + 1


def test_two_windows_follow_a_busy_topic(
    page: Page, context: BrowserContext, broker: str, process: BrokerProcess
) -> None:
    Api(broker)("POST", "/topics", {"name": "both"})
    other = context.new_page()
    for each in (page, other):
        each.goto("/#/topics/both/messages?live=1")
        expect(each.locator(".progress")).to_contain_text("live")
    with Load(process, "both") as load:
        page.wait_for_timeout(1000)
    for each in (page, other):
        expect(each.locator(".progress")).to_contain_text(f"{load.sent:,} messages since the tail began")
