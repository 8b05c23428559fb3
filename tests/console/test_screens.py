"""Every screen in a real browser, and what can be done on it: asked once, told exactly, and done by the broker."""

from __future__ import annotations

import re
import socket
import urllib.error
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.console.conftest import PATIENCE
from tests.console.demo import Api, append, encoded

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


def test_a_group_is_moved_after_a_look_at_what_that_means(page: Page, api: Api) -> None:
    api("POST", "/groups/mover/payments/offsets", {"offset": 10})
    page.goto("/#/groups/mover/payments")
    expect(page.locator(".tile").first).to_contain_text("Lag")
    page.get_by_role("button", name="Move…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).select_option("latest")
    expect(dialog).to_contain_text(re.compile(r"partition 0: from 10 to \d+"))
    assert api("GET", "/groups/mover/payments")["partitions"][0]["committed"] == 10  # nothing is done yet
    dialog.get_by_role("button", name="Move the group").click()
    expect(page.locator(".toast")).to_contain_text("mover goes on")
    assert api("GET", "/groups/mover/payments")["lag"] == 0


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


def test_the_dead_letters_that_are_shown_are_purged_and_replayed(page: Page, api: Api) -> None:
    bad_orders(api, "purged")
    page.goto("/#/dead-letters/purged?q=k1&minutes=10")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Purge these…").click()
    expect(page.get_by_role("dialog")).to_contain_text("The 1 dead letter that the list shows are deleted for good")
    page.get_by_role("button", name="Purge 1 dead letter").click()
    expect(page.locator(".toast")).to_contain_text("1 dead letter purged")
    page.get_by_label("Reason, key or value has").fill("")
    expect(page.locator("tbody tr")).to_have_count(2)
    api("PATCH", "/topics/purged", {"schema": None})
    page.get_by_role("button", name="Replay these…").click()
    page.get_by_role("button", name="Replay 2 dead letters").click()
    expect(page.locator(".toast").last).to_contain_text("2 dead letters replayed")
    assert api("GET", "/topics/purged")["topic"]["records"] == 2


def test_a_schema_has_versions_a_diff_and_a_check(page: Page, api: Api) -> None:
    api("POST", "/schemas/person", {"kind": "json", "definition": encoded({"type": "object", "required": ["name"]})})
    page.goto("/#/schemas/person")
    page.get_by_role("button", name="New version").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Definition").fill('{"type": "object", "required": ["name", "age"]}')
    dialog.get_by_role("button", name="Check compatibility").click()
    expect(dialog.get_by_role("status")).to_contain_text("not backward")
    dialog.get_by_label("Definition").fill('{"type": "object"}')
    dialog.get_by_role("button", name="Check compatibility").click()
    expect(dialog.get_by_role("status")).to_contain_text("it could be the next version")
    dialog.get_by_role("button", name="Register the version").click()
    expect(page.get_by_text("version 2").first).to_be_visible()
    page.get_by_label("Compare with").select_option("1")
    expect(page.locator(".diff .removed").filter(has_text="required")).to_have_count(1)


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
    page.goto(f"/#/sql?sql=SELECT+COUNT(*)+AS+n,MAX(points)+AS+best+FROM+shots&at={before}")
    expect(page.locator(".toolbar")).to_contain_text("as of position")
    expect(page.locator("tbody td").first).to_have_text("5")
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


def test_users_keys_roles_lists_and_tenants(page: Page, api: Api) -> None:
    page.goto("/#/access/users")
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("marie")
    dialog.get_by_label("Password").fill("a word of hers")
    dialog.get_by_label("Roles").fill("consumer")
    dialog.get_by_role("button", name="Add the user").click()
    row = page.get_by_role("row").filter(has_text="marie")
    expect(row).to_contain_text("enabled")
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the user").click()
    expect(row).to_have_count(0)
    page.goto("/#/access/keys")
    page.get_by_role("button", name="Add a key").click()
    page.get_by_role("dialog").get_by_label("Name").fill("robot")
    page.get_by_role("button", name="Add the key").click()
    expect(page.locator(".secret span")).not_to_be_empty()
    page.get_by_role("button", name="Close", exact=True).click()
    row = page.get_by_role("row").filter(has_text="robot")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name="Revoke the key").click()
    expect(row).to_contain_text("revoked")
    page.goto("/#/access/tenants")
    page.get_by_role("button", name="Register a tenant").click()
    page.get_by_role("dialog").get_by_label("Name").fill("acme")
    page.get_by_role("button", name="Register the tenant").click()
    page.get_by_role("link", name="acme").click()
    expect(page.get_by_label("Tenant")).to_have_value("acme")
    expect(page.locator(".state")).to_contain_text("No topics yet")
    page.goto("/#/access/tenants")
    page.get_by_role("row").filter(has_text="acme").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("acme")
    page.get_by_role("button", name="Delete the tenant").click()
    expect(page.locator(".toast").last).to_contain_text("acme is deleted")
    assert "acme" not in [each["name"] for each in api("GET", "/tenants")["items"]]


def test_delayed_records_are_called_off_and_cached_values_put(page: Page, api: Api) -> None:
    page.goto("/#/delayed")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Cancel").first.click()
    page.get_by_role("button", name="Cancel the record").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.goto("/#/caches/baskets")
    page.get_by_role("button", name="Put a value").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("fresh")
    dialog.get_by_label("Value").fill('{"a": 1}')
    dialog.get_by_role("button", name="Put the value").click()
    row = page.get_by_role("row").filter(has_text="fresh")
    row.get_by_role("button", name="Open").click()
    expect(page.get_by_role("dialog")).to_contain_text('"a": 1')
    page.keyboard.press("Escape")
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the key").click()
    expect(row).to_have_count(0)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        api("GET", "/caches/baskets/fresh")


def test_a_connection_is_closed(page: Page, broker: str) -> None:
    """Somebody else's: those of the page itself come and go."""
    host, _, port = broker.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE / 1000) as other:
        other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")
        peer = "{}:{}".format(*other.getsockname())
        page.goto("/#/connections")
        row = page.get_by_role("row").filter(has_text=peer)
        expect(row).to_contain_text("http")
        row.get_by_role("button", name="Close").click()
        expect(page.get_by_role("dialog")).to_contain_text("disconnected at once")
        page.get_by_role("button", name="Close the connection").click()
        expect(page.locator(".toast")).to_contain_text(peer)
        while other.recv(65536):
            pass
    expect(row).to_have_count(0)
