"""Every snippet of docs/flight.md, one after the other, as somebody would who reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess
from tests.workers.flight.seeded_flight_broker import OPEN, made
from tests.workers.flight.test_security import SECURED

from penstock.broker.security.access import ADMINISTRATOR

PAGE = Path(__file__).parents[2] / "docs" / "flight.md"
SECURE = "<!-- with security on -->\n"


def snippets(text: str) -> list[str]:
    text = re.sub(r"^<!-- not run: .*? -->\n```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_page_says_what_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = PAGE.read_text().split(SECURE)
    plain, secure = snippets(before), snippets(after)
    assert (len(plain), len(secure)) == (5, 1)
    with made(tmp_path) as maker:
        maker.topic("orders", 2)
        maker.append("orders", [b"one", b"two", b"three"])
        work = maker.broker.users.create(ADMINISTRATOR, "default", "ann", "correct horse", ["consumer"])
        work.run()
        work.finish()
        maker.commit()
    names: dict[str, Any] = {}
    for blocks, environment in ((plain, {}), ([plain[0].split("for topic")[0], *secure], SECURED)):
        with BrokerProcess(tmp_path, *OPEN, **environment) as broker:
            broker.ready()
            for block in blocks:
                exec(block.replace("127.0.0.1:8815", broker.address("flight")), names)
    said = capsys.readouterr().out
    for line in (
        "3 records in 2 partitions",
        "[{'offset': 1, 'value': b'two'}, {'offset': 2, 'value': b'three'}]",
        "'start': 0, 'end': 3}",
        "[{'n': 2}] up to position ",
        "{'offsets': [0]}",
        "{'rows': 2, 'repeated': False}",
        "[b'orders']",
    ):
        assert line in said, said
