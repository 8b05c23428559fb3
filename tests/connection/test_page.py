"""The blocks of `docs/python.md`, run in their order against a broker with every door."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess

import penstock

PAGE = Path(__file__).parent.parent.parent / "docs" / "python.md"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    listen = ("--listen", "flight=127.0.0.1:0", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("page"), *listen) as broker:
        yield broker.ready().address("rustlog")


def test_every_block_of_the_page_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "broker.example.org" not in block]  # other people's brokers
    assert len(blocks) >= 10
    with penstock.connect(address, timeout=60) as db:
        names: dict[str, Any] = {"db": db}
        for block in blocks:
            exec(compile(block.replace("127.0.0.1:9092", address), "docs/python.md", "exec"), names)
            names["db"] = db  # the first block has one of its own
    printed = capsys.readouterr().out
    for text in (
        "0 b'en' hello",
        "1 hola",
        "welcome mail for ann",
        "['product', 'price'] [('anvil', 40)]",
        "b'logged in' 1",
    ):
        assert text in printed
