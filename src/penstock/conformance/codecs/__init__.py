"""Our codecs, as the suite sees them: one module for each protocol, that reads a vector and writes it again."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast

import msgspec

from penstock.conformance.vectors import Vector


class Rejected(Exception):
    """Bytes that the codec refuses, as the protocol has it: `how` is "close" for what ends the connection, "error" for
    what is answered, "incomplete" for what is no whole frame yet."""

    def __init__(self, how: str, text: object = "", code: int | None = None) -> None:
        super().__init__(f"{how}: {text}")
        self.how = how
        self.text = str(text)
        self.code = code


class Codec(Protocol):
    """A module of this package."""

    def read(self, vector: Vector, pieces: Sequence[bytes]) -> Any:
        """The message in these bytes, which come in pieces. Raises Rejected, and nothing else."""

    def fields(self, vector: Vector, message: Any) -> dict[str, Any]:
        """The same by the names that the protocol's document has."""

    def write(self, vector: Vector, message: Any) -> bytes | None:
        """The bytes again; None for what nobody here writes."""


def codec(protocol: str) -> Codec:
    return cast("Codec", importlib.import_module(f"penstock.conformance.codecs.{protocol}"))


def plain(value: Any) -> Any:
    """A value as vectors have it: bytes in hexadecimal behind 0x, messages by their fields."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
