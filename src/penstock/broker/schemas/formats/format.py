"""The interface of every schema language, and types common to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.broker.schemas.schema import Schema

MAX_PROBLEMS: Final = 10  # in the result of `compatible`

Validator: TypeAlias = Callable[[bytes], list[str]]
"""The reasons why a message is invalid; empty if it is valid. Takes time and memory proportional to the message,
whatever its content, and never raises."""


Decoder: TypeAlias = Callable[[bytes], Any]
"""The value of a valid message in JSON's types; bytes become base64. Takes memory proportional to the message;
raises ValueError for a valid message that cannot be represented."""


class Sides(NamedTuple):
    """The names of reader and writer in messages."""

    reader: str
    writer: str


class Format(Protocol):
    def prepare(self, definition: bytes) -> bytes:
        """Check the definition, and return data to store beside it (empty if none). May be slow. Raises SchemaInvalid
        for an invalid definition, and for one whose validation could not be bounded as `Validator` requires.
        """

    def validator(self, schema: Schema) -> Validator:
        """The validator of a schema that `prepare` has accepted."""

    def decoder(self, schema: Schema) -> Decoder:
        """The decoder of a schema that `prepare` has accepted, for messages that its validator has accepted."""

    def compatible(self, reader: Schema, writer: Schema, sides: Sides) -> list[str]:
        """The reasons why `reader` cannot read some data that is valid for `writer`. An undecidable case is a reason
        too. Takes bounded time.
        """
