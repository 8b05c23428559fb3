"""`penstock tenant` as an operator uses it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_users import ok, run, table


def test_tenants_of_a_broker_that_does_not_run(tmp_path: Path) -> None:
    assert ok(tmp_path, "tenant", "create", "7", "--label", "Acme Ltd") == "tenant 7 is registered\n"
    done = run(tmp_path, "tenant", "create", "7", "--label", "Other")
    assert (done.returncode, done.stderr) == (1, "penstock: Tenant '7' already exists under another label\n")
    assert table(tmp_path, "tenant", "list")["7"][::2] == ["0", "Acme Ltd"]
    assert table(tmp_path, "tenant", "show", "7") == table(tmp_path, "tenant", "list")
    assert run(tmp_path, "tenant", "delete", "7", stdin="n\n").returncode == 1
    assert ok(tmp_path, "tenant", "delete", "7", stdin="y\n").endswith("deleted tenant 7 with 0 topic(s)\n")
    assert table(tmp_path, "tenant", "list") == {}
    assert run(tmp_path, "tenant", "delete", "7", "--yes").stderr == "penstock: Tenant '7' not found\n"
