"""The interface of every schema language, and types common to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.broker.schemas.schema import Schema

MAX_PROBLEMS: Final = 10  # in the result of `compatible`

Validator: TypeAlias = Callable[[bytes], list[str]]
"""Why a message does not fit; nothing if it does. Takes time and memory in proportion to the message, whatever is in
it, and never raises."""


Decoder: TypeAlias = Callable[[bytes], Any]
"""The value of a message that fits, as JSON can say it; bytes in it are base64 there. Takes memory in proportion to the
message; raises ValueError for what fits and cannot be shown."""


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
