"""Imports go down the layers only, and no protocol knows another. Read from the source, without running it.

And what the broker loads when it starts, by loading it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# A layer may import itself and those below it.
LAYERS = ("cli", "net", "config", "conformance", "protocols", "spark", "sql", "flight", "core", "log", "quic")
BESIDE = ("spark", "sql", "flight")  # for programs beside the broker: protocols know nothing of them
MODULE_LAYER = {"config_layers": "config"}  # top-level modules that share a layer
# What every protocol may use.
SHARED_IN_PROTOCOLS = ("answers", "session", "ordered", "outbox", "patience", "retry", "streams")


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "penstock" or len(parts) < 2:
        return None
    return MODULE_LAYER.get(parts[1], parts[1])


def protocol_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[:2] != ["penstock", "protocols"] or len(parts) < 3 or parts[2] in SHARED_IN_PROTOCOLS:
        return None
    return parts[2]


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """(line, imported module) of every import, wherever in the file it stands."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def violations(source: Path) -> list[str]:
    found = []
    for path in sorted(source.glob("penstock/**/*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        own = layer_of(module)
        for line, imported in imports(path, module):
            theirs = layer_of(imported)
            if own is None or theirs is None or theirs == "__version__":
                continue
            if own not in LAYERS or theirs not in LAYERS:
                found.append(f"{module}:{line}: {own} or {theirs} is no layer; add it to LAYERS")
            elif LAYERS.index(theirs) < LAYERS.index(own):
                found.append(f"{module}:{line}: {own} imports {imported}, which is above it")
            elif own == "protocols" and theirs in BESIDE:
                found.append(f"{module}:{line}: {own} imports {imported}, which is beside it")
            elif own == "protocols" and protocol_of(imported) not in (None, protocol_of(module)):
                found.append(f"{module}:{line}: imports another protocol, {imported}")
    return found


def test_the_source_keeps_to_the_layers() -> None:
    assert len(list(SOURCE.glob("penstock/**/*.py"))) > 20
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("core/topics.py", "from penstock.protocols.session import Door", "core imports penstock.protocols"),
        ("core/topics.py", "import penstock.net.server", "core imports penstock.net.server"),
        ("core/topics.py", "from penstock import cli", "core imports penstock.cli"),
        ("log/engine.py", "from penstock.core import state", "log imports penstock.core"),
        ("log/engine.py", "def f():\n    from penstock.core.state import State", "log imports penstock.core"),
        ("log/engine.py", "from ..core import state", "log imports penstock.core"),
        ("log/engine.py", "import typing\nif typing.TYPE_CHECKING:\n    import penstock.core.state", "log imports"),
        ("protocols/rustlog/session.py", "import penstock.net.gate", "protocols imports penstock.net.gate"),
        ("protocols/rustlog/session.py", "from penstock.config import Settings", "protocols imports penstock.config"),
        ("protocols/rustlog/session.py", "from penstock.protocols.felix import codec", "imports another protocol"),
        ("protocols/rustlog/session.py", "from penstock.protocols import felix", "imports another protocol"),
        ("protocols/rustlog/client/x.py", "from penstock.protocols.felix.codec import F", "imports another protocol"),
        ("protocols/outbox.py", "from penstock.protocols.rustlog import session", "imports another protocol"),
        ("net/server.py", "from penstock.cli.main import app", "net imports penstock.cli"),
        ("config_layers.py", "from penstock.net import server", "config imports penstock.net"),
        (
            "protocols/rustlog/session.py",
            "from penstock.flight.log import Log",
            "which is beside it",
        ),
        (
            "protocols/outbox.py",
            "def f():\n    import penstock.spark.source",
            "which is beside it",
        ),
        ("spark/source.py", "from penstock.protocols.rustlog import client", "spark imports penstock.protocols"),
        ("spark/source.py", "from penstock.config import Settings", "spark imports penstock.config"),
        ("flight/client.py", "from penstock.spark import options", "flight imports penstock.spark"),
        ("flight/reading.py", "from penstock.net.backstage import Backstage", "flight imports penstock.net"),
        ("core/tables.py", "from penstock.flight.log import Log", "core imports penstock.flight"),
        ("log/tables/build.py", "from penstock.core.state import State", "log imports penstock.core"),
        ("log/tables/build.py", "from ...flight import log", "log imports penstock.flight"),
        ("helpers/x.py", "from penstock.core import state", "is no layer"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, said: str) -> None:
    file = tmp_path / "penstock" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    found = violations(tmp_path)
    assert len(found) == 1 and said in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cli/main.py", "from penstock.net.server import run\nfrom penstock.log import verify\nimport penstock"),
        (
            "net/doors.py",
            "from penstock.protocols.rustlog import session\nfrom penstock.protocols.felix import session",
        ),
        ("protocols/rustlog/session.py", "from penstock.protocols.rustlog.framing import Framer"),
        ("protocols/rustlog/session.py", "from penstock.protocols.outbox import Outbox\nfrom penstock.core import x"),
        ("net/http.py", "from penstock import __version__\nfrom http import HTTPStatus"),
        ("log/engine.py", "from penstock.log.batch import x"),
        ("spark/source.py", "from penstock.flight.connect import connect\nfrom penstock.core import names"),
        ("flight/directory.py", "from penstock.core.offline import OfflineLog\nfrom penstock.log.arrow import live"),
        ("net/flight_server.py", "from penstock.flight.reading import Reader"),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, path: str, text: str) -> None:
    file = tmp_path / "penstock" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert violations(tmp_path) == []


def test_the_broker_starts_without_what_only_its_children_need() -> None:
    """Arrow and Delta take long to load and much memory, and would do their work in the broker's process."""
    code = "import sys, penstock.cli.main, penstock.net.server; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "penstock.log.file_engine" in loaded
    assert {"pyarrow", "deltalake", "numpy", "pyspark", "grpc", "duckdb", "sqlglot"}.isdisjoint(loaded)
    assert {"qh3", "cryptography"}.isdisjoint(loaded)  # for brokers whose QUIC door is off
