"""Records as JSON objects: the output of `consume --output jsonl`, and the input of `produce --format jsonl`.

Keys, values and headers are texts; those that are not UTF-8 are in base64, in `key_base64` and `value_base64`, or in an
object `{"base64": …}` for a header. A repeated header has a list.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.cli.failure import fail

if TYPE_CHECKING:
    from penstock.connection import Record


class RecordInput(NamedTuple):
    """A record to produce."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def as_object(record: Record) -> dict[str, Any]:
    """A consumed record as an object."""
    headers: dict[str, Any] = {}
    for name, value in record.headers:
        shown = _shown(value)
        known = headers.get(name)
        if name not in headers:
            headers[name] = shown
        elif isinstance(known, list):
            known.append(shown)
        else:
            headers[name] = [known, shown]
    time = record.time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": time,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        text = None if data is None else _shown(data)
        found |= {f"{name}_base64": text["base64"]} if isinstance(text, dict) else {name: text}
    return found | {"headers": headers}


def parse_line(line: bytes, number: int) -> RecordInput:
    """A record from one line; its topic, partition, offset and time are ignored. Ends the command if it is invalid."""
    try:
        found = msgspec.json.decode(line)
        if not isinstance(found, dict):
            raise ValueError("expected an object")
        value = _data(found, "value")
        if value is None:
            raise ValueError("there is no value")
        headers = [
            (name, _bytes(each))
            for name, held in (found.get("headers") or {}).items()
            for each in (held if isinstance(held, list) else [held])
        ]
        return RecordInput(value, _data(found, "key"), tuple(headers))
    except (ValueError, AttributeError, msgspec.MsgspecError) as error:  # binascii.Error is a ValueError
        fail(f"line {number}: {error}")


def _shown(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _data(found: dict[str, Any], name: str) -> bytes | None:
    """A text, or any JSON value as its text; or decoded base64."""
    if f"{name}_base64" in found:
        return _bytes({"base64": found[f"{name}_base64"]})
    value = found.get(name)
    return None if value is None else _bytes(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, binascii.Error) as error:
            raise ValueError(f"not base64: {error}") from error
    return msgspec.json.encode(value)
