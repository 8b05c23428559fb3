"""A browser for each module of tests, Debian's Chromium driven by Playwright, and one broker for all of them, a real
process. Tests write to topics of their own, and read the demo data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.console.demo import Api, fill
from tests.launcher import BrokerProcess

if TYPE_CHECKING:  # a conftest is imported for tests without a browser, too
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
MISSING = "no chromium: apt-get install chromium"
PATIENCE = 40_000  # ms for what takes a moment, on a machine that others use too


PLAIN = ("--disable-gpu", "--disable-gpu-compositing", "--in-process-gpu", "--disable-extensions")
"""Flags without which pages look and work the same, and take a seventh more processor time."""


def launch(playwright: Playwright) -> Browser:
    """Chromium, in which a page can say how much memory it has."""
    sandbox = [] if os.getuid() else ["--no-sandbox"]  # which does not work for root
    flags = ["--enable-precise-memory-info", "--js-flags=--expose-gc", *PLAIN, *sandbox]
    return playwright.chromium.launch(executable_path=CHROMIUM, args=flags)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with demo data and without security."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with BrokerProcess(tmp_path_factory.mktemp("console")).ready() as process:
        url = f"http://{process.address('http')}"
        fill(Api(url), 200)
        yield url


@pytest.fixture(scope="session")
def api(broker: str) -> Api:
    return Api(broker)


@pytest.fixture(scope="module")  # not longer: while it is there, no other test of the process may run an event loop
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared_context(browser: Browser, broker: str) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=broker, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def context(shared_context: BrowserContext, broker: str) -> Iterator[BrowserContext]:
    """Without anything that a page has stored, or was allowed. A new one takes as long as the whole of most tests."""
    yield shared_context
    pages = shared_context.pages or [shared_context.new_page()]
    session = shared_context.new_cdp_session(pages[0])
    session.send("Storage.clearDataForOrigin", {"origin": broker, "storageTypes": "all"})
    for page in pages:
        page.close()
    shared_context.clear_cookies()
    shared_context.clear_permissions()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that may not complain: what breaks the policy, or throws, fails the test."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if "Security Policy" in message.text else None)
    yield page
    assert complaints == []
