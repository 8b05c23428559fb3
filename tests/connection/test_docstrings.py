"""The examples in the docstrings of `penstock.connection`, run in order against a broker with every door."""

from __future__ import annotations

import doctest
from collections.abc import Iterator

import pytest
from tests.launcher import BrokerProcess

import penstock
from penstock import connection
from penstock.connection.connection import Connection


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    listen = ("--listen", "flight=127.0.0.1:0", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("docstrings"), *listen) as broker:
        yield broker.ready().address("blipmq")


def test_what_the_docstrings_show_is_so(address: str) -> None:
    """Methods in the order of the class: later ones see what earlier ones stored."""
    methods = [
        "produce",
        "produce_many",
        "cancel",
        "producer",
        "consume",
        "queue",
        "transaction",
        "sql",
        "table",
        "cache",
    ]
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    with penstock.connect(address, timeout=60) as db:
        texts = {name: getattr(Connection, name).__doc__ for name in [*methods, "admin"]} | {
            "connect": connection.connect.__doc__
        }
        for name, text in texts.items():
            assert text is not None and ">>>" in text, name
            example = parser.get_doctest(text, {"db": db, "penstock": penstock, "address": address}, name, None, 0)
            runner.run(example, clear_globs=False)
    results = runner.summarize(verbose=False)
    assert results.failed == 0
    assert results.attempted >= len(methods)
