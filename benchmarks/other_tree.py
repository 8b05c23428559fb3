"""The exchanges of this tree on the code of another one: `rows_of` starts a process that imports `penstock` from there.

The other tree may be one from before `core`, `net` and `protocols` became `broker`, `transport`, `wire` and `doors`:
the exchanges then import by today's names and get what was there then.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any, Final

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODULES: Final = {
    "penstock.broker.queues.queue": "penstock.core.queue",
    "penstock.broker.runtime.clock": "penstock.core.clock",
    "penstock.broker.security.access": "penstock.core.access",
    "penstock.doors.blipmq.session": "penstock.protocols.blipmq.session",
    "penstock.doors.felix.request_context": "penstock.protocols.felix.call",
    "penstock.doors.felix.session": "penstock.protocols.felix.session",
    "penstock.doors.flymq.request_context": "penstock.protocols.flymq.operations.call",
    "penstock.doors.flymq.session": "penstock.protocols.flymq.session",
    "penstock.doors.kimberlite.request_context": "penstock.protocols.kimberlite.call",
    "penstock.doors.kimberlite.session": "penstock.protocols.kimberlite.session",
    "penstock.doors.rustlog.session": "penstock.protocols.rustlog.session",
    "penstock.doors.session": "penstock.protocols.session",
    "penstock.doors.streams": "penstock.protocols.streams",
    "penstock.wire.felix.codec.binary": "penstock.protocols.felix.binary",
    "penstock.wire.felix.frames": "penstock.protocols.felix.frames",
    "penstock.wire.kimberlite.messages": "penstock.protocols.kimberlite.messages",
}


def packages_of(tree: str) -> str:
    """Where its package is: `src` in a checkout; or the directory itself, as `build/compiled`."""
    source = os.path.join(os.path.abspath(tree), "src")
    return source if os.path.isdir(source) else os.path.abspath(tree)


def rows_of(packages: str, directory: str) -> list[tuple[str, float, str]]:
    """`exchange_times.rows` of the package that is there."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((packages, _ROOT))}
    command = [sys.executable, "-P", "-m", "benchmarks.other_tree", packages, directory]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return [(name, microseconds, note) for name, microseconds, note in json.loads(done.stdout)]


def _main(packages: str, directory: str) -> None:
    package = importlib.import_module("penstock").__file__
    if package is None or not package.startswith(packages + os.sep):
        sys.exit(f"there is no penstock in {packages}")
    if importlib.util.find_spec("penstock.broker") is None:
        _define_names()
    exchange_times = importlib.import_module("benchmarks.exchange_times")
    json.dump(list(exchange_times.rows(directory)), sys.stdout)


def _define_names() -> None:
    for name, older in _MODULES.items():
        _define(name, importlib.import_module(older))
    _define("penstock.broker.broker", _module(Broker=_broker))
    _define("penstock.broker.settings", _module(BrokerSettings=dict))
    wire = importlib.import_module("penstock.protocols.kimberlite.wire")
    _define("penstock.wire.kimberlite.codec.connection", _module(ClientCodec=wire.ClientWire))


def _broker(engine: Any, settings: dict[str, Any] | None = None, executor: Any = None, scheduler: Any = None) -> Any:  # noqa: ARG001 - nobody was given a turn
    options = {} if settings is None else {"queue_policy": settings["queues"]}
    if executor is not None:
        options["offload"] = executor
    return importlib.import_module("penstock.core.broker").Broker(engine, **options)


def _module(**contents: Any) -> ModuleType:
    module = ModuleType("older")
    vars(module).update(contents)
    return module


def _define(name: str, module: ModuleType) -> None:
    """Makes `import name` and `from package import name` find the module."""
    package, _, last = name.rpartition(".")
    if package not in sys.modules:
        _define(package, _module(__path__=[]))
    setattr(sys.modules[package], last, module)
    sys.modules[name] = module


if __name__ == "__main__":
    _main(*sys.argv[1:])
