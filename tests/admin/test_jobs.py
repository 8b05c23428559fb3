"""Jobs of the API: searches, dead letters and tables as long work with progress, results, errors, cancel and bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.http.peer import Peer

from penstock.admin import jobs as rules
from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, ANONYMOUS, AccessPolicy, Permission
from penstock.broker.security.audit import AuditPolicy
from penstock.broker.security.audit_event import AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.tables.table import JobDone, RepairJob, RepairReport, TableOutcome

SEARCH = "/api/v1/topics/orders/records/search"
LETTERS = "/api/v1/topics/orders/dead-letters"


def filled(**options: Any) -> BrokerFixture:
    """A topic with a hundred records, every tenth of which has failed."""
    fixture = BrokerFixture(**options)
    broker = fixture.broker
    broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 2)
    for number in range(100):
        value = json.dumps({"number": number, "status": "failed" if number % 10 == 0 else "paid"}).encode()
        broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "orders", number % 2, [value])
    fixture.commit()
    return fixture


def start(peer: Peer, path: str, body: object = None) -> dict[str, Any]:
    answer = peer.ask("POST", path, {} if body is None else body)
    assert answer.status == 202, answer.body
    job: dict[str, Any] = answer.json
    assert job["state"] in ("waiting", "running", "done", "failed")
    return job


def look(peer: Peer, number: int) -> dict[str, Any]:
    found: dict[str, Any] = peer.ask("GET", f"/api/v1/jobs/{number}").json
    return found


def numbers(peer: Peer, job: int, query: str = "") -> list[int]:
    page = peer.ask("GET", f"/api/v1/jobs/{job}/records{query}").json
    return [json.loads(record["value_text"])["number"] for record in page["items"]]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"where": "status = 'failed'"}, list(range(0, 100, 10))),
        ({"path": "$.status=failed", "order": "desc", "limit": 3}, [90, 80, 70]),
        ({"text": "failed", "partition": 1}, []),
        ({"where": "number > 96"}, [97, 98, 99]),
        ({"limit": 2, "partition": 0}, [0, 2]),
    ],
)
def test_a_search_finds_what_fits_and_says_how_far_it_looked(body: dict[str, Any], found: list[int]) -> None:
    peer = api_peer(filled())
    job = look(peer, start(peer, SEARCH, body)["id"])
    assert (job["kind"], job["state"], job["resource"]) == ("record.search", "done", "orders")
    assert sorted(numbers(peer, job["id"])) == sorted(found)
    assert job["result"]["found"] == len(found)
    assert job["progress"]["total"] == (50 if "partition" in body else 100)
    assert job["progress"]["done"] == job["result"]["scanned"]
    assert (job["result"]["next"] is None) is (len(found) < body.get("limit", 100))


def test_what_was_found_comes_in_pages() -> None:
    peer = api_peer(filled())
    job = start(peer, SEARCH, {"where": "number < 5"})["id"]
    page = peer.ask("GET", f"/api/v1/jobs/{job}/records?limit=3").json
    assert len(page["items"]) == 3 and page["next"] == "3"
    rest = peer.ask("GET", f"/api/v1/jobs/{job}/records?limit=3&after=3").json
    assert len(rest["items"]) == 2 and rest["next"] is None


@pytest.mark.parametrize("body", [{"where": "status ="}, {"where": "x" * 5000}, {"path": "status"}, {"limit": 0}])
def test_what_makes_no_sense_is_refused_before_a_job_begins(body: dict[str, Any]) -> None:
    peer = api_peer(filled())
    assert peer.ask("POST", SEARCH, body).status == 400
    assert peer.ask("GET", "/api/v1/jobs").json["items"] == []
    assert peer.ask("POST", SEARCH.replace("orders", "none"), {}).status == 404


class Steps:
    """A broker whose work off the loop, and whose turns, wait until the test takes the next one."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []
        self.fixture = filled(executor=later(self.calls), scheduler=LaterScheduler(self.calls))
        self.peer = api_peer(self.fixture)

    def take(self, count: int = 1 << 20) -> None:
        while self.calls and count:
            work, done = self.calls.pop(0)
            work()
            done()
            count -= 1
            self.fixture.commit()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        self.peer.sent = b""
        data = b"" if body is None else json.dumps(body).encode()
        self.peer.begin(method, path, data)
        for _ in range(5):
            if self.peer.sent:
                break
            self.take(1)
        return self.peer.answer(method)


