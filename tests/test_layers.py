"""The imports that each package may have: the one list of layers, read from the source without running it.

And what the broker loads when it starts, by loading it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.syntax_trees import statements

SOURCE = Path(__file__).parent.parent / "src"

# What each package may import besides itself and what `SHARED` names. Nothing imports `cli`.
LAYERS: dict[str, tuple[str, ...]] = {
    "cli": (
        *("server", "config", "admin", "workers", "transport", "doors", "mirror", "connection", "clients"),
        *("conformance", "spark", "sql", "flight", "broker", "wire", "log"),
    ),
    "server": ("config", "admin", "workers", "transport", "doors", "spark", "flight", "broker", "log"),
    "config": ("workers", "transport", "doors", "broker", "wire", "log"),
    "admin": ("doors", "broker", "log"),
    "workers": ("sql", "flight", "broker", "log"),
    "transport": ("doors", "broker", "log"),
    "doors": ("wire", "broker", "log"),
    "mirror": ("connection", "clients", "wire"),
    "connection": ("clients", "wire"),
    "conformance": ("clients", "wire"),
    "clients": ("wire",),
    "spark": ("flight", "broker", "log"),
    "sql": ("broker", "log"),
    "flight": ("broker", "log"),
    "broker": ("log",),
    "wire": (),
    "log": (),
    "transport.quic": (),
}
# Modules that import nothing of ours outside themselves, and that others may use although their package is closed
# to them: what both ends of a connection share.
SHARED = {
    "transport.quic": ("transport", "clients", "conformance", "server", "config", "cli"),
    "transport.spin_budget": ("transport", "clients"),
    "equal_values": ("doors", "broker", "wire", "log"),
    "retry": ("cli", "workers", "mirror", "connection", "clients", "spark", "flight", "log"),
    "structured_logging": ("cli", "config", "workers"),
    "typed_decoding": (
        *("cli", "server", "admin", "workers", "doors", "mirror", "conformance", "clients", "spark", "flight", "log"),
    ),
}
ROOMS = ("wire", "doors", "clients")  # rows of one package for each protocol
PROTOCOLS = ("rustlog", "blipmq", "flymq", "kimberlite", "felix")


def package_of(module: str) -> str | None:
    """The entry of `LAYERS` or `SHARED` that a module belongs to."""
    parts = module.split(".")
    if parts[0] != "penstock" or len(parts) < 2 or parts[1].startswith("__"):
        return None
    for name in (*SHARED, *LAYERS):
        if module == f"penstock.{name}" or module.startswith(f"penstock.{name}."):
            return name
    return parts[1]


def protocol_of(module: str) -> str | None:
    parts = module.split(".")
    if len(parts) > 2 and parts[1] in ROOMS and parts[2] in PROTOCOLS:
        return parts[2]
    return None


def allowed(own: str, theirs: str) -> bool:
    if own == theirs:
        return True
    if theirs in SHARED:
        return own in SHARED[theirs]
    return theirs in LAYERS.get(own, ())


def module_name(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path, module: str) -> tuple[tuple[int, str], ...]:
    """(line, imported module) of every import, wherever in the file it stands."""
    return tuple(_imports(path, module))


def _imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text(), str(path))):
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
        module = module_name(path, source)
        own = package_of(module)
        for line, imported in imports(path, module):
            theirs = package_of(imported)
            if own is None or theirs is None:
                continue
            if any(name not in LAYERS and name not in SHARED for name in (own, theirs)):
                found.append(f"{module}:{line}: {own} or {theirs} is in no layer; add it to LAYERS")
            elif not allowed(own, theirs):
                found.append(f"{module}:{line}: {own} imports {imported}, which is not below it")
            elif protocol_of(module) and protocol_of(imported) not in (None, protocol_of(module)):
                found.append(f"{module}:{line}: imports another protocol, {imported}")
    return found


def cycles(source: Path) -> list[list[str]]:
    """Modules that import each other in a circle, by imports of any kind: at the top, lazily, for type checking."""
    modules = {module_name(path, source): path for path in source.glob("penstock/**/*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        targets = set()
        for _, imported in imports(path, module):
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules and target != module:
                targets.add(target)
        graph[module] = targets
    return [sorted(part) for part in strongly_connected(graph) if len(part) > 1]


def strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    """Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.append(part)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_the_source_keeps_to_the_layers() -> None:
    assert len(list(SOURCE.glob("penstock/**/*.py"))) > 20
    assert violations(SOURCE) == []


