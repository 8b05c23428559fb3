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
            status, created = await stage.ask("POST", "/api/v1/users", NEW)
            view = {"name": "alice", "tenant": "default", "roles": ["consumer"], "permissions": ["read"],
                    "enabled": True, "created": stage.now, "updated": stage.now}  # fmt: skip
            assert (status, created) == (201, {"user": view, "enforced": True})
            work = stage.broker.users.login("default", "alice", "a word", "h:1")
            work.run()
            assert work.finish()[:3] == ("user:alice", "default", "h:1")
            stage.now += 1
            assert await stage.ask("PUT", "/api/v1/users/alice/password", {"password": "other"}) == (200, {})
            work = stage.broker.users.login("default", "alice", "a word", "h:1")
            work.run()
            assert work.finish() is LoginRefusal.WRONG
            assert await stage.ask("PUT", "/api/v1/roles/a%2Fb", {"permissions": ["write"]}) == (200, {})
            assert await stage.ask("PATCH", "/api/v1/users/alice", {"roles": ["a/b"]}) == (200, {})
            assert await stage.ask("PATCH", "/api/v1/users/alice", {"enabled": False}) == (200, {})
            view |= {"roles": ["a/b"], "permissions": ["write"], "enabled": False, "updated": stage.now}
            assert await stage.ask("GET", "/api/v1/users/alice") == (200, view)
            assert await stage.ask("GET", "/api/v1/users") == (200, [view])
            roles = (await stage.ask("GET", "/api/v1/roles"))[1]
            assert roles[0] == {"name": "a/b", "permissions": ["write"], "description": "", "built_in": False}
            terms = {"users": ["alice"], "roles": ["a/b"], "restrict": True}
            assert await stage.ask("PUT", "/api/v1/acls/%C3%A4?namespace=eu", terms) == (200, {})
            acl = {"topic": "ä", "public": False, **terms}
            assert await stage.ask("GET", "/api/v1/acls/%C3%A4?namespace=eu") == (200, acl)
            assert await stage.ask("GET", "/api/v1/acls?namespace=eu") == (200, [acl])
            assert await stage.ask("GET", "/api/v1/acls") == (200, [])
            for path in (
                "/api/v1/acls/%C3%A4?namespace=eu",
                "/api/v1/acls/x?namespace=eu",
                "/api/v1/users/alice",
                "/api/v1/roles/a%2Fb",
            ):
                assert await stage.ask("DELETE", path) == (200, {})
            assert await stage.ask("GET", "/api/v1/users") == (200, [])

    run(loop, scene)


def test_the_answer_waits_for_the_hash_and_for_the_commit_and_what_follows_waits_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
            stage.broker.users._executor._executor = later(calls)
            reader, writer = await stage.connect()
            writer.write(request("POST", "/api/v1/users", NEW) + request("GET", "/api/v1/users"))
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
            writer.write(request("POST", "/api/v1/users", NEW))
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
                writer.write(request("POST", "/api/v1/users", NEW))
            while len(calls) < 2:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.001)
            for work, done in calls:
                work()
                done()
            stage.committer.run()
            answers = sorted([await response(reader) for reader, _ in two], key=lambda answer: answer[0])
            assert answers[0][0] == 201 and answers[1] == (409, "User 'alice' already exists")
            for _, writer in two:
                writer.close()

    run("asyncio", scene)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/api/v1/users", b"{", 400, ""),
        ("POST", "/api/v1/users", {"name": "x"}, 400, "password"),
        ("POST", "/api/v1/users", NEW | {"hat": 1}, 400, "hat"),
        ("POST", "/api/v1/users", NEW | {"roles": ["king"]}, 404, "king"),
        ("POST", "/api/v1/users?tenant=*", NEW, 400, "Tenant name"),
        ("POST", "/api/v1/users", NEW | {"password": ""}, 400, "1 to 1024"),
        ("PATCH", "/api/v1/users/x", {}, 404, "'x' not found"),
        ("PUT", "/api/v1/users/x/hat", {"password": "x"}, 404, "nothing at this path"),
        ("GET", "/api/v1/users/x/password", None, 405, "only PUT"),
        ("PUT", "/api/v1/users", None, 405, "only GET and POST"),
        ("GET", "/users", None, 404, "there are"),
        ("GET", "/api/v1/users/b/c/d?tenant=a", None, 404, "nothing at this path"),
        ("GET", "/api/v1/users/%FF", None, 400, "not UTF-8"),
        ("GET", "/api/v1/acls/x", None, 404, "no access list"),
        ("GET", "/api/v1/acls?tenant=a%2Fb", None, 400, "Tenant name"),
        ("PUT", "/api/v1/acls/x", {"public": True}, 400, "anonymous access is disabled"),
        ("PUT", "/api/v1/roles/admin", {}, 400, "built in"),
        ("DELETE", "/api/v1/roles/x", None, 404, "not found"),
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
                ("GET", "/api/v1/users", None),
                ("POST", "/api/v1/users", NEW),
                ("PATCH", "/api/v1/users/x", {}),
                ("DELETE", "/api/v1/users/x", None),
                ("PUT", "/api/v1/users/x/password", {"password": "x"}),
                ("PUT", "/api/v1/roles/x", {}),
                ("GET", "/api/v1/acls", None),
                ("PUT", "/api/v1/acls/x", {}),
            ):
                assert (await stage.ask(method, path, body))[0] == 403

    run("asyncio", scene)
