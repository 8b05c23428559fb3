"""Tenants over the admin socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.admin.test_socket import open_stage
from tests.transport.harness import LOOPS, run

from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATOR


@pytest.mark.parametrize("loop", LOOPS)
def test_tenants_are_administered(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_stage(tmp_path) as stage:
            view = {"name": "acme", "label": "Acme", "created": stage.now, "topics": 0}
            assert await stage.ask("PUT", "/api/v1/tenants/acme", {"label": "Acme"}) == (200, view)
            assert await stage.ask("PUT", "/api/v1/tenants/acme", {}) == (200, view)
            assert (await stage.ask("PUT", "/api/v1/tenants/acme", {"label": "Other"}))[0] == 409
            assert (await stage.ask("PUT", "/api/v1/tenants/a%2Fb", {}))[0] == 400
            assert (await stage.ask("PUT", "/api/v1/tenants/acme", {"lable": "Acme"}))[0] == 400
            stage.broker.topics.create(ADMINISTRATOR, Scope("acme", "default"), "orders", 1)
            assert await stage.ask("GET", "/api/v1/tenants/acme") == (200, view | {"topics": 1})
            assert await stage.ask("GET", "/api/v1/tenants") == (200, [view | {"topics": 1}])
            assert await stage.ask("DELETE", "/api/v1/tenants/acme") == (200, view | {"topics": 1})
            assert await stage.ask("GET", "/api/v1/tenants") == (200, [])
            for method in ("GET", "DELETE"):
                assert (await stage.ask(method, "/api/v1/tenants/acme"))[0] == 404

    run(loop, scene)
