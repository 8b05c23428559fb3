"""`python -m tests.console.cost`: what the console costs the broker with one page open, and what a live tail of 1,000
records a second for a minute costs the browser."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.demo import Api, append, fill
from tests.launcher import BrokerProcess
from tests.process_stats import processor_seconds

SECONDS = 30
TAIL_SECONDS = 60
RATE = 1000


def main() -> None:
    if CHROMIUM is None:
        sys.exit(MISSING)
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory)).ready() as broker,
        sync_playwright() as playwright,
    ):
        url = f"http://{broker.address('http')}"
        fill(Api(url))
        flags = ["--enable-precise-memory-info", "--js-flags=--expose-gc", *([] if os.getuid() else ["--no-sandbox"])]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(base_url=url)
        print(f"broker, no page open: {share(broker.process.pid, SECONDS):.2%} of one processor")
        for name, path in {"overview": "/", "topics": "/topics", "messages": "/topics/payments/messages"}.items():
            page.goto(f"{url}/#{path}")
            page.wait_for_timeout(3000)
            print(f"broker, {name} open: {share(broker.process.pid, SECONDS, page):.2%} of one processor")
        tail(page, url)
        browser.close()


def share(pid: int, seconds: float, page: Page | None = None) -> float:
    """The part of one processor that a process takes."""
    before, began = processor_seconds(pid), time.monotonic()
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(seconds * 1000)
    return (processor_seconds(pid) - before) / (time.monotonic() - began)


def tail(page: Page, url: str) -> None:
    """The heap of the page after a quarter of the time and at the end, each after a collection."""
    Api(url)("POST", "/topics", {"name": "tail"})
    page.goto(f"{url}/#/topics/tail/messages?live=1")
    page.wait_for_timeout(1000)
    over = threading.Event()
    sent = [0]
    sender = threading.Thread(target=send, args=(Api(url), over, sent))
    sender.start()
    for seconds in (TAIL_SECONDS / 2, TAIL_SECONDS / 2):
        page.wait_for_timeout(seconds * 1000)
        heap = page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize }")
        print(f"tail: {sent[0]} records sent, heap of the page {heap / 1e6:.1f} MB")
    over.set()
    sender.join()
    page.wait_for_timeout(2000)
    print(page.locator(".progress").inner_text().replace("\n", " "), f"({sent[0]} sent)")


def send(api: Api, over: threading.Event, sent: list[int]) -> None:
    began, value = time.monotonic(), '{"status": "settled", "amount": 12.5, "note": "%s"}' % ("x" * 60)
    while not over.wait(0.1):
        due = int((time.monotonic() - began) * RATE) - sent[0]
        if due > 0:
            append(api, "tail", [{"key_text": "k", "value_text": value}] * due)
            sent[0] += due


if __name__ == "__main__":
    main()
