"""Users, roles and access lists over the admin socket: what it answers, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.admin.test_socket import open_stage, request, response
from tests.broker.broker_fixture import later
from tests.transport.harness import LOOPS, run

from penstock.broker.security.access import ADMINISTRATOR, AccessPolicy
from penstock.broker.security.users import LoginRefusal

NEW = {"name": "alice", "password": "a word", "roles": ["consumer"]}


@pytest.mark.parametrize("loop", LOOPS)
def test_users_roles_and_lists_are_administered(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            status, created = await stage.ask("POST", "/users/default", NEW)
            view = {"name": "alice", "tenant": "default", "roles": ["consumer"], "permissions": ["read"],
                    "enabled": True, "created": stage.now, "updated": stage.now}  # fmt: skip
            assert (status, created) == (201, {"user": view, "enforced": True})
            work = stage.broker.users.login("default", "alice", "a word", "h:1")
            work.run()
            assert work.finish()[:3] == ("user:alice", "default", "h:1")
            stage.now += 1
            assert await stage.ask("PUT", "/users/default/alice/password", {"password": "other"}) == (200, {})
            work = stage.broker.users.login("default", "alice", "a word", "h:1")
            work.run()
            assert work.finish() is LoginRefusal.WRONG
            assert await stage.ask("PUT", "/roles/default/a%2Fb", {"permissions": ["write"]}) == (200, {})
            assert await stage.ask("PATCH", "/users/default/alice", {"roles": ["a/b"]}) == (200, {})
            assert await stage.ask("PATCH", "/users/default/alice", {"enabled": False}) == (200, {})
            view |= {"roles": ["a/b"], "permissions": ["write"], "enabled": False, "updated": stage.now}
            assert await stage.ask("GET", "/users/default/alice") == (200, view)
            assert await stage.ask("GET", "/users/default") == (200, [view])
            roles = (await stage.ask("GET", "/roles/default"))[1]
            assert roles[-1] == {"name": "a/b", "permissions": ["write"], "description": "", "built_in": False}
            terms = {"users": ["alice"], "roles": ["a/b"], "restrict": True}
            assert await stage.ask("PUT", "/acls/default/eu/%C3%A4", terms) == (200, {})
            acl = {"topic": "ä", "public": False, **terms}
            assert await stage.ask("GET", "/acls/default/eu/%C3%A4") == (200, acl)
            assert await stage.ask("GET", "/acls/default/eu") == (200, [acl])
            assert await stage.ask("GET", "/acls/default/default") == (200, [])
            for path in (
                "/acls/default/eu/%C3%A4",
                "/acls/default/eu/x",
                "/users/default/alice",
                "/roles/default/a%2Fb",
            ):
                assert await stage.ask("DELETE", path) == (200, {})
            assert await stage.ask("GET", "/users/default") == (200, [])

    run(loop, scene)


def test_the_answer_waits_for_the_hash_and_for_the_commit_and_what_follows_waits_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
            stage.broker.users._executor._executor = later(calls)
            reader, writer = await stage.connect()
            writer.write(request("POST", "/users/default", NEW) + request("GET", "/users/default"))
            while not calls:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.001)
            assert not stage.committer.run()
            work, done = calls.pop()
            await asyncio.to_thread(work)
            done()
            for _ in range(20):
                assert not await stage.settled(reader)
            assert stage.committer.run()
            assert (await response(reader))[0] == 201
            status, listed = await response(reader)
            assert status == 200 and [user["name"] for user in listed] == ["alice"]
            writer.close()

    run("asyncio", scene)


def test_what_was_accepted_is_done_although_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
            stage.broker.users._executor._executor = later(calls)
            _, writer = await stage.connect()
            writer.write(request("POST", "/users/default", NEW))
            while not calls:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.001)
            writer.transport.abort()
            await asyncio.sleep(0.05)
            work, done = calls.pop()
            work()
            done()
            stage.committer.run()
            assert [user.name for user in stage.broker.users.list(ADMINISTRATOR, "default")] == ["alice"]

    run("asyncio", scene)


def test_a_refusal_that_comes_after_the_work_is_reported(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
            stage.broker.users._executor._executor = later(calls)
            two = [await stage.connect() for _ in range(2)]
            for _, writer in two:
                writer.write(request("POST", "/users/default", NEW))
            while len(calls) < 2:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.001)
            for work, done in calls:
                work()
                done()
            stage.committer.run()
            answers = sorted([await response(reader) for reader, _ in two], key=lambda answer: answer[0])
            assert answers[0][0] == 201 and answers[1] == (409, "User 'alice' already exists\n")
            for _, writer in two:
                writer.close()

    run("asyncio", scene)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/users/default", b"{", 400, ""),
        ("POST", "/users/default", {"name": "x"}, 400, "password"),
        ("POST", "/users/default", NEW | {"hat": 1}, 400, "hat"),
        ("POST", "/users/default", NEW | {"roles": ["king"]}, 404, "king"),
        ("POST", "/users/*", NEW, 400, "Tenant name"),
        ("POST", "/users/default", NEW | {"password": ""}, 400, "1 to 1024"),
        ("PATCH", "/users/default/x", {}, 404, "'x' not found"),
        ("PUT", "/users/default/x/hat", {"password": "x"}, 404, "nothing at this path"),
        ("GET", "/users/default/x/password", None, 405, "only PUT"),
        ("PUT", "/users/default", None, 405, "only GET, POST"),
        ("GET", "/users", None, 404, "nothing at this path"),
        ("GET", "/users/a/b/c/d", None, 404, "nothing at this path"),
        ("GET", "/users/default/%FF", None, 400, "not UTF-8"),
        ("GET", "/acls/default/default/x", None, 404, "no access list"),
        ("GET", "/acls/a%2Fb/default", None, 400, "Tenant name"),
        ("PUT", "/acls/default/default/x", {"public": True}, 400, "anonymous access is disabled"),
        ("PUT", "/roles/default/admin", {}, 400, "built in"),
        ("DELETE", "/roles/default/x", None, 404, "not found"),
    ],
)
def test_what_cannot_be_done_is_reported(
    tmp_path: Path, method: str, path: str, body: object, status: int, said: str
) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            answered, text = await stage.ask(method, path, body)
            assert answered == status and said in text and "Traceback" not in text
            assert (await stage.ask("GET", "/health"))[0] == 200

    run("asyncio", scene)


def test_without_the_grant_the_socket_is_denied_like_anybody(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            stage.broker.access.apply(AccessPolicy(True))
            for method, path, body in (
                ("GET", "/users/default", None),
                ("POST", "/users/default", NEW),
                ("PATCH", "/users/default/x", {}),
                ("DELETE", "/users/default/x", None),
                ("PUT", "/users/default/x/password", {"password": "x"}),
                ("PUT", "/roles/default/x", {}),
                ("GET", "/acls/default/default", None),
                ("PUT", "/acls/default/default/x", {}),
            ):
                assert (await stage.ask(method, path, body))[0] == 403

    run("asyncio", scene)
