"""Login sessions over the API: cookies, how long they last, and what keeps others from using them."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer, Peer

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.sessions import IDLE_US, LONGEST_US, MAX_OF_ONE

PATH = "/api/v1/session"
ANN = {"user": "ann", "password": "a word"}


class Scene:
    def __init__(self) -> None:
        self.fixture = fixture = BrokerFixture(
            access=AccessPolicy(True, [ADMINISTRATION]), lockout=LockoutPolicy(3, 60)
        )
        work = fixture.broker.users.create(ADMINISTRATOR, "default", "ann", "a word", ["admin"])
        work.run()
        work.finish()
        fixture.broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 1)
        fixture.commit()
        self.api = Api(fixture.broker, Environment())

    def ask(
        self, method: str, path: str = PATH, body: object = None, *, cookies: bool = True, **headers: str
    ) -> Answer:
        return Peer(self.fixture, self.api, cookies=cookies).ask(method, path, body, **headers)

    def login(self) -> str:
        answer = self.ask("POST", body=ANN)
        assert answer.status == 201, answer.body
        return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_login_gives_a_cookie_that_no_script_and_no_other_site_can_use(scene: Scene) -> None:
    answer = scene.ask("POST", body=ANN)
    attributes = answer.headers["set-cookie"].split("; ")
    assert attributes[0].startswith("penstock_session=") and len(attributes[0]) > 50
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=86400"} <= set(attributes)
    assert "Secure" not in attributes  # this connection is not encrypted
    assert answer.json["name"] == "ann" and "admin" in answer.json["permissions"]
    assert b"a word" not in answer.body and attributes[0].partition("=")[2].encode() not in answer.body


def test_the_cookie_is_secure_over_tls(scene: Scene) -> None:
    class Encrypted(Peer):
        encrypted = True

    answer = Encrypted(scene.fixture, scene.api, cookies=True).ask("POST", PATH, ANN)
    assert answer.headers["set-cookie"].endswith("; Secure")


def test_the_cookie_is_who_asks(scene: Scene) -> None:
    cookie = scene.login()
    assert scene.ask("GET", "/api/v1/topics", cookie=f"theme=dark; {cookie}").status == 200
    assert scene.ask("GET", cookie=cookie).json["name"] == "ann"
    assert scene.ask("GET", "/api/v1/topics").status == 401
    assert scene.ask("GET", "/api/v1/topics", cookie="penstock_session=guess").status == 401
    assert scene.ask("GET").status == 401


def test_credentials_come_before_the_cookie(scene: Scene) -> None:
    cookie = scene.login()
    assert scene.ask("GET", "/api/v1/topics", cookie=cookie, x_api_key="wrong").status == 401


def test_cookies_count_only_where_sessions_are(scene: Scene) -> None:
    cookie = scene.login()
    assert scene.ask("GET", "/api/v1/topics", cookies=False, cookie=cookie).status == 401
    assert scene.ask("POST", body=ANN, cookies=False).status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://x"}, 200),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://x", "content_type": "text/plain"}, 415),
    ],
)
def test_a_change_by_cookie_comes_from_our_own_pages(scene: Scene, headers: dict[str, str], status: int) -> None:
    cookie = scene.login()
    peer = Peer(scene.fixture, scene.api, cookies=True)
    answer = peer.ask("DELETE", "/api/v1/topics/orders", cookie=cookie, **headers)
    assert answer.status == status
    assert scene.fixture.broker.topics.exists(DEFAULT_SCOPE, "orders") is (status != 200)


def test_a_session_ends_by_logging_out(scene: Scene) -> None:
    cookie = scene.login()
    answer = scene.ask("DELETE", cookie=cookie, origin="http://x")
    assert answer.status == 200 and "Max-Age=0" in answer.headers["set-cookie"]
    assert scene.ask("GET", cookie=cookie).status == 401


def test_a_session_ends_when_it_is_not_used_and_after_a_day_in_any_case(scene: Scene) -> None:
    unused, used = scene.login(), scene.login()
    for _ in range(LONGEST_US // IDLE_US):
        scene.fixture.pass_time(IDLE_US / 1e6 - 60)
        assert scene.ask("GET", cookie=used).status == 200
    assert scene.ask("GET", cookie=unused).status == 401
    scene.fixture.pass_time(240)
    assert scene.ask("GET", cookie=used).status == 401


def test_a_session_ends_with_the_password_and_does_nothing_for_who_is_disabled(scene: Scene) -> None:
    cookie, users = scene.login(), scene.fixture.broker.users
    for name, roles in (("bob", ["admin"]),):
        work = users.create(ADMINISTRATOR, "default", name, "a word", roles)
        work.run()
        work.finish()
    users.update(ADMINISTRATOR, "default", "ann", enabled=False)
    scene.fixture.commit()
    assert scene.ask("GET", "/api/v1/topics", cookie=cookie).status in (401, 403)
    users.update(ADMINISTRATOR, "default", "ann", enabled=True)
    change = users.change_password(ADMINISTRATOR, "default", "ann", "another")
    change.run()
    change.finish()
    scene.fixture.commit()
    assert scene.ask("GET", cookie=cookie).status == 401


def test_wrong_passwords_lock_out_as_at_every_door(scene: Scene) -> None:
    wrong = {"user": "ann", "password": "a guess"}
    answers = [scene.ask("POST", body=wrong) for _ in range(5)]
    assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]
    assert all("set-cookie" not in answer.headers for answer in answers)
    assert scene.ask("POST", body=ANN).status == 429  # also the right one, for a while
    scene.fixture.pass_time(61)
    assert scene.ask("POST", body=ANN).status == 201


def test_a_key_opens_a_session_that_ends_with_it(scene: Scene) -> None:
    broker = scene.fixture.broker
    made, _ = broker.keys.add(ADMINISTRATOR, KeyTerms("k", "default", [Permission.DESCRIBE]))
    scene.fixture.commit()
    answer = scene.ask("POST", body={"key": str(made.secret)})
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert scene.ask("GET", "/api/v1/topics", cookie=cookie).status == 200
    broker.keys.revoke(ADMINISTRATOR, made.key.id)
    scene.fixture.commit()
    assert scene.ask("GET", "/api/v1/topics", cookie=cookie).status == 403
    assert scene.ask("POST", body={"key": "wrong"}).status == 401


@pytest.mark.parametrize("body", [{}, {"user": "ann", "key": "k"}, {"user": 5}, {"password": "a word"}])
def test_a_login_that_makes_no_sense(scene: Scene, body: dict[str, object]) -> None:
    assert scene.ask("POST", body=body).status == 400


def test_one_user_has_only_so_many_sessions(scene: Scene) -> None:
    cookies = [scene.login() for _ in range(MAX_OF_ONE + 2)]
    states = [scene.ask("GET", cookie=cookie).status for cookie in cookies]
    assert states == [401, 401, *[200] * MAX_OF_ONE]


def test_a_restart_ends_all_sessions(scene: Scene) -> None:
    cookie = scene.login()
    scene.fixture.restart()
    scene.api = Api(scene.fixture.broker, Environment())
    assert scene.ask("GET", cookie=cookie).status == 401
