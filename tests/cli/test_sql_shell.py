"""`penstock sql` and `penstock schema` over the network, with security on: one statement, and the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.cli.secured import Secured, secured


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("sql")) as running:
        running.admin("topic", "create", "sales")
        running.admin("produce", "sales", '{"product": "anvil", "price": 40}', '{"product": "bell", "price": 7}')
        yield running


def test_a_statement_over_the_network(broker: Secured) -> None:
    statement = ("sql", "SELECT product FROM sales WHERE price > 10")
    assert json.loads(broker.admin(*statement, "--format", "json")) == {"product": "anvil"}
    assert broker.run("reader", *statement, "--format", "csv").stdout == "product\nanvil\n"
    done = broker.run(None, *statement)
    assert done.returncode == 1 and "--user, --key-file or --token-file" in done.stderr
    done = broker.run("admin", "sql", "SELECT nothing FROM nowhere")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_the_past(broker: Secured) -> None:
    count = ("sql", "SELECT count(*) AS n FROM sales", "--format", "csv")
    assert broker.admin(*count, "--at", "@2999-01-01") == "n\n2\n"
    assert broker.run("admin", *count, "--at", "soon").returncode == 2
    assert broker.run("admin", *count, "--at", "@soon").returncode == 2


def test_the_shell_takes_lines_together_and_survives_what_is_refused(broker: Secured) -> None:
    typed = "SELECT product\nFROM sales\nWHERE price < 10;\nSELECT nonsense;\n\\timing\n\\d\n\\?\nSELECT 'end' AS x\n"
    done = broker.run("admin", "sql", "--format", "csv", stdin=typed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("product\nbell\n") and done.stdout.endswith("x\nend\n")
    assert "sales" in done.stdout
    assert "penstock: " in done.stderr and " ms" in done.stderr and r"\q" in done.stderr


def test_schemas_over_the_network(broker: Secured) -> None:
    (broker.elsewhere / "order.json").write_text('{"type": "object", "required": ["id"]}')
    register = ("schema", "register", "order", "order.json", "--kind", "json")
    assert broker.run("reader", *register).returncode == 1
    assert broker.admin(*register) == "order version 1\n"
    assert json.loads(broker.admin("schema", "list", "-o", "json"))[0]["name"] == "order"
    assert "required" in broker.admin("schema", "show", "order")
    assert broker.run("admin", "schema", "validate", "order", "-", stdin="{}").returncode == 1
    assert broker.admin("schema", "delete", "order") == "deleted order\n"
