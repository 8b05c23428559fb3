"""Adapters of our codecs for the suite: one module for each protocol, which decodes a vector and encodes it again."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast

import msgspec

from penstock.conformance.vectors import Vector


class Rejected(Exception):
    """The codec rejects the bytes in the protocol's way: `how` is "close" if it ends the connection, "error" if it is
    answered with an error, "incomplete" if the frame is not complete."""

    def __init__(self, how: str, text: object = "", code: int | None = None) -> None:
        super().__init__(f"{how}: {text}")
        self.how = how
        self.text = str(text)
        self.code = code


class Codec(Protocol):
    """The interface of a module in this package."""

    def read(self, vector: Vector, pieces: Sequence[bytes]) -> Any:
        """Decode the message in these bytes, which arrive in pieces. Raises Rejected, and nothing else."""

    def fields(self, vector: Vector, message: Any) -> dict[str, Any]:
        """The message as a dict, with the field names of the specification."""

    def write(self, vector: Vector, message: Any) -> bytes | None:
        """The encoded message; None for messages that we never encode."""


def codec(protocol: str) -> Codec:
    return cast("Codec", importlib.import_module(f"penstock.conformance.codecs.{protocol}"))


def plain(value: Any) -> Any:
    """A value in the notation of vectors: bytes as 0x and hexadecimal, messages as dicts."""
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
