"""The console of a broker with security on: login and logout, what others may not do, and pages of other sites."""

from __future__ import annotations

import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.demo import Api
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with security on, an administrator and somebody who may only read."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    data = tmp_path_factory.mktemp("console") / "data"
    add_user(data, "ada", "admin")
    with BrokerProcess(data, PENSTOCK_SECURITY__MODE="on").ready() as process:
        url = f"http://{process.address('http')}"
        api = Api(url, ("ada", "secret"))
        api("POST", "/users", {"name": "bob", "password": "secret", "roles": ["consumer"]})
        api("POST", "/topics", {"name": "orders"})
        api("POST", "/topics/orders/records", {"records": [{"value_text": "one"}]})
        yield url


def add_user(data: Path, name: str, role: str) -> None:
    command = [*COMMAND, "users", "add", name, "--role", role, "--password-stdin", "--data-dir", str(data)]
    subprocess.run(command, input="secret\n", env=WITHOUT_SETTINGS, check=True, text=True, capture_output=True)


def log_in(page: Page, name: str, password: str = "secret") -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_login_leads_to_where_one_wanted_and_logout_ends_it(page: Page, context: BrowserContext) -> None:
    page.goto("/#/topics/orders/messages")
    expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()
    log_in(page, "ada", "wrong")
    expect(page.get_by_role("alert")).not_to_be_empty()
    log_in(page, "ada")
    expect(page.locator(".vrow")).to_have_count(1)
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert (
        page.evaluate("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)").find("secret")
        < 0
    )
    page.get_by_role("button", name="Log out ada").click()
    expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()
    page.goto("/#/topics")
    page.reload()
    expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()


def test_who_may_only_read_is_told_so(page: Page) -> None:
    page.goto("/#/access/users")
    log_in(page, "bob")
    expect(page.locator(".state.failed")).to_contain_text("You may not see this")
    page.goto("/#/")
    expect(page.locator(".card").first).to_contain_text("No figures for you")
    page.goto("/#/topics/orders")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete the topic").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()  # and the topic stays
    page.goto("/#/topics/orders/messages")
    expect(page.locator(".vrow")).to_have_count(1)


def test_what_is_done_is_audited(page: Page) -> None:
    page.goto("/#/topics")
    log_in(page, "ada")
    page.get_by_role("button", name="New topic").first.click()
    page.get_by_label("Name", exact=True).fill("audited")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("heading", name="audited")).to_be_visible()
    page.goto("/#/audit?types=topic")
    expect(page.get_by_role("row").filter(has_text="topic.create").filter(has_text="audited")).to_contain_text("ada")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator(".toast.ok").last).to_contain_text("nothing was changed or removed")


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of another site that frames the console and sends it a form."""

    broker = ""

    def do_GET(self) -> None:
        body = f"""<iframe id=frame src="{self.broker}/"></iframe>
        <form method=post enctype=text/plain action="{self.broker}/api/v1/topics" target=out>
        <input name='{{"name":"stolen","partitions":1,"x":"' value='"}}'>
        <button>go</button></form><iframe name=out></iframe>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_pages_of_other_sites_can_neither_frame_it_nor_act_through_it(browser: Browser, broker: str) -> None:
    _Elsewhere.broker = broker
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{broker}/")
    log_in(page, "ada")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    answers: list[int] = []

    def is_attempt(reply: Response) -> bool:  # the overview itself asks for topics by GET, perhaps at the last moment
        return "/api/v1/topics" in reply.url and reply.request.method == "POST"

    page.on("response", lambda reply: answers.append(reply.status) if is_attempt(reply) else None)
    page.goto(f"http://localhost:{server.server_port}/")  # another site than 127.0.0.1
    expect(page.locator("#frame")).to_be_attached()
    assert page.frame_locator("#frame").locator(".shell, .login, .boot").count() == 0
    assert any("frame-ancestors" in text or "X-Frame-Options" in text for text in refused), refused
    with page.expect_response(is_attempt):
        page.get_by_role("button", name="go").click()
    assert answers and all(status in (401, 403, 415) for status in answers)
    attempt = """async (url) => { try { await fetch(url, {method: 'POST', credentials: 'include',
        body: '{"name":"stolen"}', headers: {'Content-Type': 'application/json'}}); return 'sent' }
        catch (error) { return 'refused' } }"""
    assert page.evaluate(attempt, f"{broker}/api/v1/topics") == "refused"
    names = [each["name"] for each in Api(broker, ("ada", "secret"))("GET", "/topics")["items"]]
    assert "stolen" not in names
    context.close()
    server.shutdown()
    server.server_close()
