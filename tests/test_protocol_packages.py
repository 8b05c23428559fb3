"""The packages of the five protocols have the same modules: who knows one protocol's packages knows them all. What a
package has beyond that is in a table of docs/architecture.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.test_layers import PROTOCOLS, ROOMS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"

# A name stands for a module or a package: `codec` is one module, or one for each dialect.
REQUIRED = {
    "wire": {"frames", "messages", "codec", "errors"},
    "doors": {"session", "request_context", "handlers", "errors"},
    "clients": {"requests", "binding", "client", "errors"},
}
OPTIONAL = {
    "wire": set(),
    "doors": {"states", "subscriptions"},
    "clients": {"subscription", "event_buffer", "results"},
}
MISSING = {("clients", "felix"): {"binding"}}  # a connection with many streams: the core's drivers have one socket


def modules(room: str, protocol: str) -> set[str]:
    found = (SOURCE / room / protocol).iterdir()
    return {each.stem for each in found if (each.suffix == ".py" or (each / "__init__.py").exists())} - {"__init__"}


def listed(package: str) -> set[str]:
    """The modules that the page lists for this package, besides those of every protocol."""
    row = re.search(rf"^\| `{package}` \| (.*?) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    return set() if row is None else set(re.findall(r"`(\w+)(?:\.py|/)`", row[1]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("room", ROOMS)
def test_a_package_has_what_all_have_and_what_the_page_lists(room: str, protocol: str) -> None:
    found = modules(room, protocol)
    assert REQUIRED[room] - found == MISSING.get((room, protocol), set())
    assert found - REQUIRED[room] - OPTIONAL[room] == listed(f"{room}/{protocol}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_door_lists_its_requests_in_one_table(protocol: str) -> None:
    assert (SOURCE / "doors" / protocol / "handlers" / "table.py").exists()