def test_a_job_is_cancelled_between_its_steps_and_does_nothing_more() -> None:
    steps = Steps()
    job = steps.ask("POST", SEARCH, {"text": "failed"}).json["id"]
    assert steps.ask("GET", f"/api/v1/jobs/{job}").json["state"] in ("waiting", "running")
    assert steps.ask("DELETE", f"/api/v1/jobs/{job}").status == 200
    cancelled = steps.ask("GET", f"/api/v1/jobs/{job}").json
    assert cancelled["state"] == "cancelled" and cancelled["ended"] is not None
    steps.take()
    assert steps.ask("GET", f"/api/v1/jobs/{job}").json == cancelled
    assert steps.ask("DELETE", f"/api/v1/jobs/{job}").status == 200  # forget it
    assert steps.ask("GET", f"/api/v1/jobs/{job}").status == 404


def test_only_a_few_run_at_once_and_the_others_wait_for_their_turn() -> None:
    steps = Steps()
    ids = [steps.ask("POST", SEARCH, {"text": "failed"}).json["id"] for _ in range(rules.AT_ONCE + 3)]
    states = [job["state"] for job in steps.ask("GET", "/api/v1/jobs").json["items"]]
    assert states.count("running") <= rules.AT_ONCE and "waiting" in states
    steps.take()
    assert [steps.ask("GET", f"/api/v1/jobs/{job}").json["state"] for job in ids] == ["done"] * len(ids)
    assert steps.ask("GET", "/api/v1/jobs?state=waiting").json["items"] == []


def test_there_are_only_so_many() -> None:
    steps = Steps()
    answers = [steps.ask("POST", SEARCH, {"text": "failed"}) for _ in range(rules.MAX_UNDER_WAY + 1)]
    refused = [answer for answer in answers if answer.status != 202]
    assert refused and {answer.status for answer in refused} == {409}
    steps.take()


def test_what_ended_is_forgotten_after_a_while_and_if_there_is_too_much_of_it() -> None:
    fixture = filled()
    peer = api_peer(fixture)
    first = start(peer, SEARCH, {"limit": 1})["id"]
    for _ in range(rules.MAX_ENDED + 1):
        start(peer, SEARCH, {"limit": 1})
    assert peer.ask("GET", f"/api/v1/jobs/{first}").status == 404
    fixture.pass_time(rules.ENDED_US / 1e6 + 1)
    assert peer.ask("GET", "/api/v1/jobs").json["items"] == []


def test_a_job_is_its_owners_and_the_administrators_business() -> None:
    fixture = filled(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=True))

    def key(*permissions: Permission) -> str:
        made, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", "default", list(permissions)))
        fixture.commit()
        return str(made.secret)

    api = Api(fixture.broker, Environment())
    ann, bob, admin = key(Permission.READ), key(Permission.READ), key(Permission.ADMIN)
    peer = Peer(fixture, api)
    job = peer.ask("POST", SEARCH, {}, x_api_key=ann).json
    assert job["identity"] == "key:1"
    path = f"/api/v1/jobs/{job['id']}"
    assert [peer.ask("GET", path, x_api_key=each).status for each in (ann, bob, admin)] == [200, 403, 200]
    assert peer.ask("DELETE", path, x_api_key=bob).status == 403
    assert peer.ask("GET", "/api/v1/jobs", x_api_key=bob).json["items"] == []
    assert len(peer.ask("GET", "/api/v1/jobs", x_api_key=admin).json["items"]) == 1
    assert Peer(fixture, api).ask("POST", SEARCH, {}).status == 401
    fixture.broker.audit.flush()
    fixture.commit()
    work = fixture.broker.audit.query(ADMINISTRATOR, "default", AuditQuery(types=("job.start",), result="success"))
    work.run()
    (event,) = work.finish().events
    assert (event.user, event.resource, event.action) == ("key:1", "orders", "record.search")


def test_a_key_that_is_revoked_ends_what_it_began() -> None:
    calls: list[tuple[Any, Any]] = []
    access = AccessPolicy(True, [ADMINISTRATION])
    fixture = filled(access=access, executor=later(calls), scheduler=LaterScheduler(calls))
    made, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", "default", [Permission.READ]))
    fixture.commit()
    api = Api(fixture.broker, Environment())
    peer = Peer(fixture, api)
    job = peer.ask("POST", SEARCH, {"text": "failed"}, x_api_key=str(made.secret)).json["id"]
    fixture.broker.keys.revoke(ADMINISTRATOR, made.key.id)
    fixture.commit()
    while calls:
        work, done = calls.pop(0)
        work()
        done()
    found = Peer(fixture, api, ADMINISTRATOR).ask("GET", f"/api/v1/jobs/{job}").json
    assert (found["state"], found["error"]["code"]) == ("failed", "access_denied")


