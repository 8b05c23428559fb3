"""Records that are in tables alone, in a real browser: their doors, and the typed tables of topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.demo import ORDER_SCHEMA, Api, append, encoded
from tests.launcher import BrokerProcess
from tests.moved import SETTINGS, move_to_tables

from penstock.clients.flymq import Client as FlyMq
from penstock.clients.rustlog import Client as RustLog


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose records are in tables."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    data = tmp_path_factory.mktemp("moved") / "data"
    with BrokerProcess(data, **SETTINGS).ready() as process:
        url = f"http://{process.address('http')}"
        api = Api(url)
        api("POST", "/schemas/order", {"kind": "json", "definition": encoded(ORDER_SCHEMA)})
        api("POST", "/topics", {"name": "sold", "settings": {"schema": "order"}})
        append(api, "sold", [{"value_text": '{"order_id": "first", "quantity": 3}'}])
        with RustLog(*process.endpoint("rustlog")) as first, FlyMq(*process.endpoint("flymq")) as second:
            first.create_topic("old", 1)
            first.produce("old", 0, [b"one"])
            second.produce("old", b"two", None, 0)
        move_to_tables(process, data)
        yield url


def test_the_door_of_records_that_are_in_a_table_alone(page: Page, moved: str) -> None:
    for offset, door in enumerate(("rustlog", "flymq")):
        page.goto(f"{moved}/#/topics/old/messages?open=0:{offset}")
        detail = page.locator(".detail")
        expect(detail).to_contain_text(f"Partition 0, offset {offset}")
        expect(detail.get_by_text("Came by").locator("xpath=following-sibling::*[1]")).to_have_text(door)
    page.goto(f"{moved}/#/topics/old/messages?where=_door%20%3D%20%27flymq%27")
    expect(page.locator(".progress")).to_contain_text("1 message found in 2 looked at")


def test_the_typed_table_of_a_topic_is_offered_and_read(page: Page, moved: str) -> None:
    page.goto(f"{moved}/#/topics/sold")
    page.get_by_role("link", name="Query its typed table").click()
    expect(page.locator("table")).to_contain_text("first")
    expect(page.locator("table")).to_contain_text("_schema_version")
    page.goto(f"{moved}/#/sql")
    area = page.get_by_label("SQL statement")
    area.click()
    area.press_sequentially("SELECT * FROM sold_")
    expect(page.get_by_role("option", name="sold_typed")).to_be_visible()
