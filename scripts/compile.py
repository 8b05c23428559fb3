"""Compiles the modules that every record passes through, with mypyc: `make compiled`.

The source stays as it is and works without this. What is built is a copy of the package in which these modules are
machine code, which `make up` runs by putting it first on PYTHONPATH. It needs a C compiler and Python's headers.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"
BUILT = ROOT / "build" / "compiled"

# Not here: `broker/security/access`, whose `Identity` is part of messages: msgspec cannot read the annotations of a
# compiled tuple (`str | None` becomes `type`).
HOT = (
    "equal_values",
    "log/batch",
    "log/checksum",
    "log/committer",
    "log/engine",
    "log/file_engine",
    "log/group_format",
    "log/index",
    "log/journal",
    "log/kafka/engine",
    "log/latency",
    "log/segment",
    "log/partition",
    "log/slice_collector",
    "log/open_batch",
    "log/open_group",
    "log/plain_batch",
    "log/single_batch",
    "broker/subscriptions/fanout_chunk",
    "broker/subscriptions/fanout",
    "broker/broker",
    "broker/cache/cache_service",
    "broker/cache/cache_store",
    "broker/produce/produce_service",
    "broker/produce/validation",
    "broker/fetch/fetch_service",
    "broker/state/state_log",
    "broker/fetch/visible_read",
    "broker/runtime/clock",
    "broker/runtime/metrics",
    "broker/runtime/turns",
    "broker/produce/partitioning",
    "broker/queues/queue",
    "broker/queues/queues",
    "broker/queues/dequeue",
    "broker/topics/topic_rules",
    "doors/fetch",
    "doors/request_context",
    "doors/pipeline",
    "doors/reply_queue",
    "transport/spin_budget",
    "wire/framing",
    "doors/blipmq/produce_batch",
    "doors/blipmq/request_context",
    "doors/blipmq/single_publish",
    "doors/blipmq/handlers/poll",
    "doors/blipmq/handlers/publish",
    "doors/blipmq/subscriptions",
    "wire/blipmq/codec",
    "wire/blipmq/frames",
    "doors/blipmq/session",
    "wire/felix/codec/binary",
    "wire/felix/codec/dialects",
    "wire/felix/codec/requests",
    "wire/felix/codec/strict_json",
    "wire/felix/frames",
    "doors/felix/handlers/cache",
    "doors/felix/handlers/publish",
    "doors/felix/produce_batch",
    "doors/felix/request_context",
    "doors/felix/stream",
    "doors/felix/subscriptions",
    "wire/flymq/frames",
    "doors/flymq/handlers/fetch",
    "doors/flymq/handlers/records",
    "wire/flymq/codec/fetched_records",
    "wire/flymq/codec/replies",
    "wire/flymq/codec/requests",
    "wire/flymq/codec/coalesced_produce",
    "wire/flymq/codec/single_produce",
    "doors/flymq/request_context",
    "doors/flymq/session",
    "wire/kimberlite/frames",
    "wire/rustlog/codec/binary_dialect",
    "wire/rustlog/codec/single_produce",
    "wire/rustlog/frames",
    "doors/kimberlite/handlers/fetch",
    "doors/kimberlite/request_context",
    "doors/kimberlite/session",  # because its base is compiled, and a class that is not could not inherit from it
    "doors/rustlog/handlers/fetch",
    "doors/rustlog/handlers/records",
    "doors/rustlog/request_context",
    "doors/rustlog/session",
    "transport/connection_limits",
    "transport/port",
    "transport/tcp_connection",
    "transport/busy_poll",
    "transport/quic_sessions",
    "transport/quic/burst",
    "transport/quic/client",  # because its base is compiled
    "transport/quic/connection",
    "transport/quic/endpoint",
    "transport/quic/timers",
    "transport/quic/udp",
)


def main() -> None:
    _require_compiler()
    fresh = BUILT.with_name("compiling")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(SOURCE, fresh / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    # As in a wheel: what is not in a checkout finds its vectors beside its code.
    shutil.copytree(ROOT / "conformance" / "vectors", fresh / "penstock" / "conformance" / "vectors")
    os.chdir(fresh)
    options = ["--follow-imports=silent", "--ignore-missing-imports"]
    modules = mypycify([*options, *(f"penstock/{name}.py" for name in HOT)], opt_level="3", debug_level="0")
    distribution = Distribution({"name": "penstock", "ext_modules": modules})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.ensure_finalized()
    command.run()
    shutil.rmtree(fresh / "build", ignore_errors=True)
    shutil.rmtree(BUILT, ignore_errors=True)
    fresh.rename(BUILT)
    print(f"{len(HOT)} modules are compiled: make up")


def _require_compiler() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if shutil.which(compiler) is None or not headers.exists():
        sys.exit(
            f"Compiling needs a C compiler ({compiler}) and Python's headers ({headers}).\n"
            "  Debian, Ubuntu:  sudo apt install gcc python3-dev\n"
            "Penstock runs without it: make up"
        )


if __name__ == "__main__":
    main()
