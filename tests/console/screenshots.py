"""`make screenshots`: a picture of every page of the console for docs/console.md, from a broker with demo data."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.console.conftest import CHROMIUM, MISSING, launch
from tests.console.demo import Api, append, fill, payment
from tests.console.pipeline import running_pipeline
from tests.launcher import BrokerProcess

from penstock.clients import blipmq, flymq

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "console"
MAX_BYTES = 150_000
STATEMENT = "SELECT status, COUNT(*) AS payments, ROUND(AVG(amount), 2) AS mean FROM payments GROUP BY status"
PAGES = {
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/payments/messages?path=%24.status%3Dfailed",
    "message": "/topics/payments/messages?text=declined&open=0:3",
    "sql": f"/sql?sql={STATEMENT.replace(' ', '+')}",
    "sql-chart": f"/sql?sql={STATEMENT.replace(' ', '+')}&chart=bar",
    "schemas": "/schemas",
    "schema": "/schemas/order?against=1",
    "groups": "/groups",
    "group": "/groups/warehouse/orders",
    "queues": "/queues",
    "dead-letters": "/dead-letters/orders?minutes=10",
    "delayed": "/delayed",
    "transactions": "/transactions",
    "caches": "/caches/baskets",
    "connections": "/connections",
    "pipelines": "/pipelines",
    "users": "/access/users",
    "keys": "/access/keys",
    "roles": "/access/roles",
    "acls": "/access/acls",
    "tenants": "/access/tenants",
    "audit": "/audit",
}


def main() -> None:
    if CHROMIUM is None:
        sys.exit(MISSING)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory), PENSTOCK_SECURITY__AUDIT="on").ready() as broker,
        sync_playwright() as playwright,
    ):
        url = f"http://{broker.address('http')}"
        fill(Api(url))
        Api(url)("PUT", "/tenants/acme", {"label": "Acme Rockets"})
        browser = launch(playwright)
        with (
            blipmq.Client(*broker.endpoint("blipmq"), key="demo") as worker,
            flymq.Client(*broker.endpoint("flymq")) as buyer,
            running_pipeline(Path(directory), {"0": 250, "1": 240}),
        ):
            worker.subscribe("payments")
            buyer.transaction().__enter__().produce("payments", b'{"amount": 12.5}')
            overview(browser, url)
            page = open_page(browser, url, 1180, "light")
            for name, path in PAGES.items():
                visit(page, path)
                save(page, name)
            save(small(browser, url), "phone")
        browser.close()


def open_page(browser: Browser, url: str, width: int, scheme: Literal["light", "dark"]) -> Page:
    context = browser.new_context(base_url=url, viewport={"width": width, "height": 700}, color_scheme=scheme)
    context.set_default_timeout(60_000)
    return context.new_page()


def visit(page: Page, path: str) -> None:
    page.goto(f"/#{path}")
    page.locator("h1").wait_for()
    expect(page.locator("main .spinner")).to_have_count(0, timeout=60_000)
    page.wait_for_timeout(300)


def overview(browser: Browser, url: str) -> None:
    """Light and dark, with half a minute of traffic in the charts."""
    over = threading.Event()
    traffic = threading.Thread(target=produce, args=(Api(url), over))
    traffic.start()
    light, dark = open_page(browser, url, 1180, "light"), open_page(browser, url, 1180, "dark")
    visit(light, "/")
    visit(dark, "/")
    light.wait_for_timeout(30_000)
    save(light, "overview")
    save(dark, "overview-dark")
    visit(light, "/topics/page_views/messages?live=1")
    light.wait_for_timeout(3_000)
    save(light, "live")
    over.set()
    traffic.join()
    light.context.close()
    dark.context.close()


def produce(api: Api, over: threading.Event) -> None:
    chance, number = random.Random(3), 1000
    while not over.wait(0.2):
        view = {"key_text": f"customer-{chance.randrange(99)}", "value_text": '{"page": "/cart"}'}
        append(api, "page_views", [view] * chance.randint(20, 60))
        append(api, "payments", [payment(chance, number := number + 1) for _ in range(chance.randint(2, 9))])


def small(browser: Browser, url: str) -> Page:
    page = open_page(browser, url, 390, "dark")
    visit(page, "/topics/payments/messages")
    return page


def save(page: Page, name: str) -> None:
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.name}  {size // 1000} kB")
    if size > MAX_BYTES:
        sys.exit(f"{path.name} has more than {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
