"""Typed decoding, from several threads that meet a type for the first time."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.typed_decoding import decode_json, decode_msgpack

SOURCE = Path(__file__).parent.parent / "src"

AT_ONCE = """
import sys, threading
import msgspec
from penstock.typed_decoding import decode_json, decode_msgpack

sys.setswitchinterval(1e-6)
data = b'{"first": 1, "rest": [{"name": "x", "parts": {"y": 1}}]}'
for _ in range(300):
    part = msgspec.defstruct("Part", [("name", str), ("parts", dict[str, int])])
    whole = msgspec.defstruct("Whole", [("first", int), ("rest", list[part])])
    barrier = threading.Barrier(4)

    def meet() -> None:
        barrier.wait()
        for _ in range(3):
            assert decode_json(data, whole).rest[0].parts == {"y": 1}
            assert decode_msgpack(msgspec.msgpack.encode(msgspec.json.decode(data)), whole).first == 1

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


class Point(msgspec.Struct):
    x: int


def test_a_value_has_its_type() -> None:
    assert decode_json(b'{"x": 1}', Point) == decode_json('{"x": 1}', Point) == Point(1)
    assert decode_msgpack(msgspec.msgpack.encode(Point(2)), Point) == Point(2)
    assert decode_json(b"[1]", list[int]) == [1]
    with pytest.raises(msgspec.ValidationError):
        decode_json(b'{"x": "1"}', Point)


@pytest.mark.process
def test_threads_that_meet_a_type_at_once_do_not_crash() -> None:
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_decodes_a_type_in_another_way() -> None:
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in SOURCE.rglob("*.py") for line in _untyped_calls(path)]
    assert found == [], "use penstock.typed_decoding, or a decoder that is made when the module is imported"


def _untyped_calls(path: Path) -> Iterator[int]:
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    for call in calls:
        typed = len(call.args) > 1 or any(keyword.arg == "type" for keyword in call.keywords)
        if typed and ast.unparse(call.func) in ("msgspec.json.decode", "msgspec.msgpack.decode"):
            yield call.lineno
