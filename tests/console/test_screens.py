"""Every screen in a real browser. What can be changed on them is in `test_actions`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.console.demo import Api, append

SCREENS = {
    "/sql": "SQL",
    "/schemas": "Schemas",
    "/schemas/order": "order",
    "/groups": "Groups",
    "/groups/warehouse/orders": "warehouse in orders",
    "/queues": "Queues",
    "/dead-letters": "Dead letters",
    "/dead-letters/orders": "orders",
    "/delayed": "Delayed",
    "/transactions": "Transactions",
    "/caches": "Caches",
    "/caches/baskets": "baskets",
    "/connections": "Connections",
    "/pipelines": "Pipelines",
    "/access/users": "Access",
    "/access/keys": "Access",
    "/access/roles": "Access",
    "/access/acls": "Access",
    "/access/tenants": "Access",
    "/audit": "Audit",
}


@pytest.fixture
def narrow(page: Page) -> Iterator[Page]:
    page.set_viewport_size({"width": 390, "height": 844})
    yield page


def test_every_screen_is_there_and_fits_a_phone(narrow: Page) -> None:
    for path, title in SCREENS.items():
        narrow.goto(f"/#{path}")
        expect(narrow.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(narrow.locator("main .spinner")).to_have_count(0)
        expect(narrow.locator(".state.failed")).to_have_count(0)
        for element in ("html", "main"):
            assert narrow.evaluate(f"document.querySelector('{element}').scrollWidth") <= 390, path


def test_every_screen_names_its_controls(page: Page) -> None:
    nameless = """() => [...document.querySelectorAll('button, a[href], input, select, textarea')].filter(e =>
        !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !e.labels?.length).map(e => e.outerHTML)"""
    for path in ("/", "/topics", "/topics/orders", "/topics/payments/messages?more=1", *SCREENS):
        page.goto(f"/#{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("main .spinner")).to_have_count(0)
        assert page.evaluate(nameless) == [], path


def bad_orders(api: Api, topic: str) -> None:
    api("POST", "/topics", {"name": topic, "settings": {"schema": "order", "rejected": "dead-letter"}})
    append(api, topic, [{"key_text": f"k{index}", "value_text": f'{{"order_id": "{index}"}}'} for index in range(3)])


def test_a_dead_letter_is_repaired_and_sent_again(page: Page, api: Api) -> None:
    bad_orders(api, "repaired")
    page.goto("/#/dead-letters/repaired")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody")).to_contain_text("missing required field: quantity")
    page.get_by_role("button", name="Open").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Append this value to repaired").click()
    expect(dialog.get_by_role("alert")).to_contain_text("still does not fit")
    dialog.get_by_label("Value, which you can repair").fill('{"order_id": "0", "quantity": 2}')
    dialog.get_by_role("button", name="Append this value to repaired").click()
    expect(page.locator(".toast")).to_contain_text("the dead letter is gone")
    assert api("GET", "/topics/repaired")["topic"]["records"] == 1


def test_sql_runs_completes_and_looks_into_the_past(page: Page, api: Api) -> None:
    api("POST", "/topics", {"name": "shots"})
    append(api, "shots", [{"value_text": f'{{"points": {index}}}'} for index in range(5)])
    before = api("GET", "/broker")["position"]
    append(api, "shots", [{"value_text": '{"points": 100}'}])
    page.goto("/#/sql")
    editor = page.get_by_label("SQL statement")
    editor.press_sequentially("SELECT COUNT(*) AS n, MAX(points) AS best FROM sho")
    expect(page.get_by_role("option", name="shots")).to_be_visible()
    editor.press("Tab")
    expect(editor).to_have_value("SELECT COUNT(*) AS n, MAX(points) AS best FROM shots")
    editor.press("Control+Enter")
    expect(page.locator("tbody")).to_contain_text("100", timeout=60_000)  # SQL's process starts with the first
    page.goto(f"/#/sql?sql=SELECT+COUNT(*)+AS+n,MAX(offset)+AS+last+FROM+shots&at={before}")
    expect(page.locator(".toolbar")).to_contain_text("as of position")
    expect(page.locator("tbody td").first).to_have_text("5")
    page.get_by_label("As of the log's position").fill(str(before - 2))  # dragged to before they were appended
    expect(page.locator("tbody td").first).to_have_text("0")
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.locator("tbody td").first).to_have_text("6")
    page.get_by_role("button", name="Bars").click()
    expect(page.locator(".chart rect").first).to_be_attached()
    page.get_by_text("History").click()
    expect(page.locator(".history button").first).to_contain_text("SELECT COUNT(*)")


def test_a_link_with_a_statement_that_changes_something_runs_nothing(page: Page, api: Api) -> None:
    api("POST", "/topics", {"name": "untouched"})
    page.goto("/#/sql?sql=INSERT+INTO+untouched+VALUES+(1)")
    expect(page.get_by_label("SQL statement")).to_have_value("INSERT INTO untouched VALUES (1)")
    expect(page.locator("output")).to_contain_text("now")
    page.wait_for_timeout(300)
    expect(page.locator(".state")).to_contain_text("No statement yet")
