"""The frame of the console: the overview, themes, narrow screens, and everything by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.console.conftest import PATIENCE


def test_the_overview_says_what_is_wrong_and_leads_there(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".problems")).to_contain_text("dead letter")
    expect(page.locator(".problems")).to_contain_text("no member reads")
    expect(page.get_by_role("table").first).to_contain_text("rustlog")
    expect(page.locator(".chart .line").first).to_be_attached()
    page.get_by_role("link", name="Look at them").click()
    expect(page).to_have_url(re.compile("#/dead-letters"))
    expect(page.locator("tbody tr").first).to_be_visible()


def test_topics_are_made_and_deleted_after_one_question(page: Page) -> None:
    page.goto("/#/topics")
    page.get_by_role("button", name="New topic").first.click()
    page.get_by_label("Name", exact=True).fill("payments")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("dialog")).to_contain_text("already exists")  # it is there: the dialog stays, and says why
    page.get_by_label("Name", exact=True).fill("fresh")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("heading", name="fresh")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("deleted with all its records")
    page.get_by_role("button", name="Delete the topic").click()
    expect(page.locator(".toast").last).to_contain_text("fresh is deleted")
    expect(page.get_by_role("cell", name="fresh", exact=True)).to_have_count(0)


def test_by_keyboard_only(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    expect(page.get_by_role("link", name="payments", exact=True)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("payments")
    expect(page.get_by_role("link", name="orders", exact=True)).to_have_count(0)
    assert "q=payments" in page.url
    page.get_by_role("link", name="Messages of payments").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".vrow").first).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".detail")).to_be_visible()
    page.get_by_label("Search in this message").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    page.reload()
    expect(page.locator(".vrow").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


SCREENS = ["/", "/topics", "/topics/payments", "/topics/payments/messages"]


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(browser: Browser, broker: str, width: int) -> None:
    context = browser.new_context(base_url=broker, viewport={"width": width, "height": 844}, color_scheme="dark")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    for path in SCREENS:
        page.goto(f"/#{path}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("main .spinner")).to_have_count(0)
        for element in ("html", "main"):
            assert page.evaluate(f"document.querySelector('{element}').scrollWidth") <= width, path
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("button", name="Switch between light and dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    if width < 500:
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Topics").first.click()
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    context.close()


def test_a_hidden_page_asks_nothing(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".tile").first).to_be_visible()
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', {get: () => true});
        document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    page.wait_for_load_state("networkidle")  # what was under way comes to its end
    page.wait_for_timeout(1000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
