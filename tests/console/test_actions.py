"""Everything that the console can change, with security off and on: asked once, told exactly, done by the broker, and
in the audit log. `ACTIONS` is the table of it: a request of the console's source that no row tries fails a test."""

from __future__ import annotations

import re
import signal
import socket
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Response, Route, expect
from tests.console.conftest import CHROMIUM, MISSING, PATIENCE
from tests.console.demo import Api, append, encoded
from tests.console.pipeline import running_pipeline
from tests.console.test_login import add_user, log_in
from tests.launcher import BrokerProcess

from penstock.clients import blipmq, flymq

ROOT = Path(__file__).parents[2] / "src" / "penstock" / "admin" / "console"
CHANGES_NOTHING = re.compile(r"/(compatibility|decode|sql|verify)$")
ADA = ("ada", "secret")


def change_of(request: Request) -> str:
    """The path below the API of a request that changes something; else nothing."""
    path = request.url.partition("/api/v1")[2].partition("?")[0]
    dry = '"dry_run":true' in (request.post_data or "")
    return "" if request.method == "GET" or dry or CHANGES_NOTHING.search(path) else path


class Scene:
    """A broker, and a page of its console that an administrator looks at."""

    def __init__(self, broker: BrokerProcess, page: Page, data: Path, login: tuple[str, str] | None) -> None:
        self.broker = broker
        self.page = page
        self.data = data
        self.login = login
        self.api = Api(f"http://{broker.address('http')}", login)
        self.changes: list[tuple[str, str]] = []
        self.answers: list[int] = []  # to those
        page.on("request", self._seen)
        page.on("response", self._answered)

    def _seen(self, request: Request) -> None:
        if path := change_of(request):
            self.changes.append((request.method, path))

    def _answered(self, response: Response) -> None:
        if change_of(response.request):
            self.answers.append(response.status)

    def open(self, address: str) -> None:
        self.page.goto(f"/#{address}")
        if self.page.get_by_role("dialog").count():  # of a test that failed
            self.page.reload()
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()

    def row(self, text: str) -> Locator:
        return self.page.get_by_role("row").filter(has=self.page.get_by_text(text, exact=True))

    def ask(self, button: str, within: Locator | None = None) -> Locator:
        """The question that a button asks; nothing is done yet."""
        self.changes.clear()
        self.answers.clear()
        (within or self.page).get_by_role("button", name=button, exact=True).first.click()
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_have_count(1)
        assert self.changes == []
        return dialog

    def fill(self, dialog: Locator, **fields: str) -> None:
        for label, text in fields.items():
            dialog.get_by_label(label.replace("_", " "), exact=True).fill(text)

    def do(self, dialog: Locator, action: str, *expected: tuple[str, str], then: str = "") -> None:
        """Say yes, once: these requests change something, and no others. `then` is the address that the page goes to
        afterwards by itself, if it does."""
        dialog.get_by_role("button", name=action, exact=True).click()
        self.until(lambda: len(self.answers) >= len(expected), lambda: f"only {self.changes} of {expected}")
        assert self.changes == list(expected)
        assert all(200 <= status < 300 for status in self.answers), dialog.get_by_role("alert").inner_text()
        if then:
            expect(self.page).to_have_url(re.compile(rf"#{re.escape(then)}(\?.*)?$"))

    def until(self, is_so: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Wait for what follows from a click, while the page goes on."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not is_so():
            assert time.monotonic() < deadline, otherwise()
            self.page.wait_for_timeout(50)

    def audited(self, kind: str, resource: str, tenant: str = "default") -> None:
        """The audit log says who did it."""

        def events() -> list[Any]:
            found: list[Any] = self.api("GET", f"/audit?types={kind}&limit=1000&tenant={tenant}")["events"]
            return [each for each in found if resource in each["resource"] and each["result"] == "success"]

        self.until(lambda: bool(events()), lambda: f"no {kind} of {resource}")
        assert events()[0]["user"] == ("user:ada" if self.login else "anonymous")

    def missing(self, path: str) -> None:
        def is_missing() -> bool:
            try:
                self.api("GET", path)
            except urllib.error.HTTPError as error:
                return error.code == 404
            return False

        self.until(is_missing, lambda: f"{path} is still there")

    def names(self, path: str, name: str = "name") -> list[Any]:
        return [each[name] for each in self.api("GET", path)["items"]]

    def key(self) -> str:
        """The secret of a key that may do everything."""
        secret: str = self.api("POST", "/keys", {"name": f"k{time.monotonic_ns()}", "permissions": ["admin"]})["secret"]
        return secret


@pytest.fixture(scope="module", params=["off", "on"])
def scene(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    data = tmp_path_factory.mktemp("actions") / "data"
    is_on = request.param == "on"
    if is_on:
        add_user(data, "ada", "admin")
    settings = {"PENSTOCK_SECURITY__MODE": request.param, "PENSTOCK_SECURITY__AUDIT": "on"}
    with BrokerProcess(data, **settings).ready() as broker:
        context = browser.new_context(
            base_url=f"http://{broker.address('http')}", viewport={"width": 1440, "height": 900}
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("/")
        if is_on:
            log_in(page, *ADA)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        yield Scene(broker, page, data, ADA if is_on else None)
        context.close()


@pytest.fixture
def topic(scene: Scene, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    name = re.sub(r"\W", "-", request.node.originalname.removeprefix("test_"))[:40]
    scene.api("POST", "/topics", {"name": name})
    return name


# -- topics and records


def test_create_a_topic(scene: Scene) -> None:
    scene.open("/topics")
    dialog = scene.ask("New topic")
    scene.fill(dialog, Name="made", Partitions="3", Retention_in_hours="2")
    scene.do(dialog, "Create the topic", ("POST", "/topics"), then="/topics/made")
    made = scene.api("GET", "/topics/made")
    assert (made["topic"]["partitions"], made["settings"]["retention_seconds"]) == (3, 7200)
    scene.audited("topic.create", "made")


def test_change_settings(scene: Scene, topic: str) -> None:
    scene.open(f"/topics/{topic}")
    dialog = scene.ask("Change settings")
    expect(dialog).to_contain_text(f"Settings of {topic}")
    scene.fill(dialog, Retention_in_hours="5", Records_expire_after_seconds="60")
    scene.do(dialog, "Change the settings", ("PATCH", f"/topics/{topic}"))
    settings = scene.api("GET", f"/topics/{topic}")["settings"]
    assert (settings["retention_seconds"], settings["expiry_seconds"]) == (18_000, 60)
    scene.audited("topic.alter", topic)


def test_delete_a_topic(scene: Scene, topic: str) -> None:
    scene.open(f"/topics/{topic}")
    dialog = scene.ask("Delete")
    expect(dialog).to_contain_text(f"The topic {topic} is deleted with all its records and its table.")
    scene.do(dialog, "Delete the topic", ("DELETE", f"/topics/{topic}"), then="/topics")
    scene.missing(f"/topics/{topic}")
    scene.audited("topic.delete", topic)


def test_produce(scene: Scene, topic: str) -> None:
    scene.open(f"/topics/{topic}/messages")
    dialog = scene.ask("Produce")
    scene.fill(dialog, Key="k", Value='{"a": 1}')
    dialog.get_by_role("button", name="Add a header").click()
    scene.fill(dialog, Header_name="trace", Header_value="7")
    scene.do(dialog, f"Append 1 record to {topic}", ("POST", f"/topics/{topic}/records"))
    (record,) = scene.api("GET", f"/topics/{topic}/records?start=earliest")["records"]
    assert (record["key_text"], record["value_text"], record["door"]) == ("k", '{"a": 1}', "http")
    assert [(each["name"], each["text"]) for each in record["headers"]] == [("trace", "7")]
    scene.audited("record.produce", topic)


def test_replay_to_another_topic(scene: Scene, topic: str) -> None:
    scene.api("POST", "/topics", {"name": "replayed"})
    append(scene.api, topic, [{"key_text": "k", "value_text": text} for text in ("one", "two")])
    scene.open(f"/topics/{topic}/messages")
    expect(scene.page.locator(".vrow")).to_have_count(2)
    dialog = scene.ask("Replay…")
    expect(dialog).to_contain_text("Copies of the 2 records shown, with key, value and headers as they are")
    scene.fill(dialog, To_the_topic="replayed")
    scene.do(dialog, "Append 2 records", ("POST", "/topics/replayed/records"))
    found = scene.api("GET", "/topics/replayed/records?start=earliest")["records"]
    assert [each["value_text"] for each in found] == ["one", "two"]
    scene.audited("record.produce", "replayed")


# -- delivery


def test_move_a_group(scene: Scene, topic: str) -> None:
    append(scene.api, topic, [{"value_text": "x"}] * 5)
    scene.api("POST", f"/groups/mover/{topic}/offsets", {"offset": 1})
    scene.open(f"/groups/mover/{topic}")
    dialog = scene.ask("Move…")
    dialog.get_by_label("To", exact=True).select_option("latest")
    expect(dialog).to_contain_text("partition 0: from 1 to 5")
    scene.do(dialog, "Move the group", ("POST", f"/groups/mover/{topic}/offsets"))
    assert scene.api("GET", f"/groups/mover/{topic}")["lag"] == 0
    scene.audited("group.reset", "mover")


def test_delete_a_group(scene: Scene, topic: str) -> None:
    scene.api("POST", f"/groups/leaver/{topic}/offsets", {"offset": 0})
    scene.open(f"/groups/leaver/{topic}")
    dialog = scene.ask("Delete")
    expect(dialog).to_contain_text(f"The offsets of leaver in {topic} are forgotten.")
    scene.do(dialog, "Delete the group", ("DELETE", f"/groups/leaver/{topic}"), then="/groups")
    assert "leaver" not in scene.names("/groups", "group")
    scene.audited("group.delete", "leaver")


def test_delete_a_queue(scene: Scene, topic: str) -> None:
    with blipmq.Client(*scene.broker.endpoint("blipmq"), key=scene.key()) as worker:
        worker.subscribe(topic)
        (queue,) = [each for each in scene.api("GET", "/queues")["items"] if each["topic"] == topic]
        scene.open("/queues")
        dialog = scene.ask("Delete", scene.row(topic))
        expect(dialog).to_contain_text(f"Queue {queue['id']} of {topic} ends for whoever reads it.")
        scene.do(dialog, "Delete the queue", ("DELETE", f"/queues/{queue['id']}"))
        assert topic not in scene.names("/queues", "topic")
    scene.audited("queue.delete", str(queue["id"]))


def letters(scene: Scene, topic: str) -> str:
    """Three dead letters of a topic whose schema wants a quantity."""
    schema = encoded({"type": "object", "required": ["quantity"]})
    scene.api("POST", f"/schemas/{topic}", {"kind": "json", "definition": schema})
    scene.api("PATCH", f"/topics/{topic}", {"schema": topic, "rejected": "dead-letter"})
    append(scene.api, topic, [{"key_text": f"k{index}", "value_text": f'{{"id": {index}}}'} for index in range(3)])
    return f"/topics/{topic}/dead-letters"


def test_repair_a_dead_letter(scene: Scene, topic: str) -> None:
    where = letters(scene, topic)
    scene.open(f"/dead-letters/{topic}")
    dialog = scene.ask("Open", scene.page.get_by_role("row").filter(has_text="k0"))
    expect(dialog).to_contain_text("missing required field: quantity")
    expect(dialog).to_contain_text("Appending sends what stands here, with the same key and headers, and deletes")
    scene.fill(dialog, **{"Value, which you can repair": '{"id": 0, "quantity": 2}'})
    (first,) = [each for each in scene.api("GET", where)["items"] if each["key_text"] == "k0"]
    appended, removed = ("POST", f"/topics/{topic}/records"), ("DELETE", f"{where}/{first['offset']}")
    scene.do(dialog, f"Append this value to {topic}", appended, removed)
    assert len(scene.api("GET", where)["items"]) == 2
    (record,) = scene.api("GET", f"/topics/{topic}/records?start=earliest")["records"]
    assert record["value_text"] == '{"id": 0, "quantity": 2}'
    scene.audited("dlq.purge", topic)


def test_replay_one_dead_letter(scene: Scene, topic: str) -> None:
    where = letters(scene, topic)
    scene.api("PATCH", f"/topics/{topic}", {"schema": None})
    (one,) = [each for each in scene.api("GET", where)["items"] if each["key_text"] == "k1"]
    scene.open(f"/dead-letters/{topic}")
    dialog = scene.ask("Replay", scene.page.get_by_role("row").filter(has_text="k1"))
    expect(dialog).to_contain_text(f"It is appended to {topic} again as it is, and is no dead letter any more.")
    scene.do(dialog, "Replay 1 dead letter", ("POST", f"{where}/{one['offset']}/replay"))
    assert scene.api("GET", f"/topics/{topic}")["topic"]["records"] == 1
    scene.audited("dlq.replay", topic)


def test_replay_the_dead_letters_that_are_shown(scene: Scene, topic: str) -> None:
    where = letters(scene, topic)
    scene.api("PATCH", f"/topics/{topic}", {"schema": None})
    scene.open(f"/dead-letters/{topic}?q=k2&minutes=10")
    expect(scene.page.locator("tbody tr")).to_have_count(1)
    dialog = scene.ask("Replay these…")
    expect(dialog).to_contain_text(f"The 1 dead letter that the list shows is appended to {topic} again")
    scene.do(dialog, "Replay 1 dead letter", ("POST", f"{where}/replay"))
    expect(scene.page.locator(".toast").last).to_contain_text("1 dead letter replayed")
    assert [each["key_text"] for each in scene.api("GET", where)["items"]] == ["k0", "k1"]
    scene.audited("dlq.replay", topic)


def test_purge_the_dead_letters_that_are_shown(scene: Scene, topic: str) -> None:
    where = letters(scene, topic)
    scene.open(f"/dead-letters/{topic}?q=k1")
    expect(scene.page.locator("tbody tr")).to_have_count(1)
    dialog = scene.ask("Purge these…")
    expect(dialog).to_contain_text("The 1 dead letter that the list shows is deleted for good")
    scene.do(dialog, "Purge 1 dead letter", ("POST", f"{where}/purge"))
    expect(scene.page.locator(".toast").last).to_contain_text("1 dead letter purged")
    assert [each["key_text"] for each in scene.api("GET", where)["items"]] == ["k0", "k2"]
    scene.audited("dlq.purge", topic)


def test_cancel_a_delayed_record(scene: Scene, topic: str) -> None:
    record = {"value_text": "later", "delay_ms": 3_600_000}
    number = scene.api("POST", f"/topics/{topic}/records", {"records": [record]})["records"][0]["delayed"]
    scene.open("/delayed")
    dialog = scene.ask("Cancel", scene.row(topic))
    expect(dialog).to_contain_text(f"The record that would appear in {topic} at ")
    scene.do(dialog, "Cancel the record", ("DELETE", f"/delayed/{number}"))
    assert number not in scene.names("/delayed", "id")
    scene.audited("delayed.cancel", str(number))


def test_roll_a_transaction_back(scene: Scene, topic: str) -> None:
    with flymq.Client(*scene.broker.endpoint("flymq")) as client:
        if scene.login:
            client.authenticate(*scene.login)
        transaction = client.transaction()
        transaction.__enter__()
        transaction.produce(topic, b"never seen")
        (found,) = [each for each in scene.api("GET", "/transactions")["items"] if topic in each["topics"]]
        scene.open("/transactions")
        dialog = scene.ask("Roll back", scene.row(found["id"]))
        expect(dialog).to_contain_text("its 1 record will never be seen by anybody")
        scene.do(dialog, "Roll back", ("DELETE", f"/transactions/{found['id']}"))
        assert found["id"] not in scene.names("/transactions", "id")
    assert scene.api("GET", f"/topics/{topic}")["topic"]["records"] == 0
    scene.audited("transaction.abort", found["id"])


def test_put_and_remove_a_cached_value(scene: Scene) -> None:
    scene.api("PUT", "/caches/baskets/old", {"text": "1"})
    scene.open("/caches/baskets")
    dialog = scene.ask("Put a value")
    expect(dialog).to_contain_text("What is there under this key is replaced.")
    scene.fill(dialog, Key="fresh", Value='{"a": 1}', Lives_for_seconds="600")
    scene.do(dialog, "Put the value", ("PUT", "/caches/baskets/fresh"))
    assert scene.api("GET", "/caches/baskets/fresh")["text"] == '{"a": 1}'
    scene.audited("cache.put", "fresh")
    dialog = scene.ask("Remove", scene.row("fresh"))
    expect(dialog).to_contain_text("The key fresh and its value are removed from baskets.")
    scene.do(dialog, "Remove the key", ("DELETE", "/caches/baskets/fresh"))
    scene.missing("/caches/baskets/fresh")
    scene.audited("cache.delete", "fresh")


# -- schemas


def test_register_a_schema_and_its_next_version(scene: Scene) -> None:
    scene.open("/schemas")
    dialog = scene.ask("Register a schema")
    scene.fill(dialog, Name="person", Definition='{"type": "object", "required": ["name"]}')
    scene.do(dialog, "Register the version", ("POST", "/schemas/person"), then="/schemas/person")
    scene.audited("schema.register", "person")
    expect(scene.page.get_by_role("heading", name="person", level=1)).to_be_visible()
    dialog = scene.ask("New version")
    scene.fill(dialog, Definition='{"type": "object", "required": ["name", "age"]}')
    dialog.get_by_role("button", name="Check compatibility").click()
    expect(dialog.get_by_role("status")).to_contain_text("not backward")
    scene.fill(dialog, Definition='{"type": "object"}')
    dialog.get_by_role("button", name="Check compatibility").click()
    expect(dialog.get_by_role("status")).to_contain_text("it could be the next version")
    scene.do(dialog, "Register the version", ("POST", "/schemas/person"), then="/schemas/person")
    assert scene.names("/schemas/person", "version") == [1, 2]
    scene.page.get_by_label("Compare with").select_option("1")
    expect(scene.page.locator(".diff .removed").filter(has_text="required")).to_have_count(1)


def test_change_the_compatibility_of_a_schema(scene: Scene) -> None:
    scene.api("POST", "/schemas/loose", {"kind": "json", "definition": encoded({"type": "object"})})
    scene.open("/schemas/loose")
    dialog = scene.ask("Compatibility")
    dialog.get_by_role("combobox").select_option("full")
    scene.do(dialog, "Change the compatibility", ("PUT", "/schemas/loose"))
    assert scene.names("/schemas/loose", "mode") == ["full"]
    scene.audited("schema.alter", "loose")


def test_delete_a_schema(scene: Scene) -> None:
    scene.api("POST", "/schemas/gone", {"kind": "json", "definition": encoded({"type": "object"})})
    scene.open("/schemas/gone")
    dialog = scene.ask("Delete")
    expect(dialog).to_contain_text("gone is deleted with 1 version. A topic that still names it refuses every record.")
    scene.do(dialog, "Delete the schema", ("DELETE", "/schemas/gone"), then="/schemas")
    assert "gone" not in scene.names("/schemas")
    scene.audited("schema.delete", "gone")


# -- access


def test_add_change_and_remove_a_user(scene: Scene) -> None:
    scene.open("/access/users")
    dialog = scene.ask("Add a user")
    scene.fill(dialog, Name="marie", Password="a word of hers", Roles="consumer")
    scene.do(dialog, "Add the user", ("POST", "/users"))
    scene.audited("user.create", "marie")
    dialog = scene.ask("Change", scene.row("marie"))
    scene.fill(dialog, Roles="producer, consumer")
    dialog.get_by_label("may log in").uncheck()
    scene.do(dialog, "Change the user", ("PATCH", "/users/marie"))
    (marie,) = [each for each in scene.api("GET", "/users")["items"] if each["name"] == "marie"]
    assert (sorted(marie["roles"]), marie["enabled"]) == (["consumer", "producer"], False)
    scene.audited("user.update", "marie")
    dialog = scene.ask("Remove", scene.row("marie"))
    expect(dialog).to_contain_text("The user marie is removed, from access lists too, and can do nothing any more.")
    scene.do(dialog, "Remove the user", ("DELETE", "/users/marie"))
    assert "marie" not in scene.names("/users")
    scene.audited("user.delete", "marie")


def test_change_a_password(scene: Scene) -> None:
    scene.api("POST", "/users", {"name": "pablo", "password": "an old word", "roles": ["admin"]})
    scene.open("/access/users")
    scene.page.reload()  # if it was open before, it shows the new user only when it looks again, in ten seconds
    dialog = scene.ask("Password", scene.row("pablo"))
    expect(dialog).to_contain_text("Sessions of this user end.")
    scene.fill(dialog, New_password="a new word")
    scene.do(dialog, "Change the password", ("PUT", "/users/pablo/password"))
    scene.audited("password.change", "pablo")
    address = f"http://{scene.broker.address('http')}"
    if scene.login:
        assert Api(address, ("pablo", "a new word"))("GET", "/identity")["name"] == "pablo"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            Api(address, ("pablo", "an old word"))("GET", "/identity")


def test_add_rotate_and_revoke_a_key(scene: Scene) -> None:
    scene.open("/access/keys")
    dialog = scene.ask("Add a key")
    scene.fill(dialog, Name="robot", Permissions="read, write", Topics="orders")
    scene.do(dialog, "Add the key", ("POST", "/keys"))
    first = scene.page.locator(".secret span").inner_text()
    scene.page.get_by_role("button", name="Close", exact=True).click()
    (key,) = [each for each in scene.api("GET", "/keys")["items"] if each["name"] == "robot"]
    assert (key["permissions"], key["topics"]) == (["read", "write"], ["orders"])
    scene.audited("key.add", str(key["id"]))
    dialog = scene.ask("Rotate", scene.page.get_by_role("row").filter(has_text="robot"))
    expect(dialog).to_contain_text("A new key on the same terms takes the place of robot, which is revoked at once")
    scene.do(dialog, "Rotate the key", ("POST", f"/keys/{key['id']}/rotate"))
    expect(scene.page.locator(".secret span")).not_to_have_text(first)
    scene.page.get_by_role("button", name="Close", exact=True).click()
    states = {each["id"]: each["state"] for each in scene.api("GET", "/keys")["items"] if each["name"] == "robot"}
    assert states.pop(key["id"]) == "revoked"
    (new,) = states
    scene.audited("key.rotate", f"key:{new}")
    rows = scene.page.get_by_role("row")
    expect(rows.filter(has_text=re.compile("robot.*revoked"))).to_have_count(1)  # the page knows of the rotation
    dialog = scene.ask("Revoke", rows.filter(has_text=re.compile("robot.*active")))
    expect(dialog).to_contain_text("The key robot does nothing any more, for good.")
    scene.do(dialog, "Revoke the key", ("DELETE", f"/keys/{new}"))
    scene.audited("key.revoke", str(new))


def test_set_and_remove_a_role(scene: Scene) -> None:
    scene.open("/access/roles")
    dialog = scene.ask("Make a role")
    scene.fill(dialog, Name="helper", Permissions="read, write", For="the night shift")
    scene.do(dialog, "Set the role", ("PUT", "/roles/helper"))
    (role,) = [each for each in scene.api("GET", "/roles")["items"] if each["name"] == "helper"]
    assert (sorted(role["permissions"]), role["description"]) == (["read", "write"], "the night shift")
    scene.audited("role.set", "helper")
    dialog = scene.ask("Remove", scene.row("helper"))
    expect(dialog).to_contain_text("Whoever has helper may no longer do what it allows.")
    scene.do(dialog, "Remove the role", ("DELETE", "/roles/helper"))
    assert "helper" not in scene.names("/roles")
    scene.audited("role.delete", "helper")


def test_set_and_remove_an_access_list(scene: Scene, topic: str) -> None:
    scene.api("POST", "/users", {"name": "grace", "password": "a long word", "roles": ["consumer"]})
    scene.open("/access/acls")
    dialog = scene.ask("Set an access list")
    scene.fill(dialog, Topic=topic, Users="grace", Roles="consumer")
    dialog.get_by_label("only these: a role that allows it is not enough").check()
    scene.do(dialog, "Set the list", ("PUT", f"/acls/{topic}"))
    (acl,) = [each for each in scene.api("GET", "/acls")["items"] if each["topic"] == topic]
    assert (acl["users"], acl["roles"], acl["restrict"], acl["public"]) == (["grace"], ["consumer"], True, False)
    scene.audited("acl.set", topic)
    dialog = scene.ask("Remove", scene.row(topic))
    expect(dialog).to_contain_text(f"Roles and permissions alone decide who may use {topic}.")
    scene.do(dialog, "Remove the list", ("DELETE", f"/acls/{topic}"))
    assert topic not in scene.names("/acls", "topic")
    scene.audited("acl.delete", topic)


def test_register_and_delete_a_tenant(scene: Scene) -> None:
    scene.open("/access/tenants")
    dialog = scene.ask("Register a tenant")
    scene.fill(dialog, Name="acme", Label="Acme Rockets")
    if scene.login:  # an administrator of one tenant
        dialog.get_by_role("button", name="Register the tenant").click()
        expect(dialog.get_by_role("alert")).to_contain_text("may not admin")
        assert "acme" not in scene.names("/tenants")
        return
    scene.do(dialog, "Register the tenant", ("PUT", "/tenants/acme"))
    assert "acme" in scene.names("/tenants")
    scene.audited("tenant.create", "acme", "acme")
    scene.page.get_by_role("link", name="acme", exact=True).click()
    expect(scene.page.get_by_label("Tenant")).to_have_value("acme")
    scene.open("/access/tenants")
    dialog = scene.ask("Delete", scene.row("acme"))
    expect(dialog).to_contain_text("All that the tenant acme has is deleted for good")
    dialog.get_by_role("button", name="Delete the tenant").click()  # not before its name is written
    assert scene.changes == []
    dialog.get_by_role("textbox").fill("acme")
    scene.do(dialog, "Delete the tenant", ("DELETE", "/tenants/acme"))
    assert "acme" not in scene.names("/tenants")
    scene.audited("tenant.delete", "acme")


# -- operation


def refused(scene: Scene, path: str, method: str, action: str) -> bool:
    """Of what takes an administrator of all tenants: one of a single tenant does not even see it."""
    if scene.login is None:
        return False
    scene.open(path)
    expect(scene.page.locator(".state.failed")).to_contain_text("You may not see this")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        scene.api(method, action, {})
    return True


def test_close_a_connection(scene: Scene) -> None:
    if refused(scene, "/connections", "DELETE", "/connections/1"):
        return
    with socket.create_connection(scene.broker.endpoint("flymq"), 60) as client:
        peer = "{}:{}".format(*client.getsockname())
        scene.open("/connections")
        row = scene.row(peer)
        expect(row).to_be_visible()
        (number,) = [each["id"] for each in scene.api("GET", "/connections")["items"] if each["peer"] == peer]
        dialog = scene.ask("Close", row)
        expect(dialog).to_contain_text("is disconnected at once")
        scene.do(dialog, "Close the connection", ("DELETE", f"/connections/{number}"))
        assert client.recv(1) == b""
    expect(row).to_have_count(0)
    scene.audited("connection.close", str(number))


def test_restart_a_pipeline(scene: Scene) -> None:
    """The process that holds the pipeline's place stands for the one that runs Spark: it is asked to end, and a restart
    is left to whoever started it (`tests/cli/test_pipeline.py`)."""
    if refused(scene, "/pipelines", "POST", "/pipelines/shop/restart"):
        return
    with running_pipeline(scene.data, {"0": 3}, failed="totals") as runner:
        scene.open("/pipelines")
        expect(scene.row("totals")).to_contain_text("quarantined")
        expect(scene.page.get_by_text("totals, restarted 4 times; last failure")).to_be_visible()
        expect(scene.page.get_by_text("ValueError: no luck")).to_be_visible()
        dialog = scene.ask("Restart…")
        expect(dialog).to_contain_text("The process that runs shop finishes its batch and ends")
        scene.do(dialog, "Restart the pipeline", ("POST", "/pipelines/shop/restart"))
        assert runner.wait(60) == -signal.SIGTERM
    assert (scene.data / "pipeline" / "state" / "restart").exists()
    scene.audited("pipeline.restart", "shop")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        scene.api("POST", "/pipelines/shop/restart", {})


def test_cancel_a_job(scene: Scene, topic: str) -> None:
    """A replay that takes its time: the broker's answers are held back until the job is cancelled."""
    letters(scene, topic)
    scene.api("PATCH", f"/topics/{topic}", {"schema": None})
    waits = {"state": "running", "progress": {"done": 0, "total": 3}}

    def held(route: Route) -> None:
        if route.request.method == "GET":
            route.fulfill(json={"id": 1, **waits})
        else:
            route.continue_()

    scene.page.route("**/api/v1/jobs/*", held)
    scene.open(f"/dead-letters/{topic}")
    expect(scene.page.locator("tbody tr")).to_have_count(3)  # before, there is nothing to replay
    dialog = scene.ask("Replay these…")
    dialog.get_by_role("button", name="Replay 3 dead letters").click()
    with scene.page.expect_request(lambda request: request.method == "DELETE" and "/jobs/" in request.url):
        scene.page.get_by_role("button", name="Cancel the job").click()
    scene.page.unroute_all()
    expect(scene.page.get_by_role("dialog")).to_have_count(0)


def test_log_in_by_password_and_by_key_and_out(scene: Scene, browser: Browser) -> None:
    if scene.login is None:
        expect(scene.page.locator(".who")).to_contain_text("security off")
        return
    secret = scene.key()
    for by_key in (False, True):
        context = browser.new_context(base_url=f"http://{scene.broker.address('http')}")
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("/#/topics")
        if by_key:
            page.get_by_role("button", name="Use an API key or token").click()
            page.get_by_label("API key or token").fill(secret)
            page.get_by_role("button", name="Log in").click()
        else:
            log_in(page, *ADA)
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
        page.locator(".who").get_by_role("button").click()
        expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()
        assert context.cookies() == []
        context.close()
    users = [each["user"] for each in scene.api("GET", "/audit?types=auth.success&limit=1000")["events"]]
    assert "user:ada" in users and any(user.startswith("key:") for user in users)


# -- the table


class Action(NamedTuple):
    """A request of the console that changes something, and the test that makes it."""

    file: str
    request: str
    test: Callable[..., None]


ACTIONS = [
    Action("jobs.js", "del /jobs/*", test_cancel_a_job),
    Action("login.js", "post /session", test_log_in_by_password_and_by_key_and_out),
    Action("login.js", "del /session", test_log_in_by_password_and_by_key_and_out),
    Action("produce.js", "post /topics/*/records", test_produce),
    Action("produce.js", "post /topics/*/records", test_replay_to_another_topic),
    Action("screens/access.js", "post /users", test_add_change_and_remove_a_user),
    Action("screens/access.js", "patch /users/*", test_add_change_and_remove_a_user),
    Action("screens/access.js", "put /users/*/password", test_change_a_password),
    Action("screens/access.js", "del /users/*", test_add_change_and_remove_a_user),
    Action("screens/access.js", "post /keys", test_add_rotate_and_revoke_a_key),
    Action("screens/access.js", "post /keys/*/rotate", test_add_rotate_and_revoke_a_key),
    Action("screens/access.js", "del /keys/*", test_add_rotate_and_revoke_a_key),
    Action("screens/access.js", "put /roles/*", test_set_and_remove_a_role),
    Action("screens/access.js", "del /roles/*", test_set_and_remove_a_role),
    Action("screens/access.js", "put /acls/*", test_set_and_remove_an_access_list),
    Action("screens/access.js", "del /acls/*", test_set_and_remove_an_access_list),
    Action("screens/access.js", "put /tenants/*", test_register_and_delete_a_tenant),
    Action("screens/access.js", "del /tenants/*", test_register_and_delete_a_tenant),
    Action("screens/caches.js", "put /caches/*/*", test_put_and_remove_a_cached_value),
    Action("screens/caches.js", "del /caches/*/*", test_put_and_remove_a_cached_value),
    Action("screens/connections.js", "del /connections/*", test_close_a_connection),
    Action("screens/dead_letters.js", "post /topics/*/records", test_repair_a_dead_letter),
    Action("screens/dead_letters.js", "del /topics/*/dead-letters/*", test_repair_a_dead_letter),
    Action("screens/dead_letters.js", "post /topics/*/dead-letters/*/replay", test_replay_one_dead_letter),
    Action("screens/dead_letters.js", "post /topics/*/dead-letters/*", test_replay_the_dead_letters_that_are_shown),
    Action("screens/dead_letters.js", "post /topics/*/dead-letters/*", test_purge_the_dead_letters_that_are_shown),
    Action("screens/delayed.js", "del /delayed/*", test_cancel_a_delayed_record),
    Action("screens/delayed.js", "del /transactions/*", test_roll_a_transaction_back),
    Action("screens/groups.js", "post /groups/*/*/offsets", test_move_a_group),
    Action("screens/groups.js", "del /groups/*/*", test_delete_a_group),
    Action("screens/pipelines.js", "post /pipelines/*/restart", test_restart_a_pipeline),
    Action("screens/queues.js", "del /queues/*", test_delete_a_queue),
    Action("screens/schemas.js", "post /schemas/*", test_register_a_schema_and_its_next_version),
    Action("screens/schemas.js", "put /schemas/*", test_change_the_compatibility_of_a_schema),
    Action("screens/schemas.js", "del /schemas/*", test_delete_a_schema),
    Action("screens/topic.js", "patch /topics/*", test_change_settings),
    Action("screens/topic.js", "del /topics/*", test_delete_a_topic),
    Action("screens/topics.js", "post /topics", test_create_a_topic),
]
READS = {"post /sql", "post /audit/verify", "post /schemas/*/compatibility", "post /schemas/*/latest/decode"}
"""Requests that change nothing; what SQL may change is the statement's own (`test_sql_runs_completes…`)."""


def requests_of_the_source() -> set[tuple[str, str]]:
    """Every call of the API by another method than GET, with `*` for each name in its path."""
    found = set()
    for path in ROOT.rglob("*.js"):
        if path.name == "api.js":
            continue
        text = path.read_text()
        where = re.search(r"const where = api\.path`([^`]+)`", text)
        for method, argument in re.findall(r"api\.(post|put|patch|del)\((?:api\.path)?(`[^`]*`|\"[^\"]*\"|\w+)", text):
            wanted = argument.strip('`"').replace("${where}", "where")
            if wanted.startswith("where"):
                assert where is not None, path
                wanted = where[1] + wanted.removeprefix("where")
            found.add((path.relative_to(ROOT).as_posix(), f"{method} {re.sub(r'[$]{[^}]*}', '*', wanted)}"))
    return found


def test_every_action_of_the_console_has_a_test() -> None:
    source = {each for each in requests_of_the_source() if each[1] not in READS}
    assert source == {(each.file, each.request) for each in ACTIONS}
