"""`python -m tests.console.cost`: what the console costs the broker, with no page open and with one. Ends with 1 if a
page takes 5 % of one processor, or more."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tests.console.conftest import CHROMIUM, MISSING, launch
from tests.console.demo import Api, fill
from tests.launcher import BrokerProcess
from tests.process_stats import processor_seconds

SECONDS = 30
LIMIT = 0.05  # of one processor


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
        browser = launch(playwright)
        page = browser.new_page(base_url=url)
        closed = share(broker.process.pid, SECONDS)
        print(f"broker, no page open: {closed:.2%} of one processor")
        worst = 0.0
        for name, path in {"overview": "/", "topics": "/topics", "messages": "/topics/payments/messages"}.items():
            page.goto(f"{url}/#{path}")
            page.wait_for_timeout(3000)
            found = share(broker.process.pid, SECONDS, page)
            print(f"broker, {name} open: {found:.2%} of one processor")
            worst = max(worst, found - closed)
        browser.close()
    sys.exit(worst >= LIMIT)


def share(pid: int, seconds: float, page: Page | None = None) -> float:
    """The part of one processor that a process takes."""
    before, began = processor_seconds(pid), time.monotonic()
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(seconds * 1000)
    return (processor_seconds(pid) - before) / (time.monotonic() - began)


if __name__ == "__main__":
    main()