# -- dead letters


def with_letters(count: int = 6) -> BrokerFixture:
    fixture = filled()
    broker = fixture.broker
    broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders" + SUFFIX, 1)
    for number in range(count):
        value = json.dumps({"number": number, "status": "failed" if number % 2 else "late"}).encode()
        broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders" + SUFFIX, 0, [value])
    fixture.commit()
    return fixture


def letters(peer: Peer) -> list[int]:
    return [json.loads(each["value_text"])["number"] for each in peer.ask("GET", LETTERS).json["items"]]


def test_dead_letters_that_fit_are_replayed_by_a_job() -> None:
    fixture = with_letters()
    peer = api_peer(fixture)
    before = sum(end for _, end in fixture.broker.topics.bounds(ANONYMOUS, DEFAULT_SCOPE, ["orders"])["orders"])
    job = look(peer, start(peer, f"{LETTERS}/replay", {"where": "status = 'failed'"})["id"])
    assert (job["state"], job["result"]) == ("done", {"done": 3, "refused": 0, "reason": ""})
    assert letters(peer) == [0, 2, 4]
    after = sum(end for _, end in fixture.broker.topics.bounds(ANONYMOUS, DEFAULT_SCOPE, ["orders"])["orders"])
    assert after == before + 3
    job = look(peer, start(peer, f"{LETTERS}/replay", {"limit": 1})["id"])
    assert job["result"]["done"] == 1 and letters(peer) == [2, 4]


def test_dead_letters_that_fit_are_purged_by_a_job_or_one_by_one() -> None:
    peer = api_peer(with_letters())
    job = look(peer, start(peer, f"{LETTERS}/purge", {"letters": [1, 4, 99]})["id"])
    assert job["result"]["done"] == 2 and letters(peer) == [0, 2, 3, 5]
    assert peer.ask("DELETE", f"{LETTERS}/2").status == 200
    assert letters(peer) == [0, 3, 5]
    assert peer.ask("DELETE", f"{LETTERS}/2").status == 404
    assert peer.ask("DELETE", f"{LETTERS}/x").status == 404
    start(peer, f"{LETTERS}/purge")
    assert letters(peer) == []


def test_a_topic_without_dead_letters_has_nothing_to_replay() -> None:
    peer = api_peer(filled())
    assert look(peer, start(peer, f"{LETTERS}/replay")["id"])["result"]["done"] == 0


# -- tables


def test_a_table_is_verified_and_repaired_by_the_process_for_tables_as_jobs() -> None:
    fixture = filled()
    peer, tables = api_peer(fixture), fixture.broker.tables
    verify = start(peer, "/api/v1/tables/orders/verify")["id"]
    repair = start(peer, "/api/v1/tables/orders/repair", {"checksums": True})["id"]
    assert look(peer, verify)["state"] == "running"
    for number, only_looks in ((repair, False), (verify, True)):
        job = tables.jobs.next_job(fixture.now)
        assert isinstance(job, RepairJob) and job.verify is only_looks
        tables.jobs.repair_progress(job.id, 5, 10)
        assert look(peer, number)["progress"] == {"done": 5, "total": 10}
        assert peer.ask("DELETE", f"/api/v1/jobs/{number}").code == "job_not_cancellable"
        tables.jobs.done(JobDone(job.id, [TableOutcome(job.ref.topic, report=RepairReport(True, 1, 10, 10))]))
        done = look(peer, number)
        assert done["state"] == "done" and done["result"]["sound"] is True and done["result"]["records"] == 10


def test_a_repair_that_has_not_begun_can_be_cancelled_and_one_that_fails_says_why() -> None:
    fixture = filled()
    peer, tables = api_peer(fixture), fixture.broker.tables
    job = start(peer, "/api/v1/tables/orders/repair")["id"]
    assert peer.ask("DELETE", f"/api/v1/jobs/{job}").status == 200
    assert look(peer, job)["state"] == "cancelled"
    assert tables.jobs.next_job(fixture.now) is None
    job = start(peer, "/api/v1/tables/orders/repair")["id"]
    work = tables.jobs.next_job(fixture.now)
    assert isinstance(work, RepairJob)
    tables.jobs.done(JobDone(work.id, [TableOutcome(work.ref.topic, "the disk is gone")]))
    failed = look(peer, job)
    assert (failed["state"], failed["error"]["message"]) == ("failed", "the disk is gone")
