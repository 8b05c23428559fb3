"""The interface of every schema language, and the words that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.broker.schemas.schema import Schema

MAX_PROBLEMS: Final = 10  # of what `compatible` tells

Validator: TypeAlias = Callable[[bytes], list[str]]
"""Why a message does not fit; nothing if it does. Takes time and memory in proportion to the message, whatever is in
it, and never raises."""


Decoder: TypeAlias = Callable[[bytes], Any]
"""The value of a message that fits, as JSON can say it; bytes in it are base64 there. Takes memory in proportion to the
message; raises ValueError for what fits and cannot be shown."""


class Sides(NamedTuple):
    """The names of reader and writer in a text."""

    reader: str
    writer: str


class Format(Protocol):
    def prepare(self, definition: bytes) -> bytes:
        """Check the definition, and make of it what is to be kept beside it ("" if nothing). May be slow; raises
        SchemaInvalid for what is no schema, and for one with which a validator could not keep its promise."""

    def validator(self, schema: Schema) -> Validator:
        """For a schema that `prepare` has passed."""

    def decoder(self, schema: Schema) -> Decoder:
        """For a schema that `prepare` has passed, and messages that its validator has."""

    def compatible(self, reader: Schema, writer: Schema, sides: Sides) -> list[str]:
        """The reasons why `reader` could not read something that fits `writer`. What cannot be decided is a reason too.
        The time taken is bounded."""
