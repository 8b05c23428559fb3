"""Messages in a real browser: looking back, searching, following, and records that would do harm."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.console.demo import Api, append

HOSTILE = '<img src=x onerror="window.harm=1"><script>window.harm=1</script>'
EVIL = "<img src=x onerror=window.harm=1>"
DEEP = "[" * 5000 + "]" * 5000


@pytest.fixture(scope="module", autouse=True)
def hostile(api: Api) -> None:
    api("POST", "/topics", {"name": EVIL})
    headers = [{"name": HOSTILE, "text": HOSTILE}]
    texts = [HOSTILE, json.dumps({HOSTILE: HOSTILE}), DEEP, json.dumps({"wide": ["x" * 50] * 20_000})]
    append(api, quote(EVIL, safe=""), [{"key_text": HOSTILE, "value_text": text, "headers": headers} for text in texts])


def rows(page: Page) -> int:
    return int(page.locator(".vlist").get_attribute("aria-rowcount") or 0)


def test_newest_first_and_the_broker_searches(page: Page) -> None:
    page.goto("/#/topics/payments/messages")
    expect(page.locator(".progress")).to_contain_text("100 messages shown")
    expect(page.locator(".vrow").first).to_contain_text("0:99")
    page.get_by_label("Search in keys, values").fill("card_declined")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".progress")).to_contain_text("found in 100 looked at")
    found = rows(page)
    assert 0 < found < 100
    assert "text=card_declined" in page.url
    page.reload()
    expect(page.locator(".progress")).to_contain_text(f"{found} messages found")


def test_filters_by_header_and_json_path(page: Page) -> None:
    page.goto("/#/topics/payments/messages?path=%24.status%3Dfailed&header=source%3Dcheckout")
    expect(page.locator(".progress")).to_contain_text("found in 100 looked at")
    page.locator(".vrow").first.click()
    expect(page.locator(".detail")).to_contain_text('"failed"')
    expect(page.locator(".detail")).to_contain_text("checkout")


def test_a_message_is_searched_and_shown_as_text_and_hex(page: Page) -> None:
    page.goto("/#/topics/payments/messages?open=0:3")
    detail = page.locator(".detail")
    expect(detail).to_contain_text("Partition 0, offset 3")
    expect(detail.get_by_text("Came by").locator("xpath=following-sibling::*[1]")).to_have_text("http")
    page.get_by_role("button", name="Hex").click()
    expect(detail.locator("pre.hex")).to_contain_text("000000  7b 22")
    page.get_by_role("button", name="Text").click()
    page.get_by_label("Search in this message").fill("payment_id")
    expect(detail.locator("mark.now")).to_have_text("payment_id")
    assert "as=text" in page.url
    assert "open=0%3A3" in page.url


def test_numbers_keep_all_their_digits(page: Page, api: Api) -> None:
    api("POST", "/topics", {"name": "numbers"})
    append(api, "numbers", [{"value_text": '{"id": 12345678901234567890, "ratio": 1.10}'}])
    page.goto("/#/topics/numbers/messages?open=0:0")
    expect(page.locator(".tree")).to_contain_text("12345678901234567890")


def test_the_tail_shows_every_message_of_a_burst_and_keeps_them(page: Page, api: Api) -> None:
    api("POST", "/topics", {"name": "burst"})
    page.goto("/#/topics/burst/messages?live=1")
    expect(page.locator(".progress")).to_contain_text("live")
    append(api, "burst", [{"value_text": f"m{index}"} for index in range(3000)])
    expect(page.locator(".progress")).to_contain_text("3,000 messages since the tail began")
    assert rows(page) == 3000
    assert page.locator(".vrow").count() < 100
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".vrow").first).to_contain_text("m2999")
    assert rows(page) == 3000


def test_hostile_records_do_nothing(page: Page) -> None:
    page.goto("/#/topics")
    expect(page.get_by_role("link", name=EVIL, exact=True)).to_be_visible()
    address = f"/#/topics/{quote(EVIL, safe='')}"
    page.goto(address)
    expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
    page.goto(f"{address}/messages")
    expect(page.locator(".vrow")).to_have_count(4)
    for offset in range(4):
        page.goto(f"{address}/messages?open=0:{offset}")
        expect(page.locator(".detail h2")).to_have_text(f"Partition 0, offset {offset}")
        expect(page.locator(".detail")).to_contain_text("onerror")
    assert page.evaluate("window.harm") is None
    assert page.locator("main img, main script").count() == 0


def test_producing_asks_and_says_where_the_record_is(page: Page, api: Api) -> None:
    api("POST", "/topics", {"name": "inbox"})
    page.goto("/#/topics/inbox/messages")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("k")
    dialog.get_by_label("Value", exact=True).fill('{"a": 1}')
    dialog.get_by_role("button", name="Append 1 record to inbox").click()
    expect(page.locator(".toast")).to_contain_text("partition 0 at offset 0")
    expect(page.locator(".vrow")).to_have_count(1)
    page.get_by_role("button", name="Replay…").click()
    page.get_by_role("button", name="Append 1 record").click()
    expect(page.locator(".toast").last).to_contain_text("1 record appended to inbox")
    assert api("GET", "/topics/inbox")["topic"]["records"] == 2


def test_export_is_exactly_what_the_list_shows(page: Page) -> None:
    page.goto("/#/topics/payments/messages?path=%24.status%3Dfailed")
    expect(page.locator(".progress")).to_contain_text("found in 100 looked at")
    shown = rows(page)
    page.get_by_role("button", name="Export…").click()
    with page.expect_download() as downloading:
        page.get_by_role("button", name=f"Download {shown} messages").click()
    lines = downloading.value.path().read_text().splitlines()
    assert len(lines) == shown
    assert all(json.loads(json.loads(line)["value_text"])["status"] == "failed" for line in lines)


FIELDS = [{"name": "city", "type": "string"}, {"name": "degrees", "type": "int"}]
WEATHER = {
    "avro": (json.dumps({"type": "record", "name": "Weather", "fields": FIELDS}), b"\x08Oslo\x09"),
    "protobuf": (
        'syntax = "proto3"; message Weather { string city = 1; sint32 degrees = 2; }',
        b"\x0a\x04Oslo\x10\x09",
    ),
}


@pytest.mark.parametrize("kind", WEATHER)
def test_a_value_is_decoded_by_the_schema_of_the_topic(page: Page, api: Api, kind: str) -> None:
    definition, value = WEATHER[kind]
    name = f"weather-{kind}"
    api("POST", f"/schemas/{name}", {"kind": kind, "definition": base64.b64encode(definition.encode()).decode()})
    api("POST", "/topics", {"name": name, "settings": {"schema": name}})
    append(api, name, [{"value": base64.b64encode(value).decode()}])
    page.goto(f"/#/topics/{name}/messages?open=0:0")
    expect(page.locator(".detail")).to_contain_text(f"Decoded by version 1 of the topic's schema ({kind})")
    expect(page.locator(".tree")).to_contain_text('"Oslo"')
    expect(page.locator(".tree")).to_contain_text("-5")


def test_times_are_to_the_millisecond_in_the_zone_of_the_viewer(browser: Browser, broker: str, api: Api) -> None:
    api("POST", "/topics", {"name": "clock"})
    append(api, "clock", [{"value_text": "tick"}])
    stamp = api("GET", "/topics/clock/records?start=earliest")["records"][0]["timestamp"]
    context = browser.new_context(base_url=broker, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto("/#/topics/clock/messages")
    there = datetime.fromtimestamp(stamp // 1000 / 1000, ZoneInfo("Asia/Kolkata"))
    due = there.strftime("%Y-%m-%d %H:%M:%S.") + f"{stamp // 1000 % 1000:03d}"
    expect(page.locator(".vrow .at").first).to_have_text(due)
    utc = datetime.fromtimestamp(stamp // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp % 1_000_000:06d}Z"
    expect(page.locator(".vrow .at").first).to_have_attribute("title", utc)
    context.close()


def test_a_value_is_copied_and_downloaded(page: Page, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/#/topics/payments/messages?open=0:3")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download the value").click()
    assert downloading.value.suggested_filename == "payments-0-3.json"
    text = downloading.value.path().read_text()
    page.get_by_role("button", name="Copy the value").click()
    expect(page.locator(".toast").last).to_contain_text("Value copied")
    assert page.evaluate("navigator.clipboard.readText()") == text
    page.get_by_role("button", name="Copy a link to this message").click()
    expect(page.locator(".toast").last).to_contain_text("Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_time_travel_and_a_condition_of_sql(page: Page, api: Api) -> None:
    page.goto("/#/topics/payments/messages?from=offset&offset=40")
    expect(page.locator(".vrow").first).to_contain_text("0:40")
    expect(page.locator(".progress")).to_contain_text("60 messages shown")
    record = api("GET", "/topics/payments/records?offset=70&limit=1")["records"][0]
    page.goto(f"/#/topics/payments/messages?from=position&position={record['position']}")
    expect(page.locator(".vrow").first).to_contain_text("0:70")
    page.get_by_label("Begin").select_option("oldest")
    expect(page.locator(".vrow").first).to_contain_text("0:0")
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("SQL condition").fill("status = 'failed' AND amount > 100")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".progress")).to_contain_text("found in 100 looked at")
    expected = api("GET", "/topics/payments/records?limit=1000&where=status%3D%27failed%27%20AND%20amount%3E100")[
        "records"
    ]
    assert rows(page) == len(expected)
    page.get_by_label("SQL condition").fill("status = = 1")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".progress .problem")).not_to_be_empty()


def test_a_filter_is_saved_and_forgotten(page: Page) -> None:
    page.goto("/#/topics/payments/messages?path=%24.status%3Dfailed")
    page.get_by_role("button", name="Save this filter…").click()
    page.get_by_role("dialog").get_by_label("Name").fill("failures")
    page.get_by_role("button", name="Save", exact=True).click()
    page.goto("/#/topics/payments/messages?more=1")
    page.get_by_role("link", name="failures").click()
    expect(page.get_by_label("JSON path")).to_have_value("$.status=failed")
    page.get_by_role("button", name="Forget the filter failures").click()
    expect(page.get_by_role("link", name="failures")).to_have_count(0)


def test_two_windows_follow_one_topic(page: Page, context: BrowserContext, api: Api) -> None:
    api("POST", "/topics", {"name": "shared"})
    other = context.new_page()
    for each in (page, other):
        each.goto("/#/topics/shared/messages?live=1")
        expect(each.locator(".progress")).to_contain_text("live")
    append(api, "shared", [{"value_text": "hello"}])
    for each in (page, other):
        expect(each.locator(".vrow")).to_contain_text("hello")


def test_a_tail_too_many_is_told_and_nothing_hangs(page: Page, context: BrowserContext, api: Api) -> None:
    """A browser opens six connections to one broker; four tails leave room for everything else."""
    api("POST", "/topics", {"name": "crowd"})
    for _ in range(4):
        other = context.new_page()
        other.goto("/#/topics/crowd/messages?live=1")
        expect(other.locator(".progress")).to_contain_text("live")
    page.goto("/#/topics/crowd/messages?live=1")
    expect(page.locator(".progress .problem")).to_contain_text("4 other windows of this browser follow live already")
    page.goto("/#/topics")
    expect(page.get_by_role("link", name="crowd", exact=True)).to_be_visible()
    other.get_by_role("button", name="Stop").click()
    page.goto("/#/topics/crowd/messages?live=1")
    append(api, "crowd", [{"value_text": "hello"}])
    expect(page.locator(".progress")).to_contain_text("live")
    append(api, "crowd", [{"value_text": "world"}])
    expect(page.locator(".vrow").first).to_contain_text("world")


def test_a_search_is_cancelled_and_gone_on_with(page: Page) -> None:
    page.route("**/records?*text=settled*", lambda _: None)  # as if the broker had very much to look through
    page.goto("/#/topics/payments/messages?text=settled")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".progress")).to_contain_text("0 messages found")
    page.unroute_all()
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".progress")).to_contain_text("found in 100 looked at")