def test_there_are_no_import_cycles() -> None:
    assert cycles(SOURCE) == []


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("broker/topics/topics.py", "from penstock.doors.session import Door", "broker imports penstock.doors"),
        ("broker/topics/topics.py", "import penstock.server.server", "broker imports penstock.server.server"),
        ("broker/topics/topics.py", "from penstock import cli", "broker imports penstock.cli"),
        ("log/engine.py", "from penstock.broker import state", "log imports penstock.broker"),
        ("log/engine.py", "def f():\n    from penstock.broker.state import State", "log imports penstock.broker"),
        ("log/engine.py", "from ..broker import state", "log imports penstock.broker"),
        ("log/engine.py", "import typing\nif typing.TYPE_CHECKING:\n    import penstock.broker.state", "log imports"),
        ("doors/rustlog/session.py", "import penstock.transport.tls", "doors imports penstock.transport.tls"),
        ("doors/rustlog/session.py", "from penstock.config import Settings", "doors imports penstock.config"),
        ("doors/rustlog/session.py", "from penstock.doors.felix import session", "imports another protocol"),
        ("doors/rustlog/session.py", "from penstock.wire import felix", "imports another protocol"),
        ("doors/rustlog/session.py", "from penstock.clients.rustlog import Client", "doors imports penstock.clients"),
        (
            "doors/felix/stream.py",
            "from penstock.transport.quic import client",
            "doors imports penstock.transport.quic",
        ),
        ("doors/reply_queue.py", "def f():\n    import penstock.spark.source", "doors imports penstock.spark"),
        ("clients/rustlog/client.py", "from penstock.wire.felix.messages import F", "imports another protocol"),
        ("clients/rustlog/client.py", "from penstock.broker.errors import X", "clients imports penstock.broker"),
        ("clients/rustlog/client.py", "from penstock.transport.tls import X", "clients imports penstock.transport"),
        ("wire/rustlog/messages.py", "from penstock.log.batch import X", "wire imports penstock.log"),
        ("wire/rustlog/messages.py", "from penstock.broker.errors import X", "wire imports penstock.broker"),
        ("transport/quic/udp.py", "from penstock.log.errors import X", "transport.quic imports penstock.log"),
        ("transport/quic/udp.py", "from penstock.transport.tls import X", "transport.quic imports penstock.transport"),
        ("server/server.py", "from penstock.cli.main import app", "server imports penstock.cli"),
        ("config/layers.py", "from penstock.server import server", "config imports penstock.server"),
        ("workers/sql/main.py", "from penstock.config.settings import X", "workers imports penstock.config"),
        ("spark/source.py", "from penstock.clients.rustlog import Client", "spark imports penstock.clients"),
        ("spark/source.py", "from penstock.config import Settings", "spark imports penstock.config"),
        ("flight/client.py", "from penstock.spark import options", "flight imports penstock.spark"),
        ("flight/reading.py", "from penstock.workers.rpc import X", "flight imports penstock.workers"),
        ("broker/tables/tables.py", "from penstock.flight.log import Log", "broker imports penstock.flight"),
        ("log/tables/build.py", "from ...flight import log", "log imports penstock.flight"),
        ("helpers/x.py", "from penstock.broker import state", "is in no layer"),
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
        ("cli/main.py", "from penstock.server.server import run\nfrom penstock.log import verify\nimport penstock"),
        ("server/doors.py", "from penstock.doors.rustlog import session\nfrom penstock.doors.felix import session"),
        ("doors/rustlog/session.py", "from penstock.wire.rustlog.frames import Framer"),
        ("doors/rustlog/session.py", "from penstock.doors.reply_queue import X\nfrom penstock.broker import x"),
        ("admin/http.py", "from penstock import __version__\nfrom http import HTTPStatus"),
        ("log/engine.py", "from penstock.log.batch import x"),
        ("clients/felix/connection.py", "from penstock.transport.quic.client import connect"),
        ("spark/source.py", "from penstock.flight.connect import connect\nfrom penstock.broker import names"),
        ("workers/flight/server.py", "from penstock.flight.reading import Reader"),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, path: str, text: str) -> None:
    file = tmp_path / "penstock" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(
    "importing",
    [
        "from penstock.log import b",
        "from penstock.log.b import x",
        "def f():\n    import penstock.log.b",
        "import typing\nif typing.TYPE_CHECKING:\n    from penstock.log.b import x",
    ],
)
def test_a_planted_cycle_is_found(tmp_path: Path, importing: str) -> None:
    package = tmp_path / "penstock" / "log"
    package.mkdir(parents=True)
    (package / "a.py").write_text(importing)
    (package / "b.py").write_text("from penstock.log.a import y")
    (package / "c.py").write_text("from penstock.log.a import y")
    assert cycles(tmp_path) == [["penstock.log.a", "penstock.log.b"]]


@pytest.mark.process
def test_the_broker_starts_without_what_only_its_workers_need() -> None:
    """Arrow and Delta take long to load and much memory, and would do their work in the broker's process."""
    code = "import sys, penstock.cli.main, penstock.server.server; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "penstock.log.file_engine" in loaded
    assert {"pyarrow", "deltalake", "numpy", "pyspark", "grpc", "duckdb", "sqlglot", "confluent_kafka"}.isdisjoint(
        loaded
    )
    assert {"qh3", "cryptography"}.isdisjoint(loaded)  # for brokers whose QUIC door is off
    assert "confluent_kafka" not in loaded  # for those whose journal is on Kafka
