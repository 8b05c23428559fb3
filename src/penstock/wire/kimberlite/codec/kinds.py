"""The kinds of values that messages consist of: used by schemas, implemented by encodings."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias


class Scalar(enum.Enum):
    U8 = enum.auto()
    U16 = enum.auto()
    U32 = enum.auto()
    U64 = enum.auto()
    I64 = enum.auto()
    BOOL = enum.auto()
    TEXT = enum.auto()
    BYTES = enum.auto()
    VALUE = enum.auto()  # a parameter of a statement, or a cell of its result


U8, U16, U32, U64, I64 = Scalar.U8, Scalar.U16, Scalar.U32, Scalar.U64, Scalar.I64
BOOL, TEXT, BYTES, VALUE = Scalar.BOOL, Scalar.TEXT, Scalar.BYTES, Scalar.VALUE


@dataclass(frozen=True, slots=True)
class Option:
    """A value or None."""

    of: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """A count, and that many values."""

    of: Kind
    limit: int | None = None  # of elements; a longer list is rejected before it is decoded


@dataclass(frozen=True, slots=True)
class Label:
    """One of several names, sent as its number. In the program any object may represent a name."""

    what: str  # for error messages
    names: tuple[Any, ...]


class Field(NamedTuple):
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Record:
    """Consecutive fields: the first ones of a class, in its order. The others keep their defaults."""

    make: type[Any]
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several records, identified by its number."""

    what: str
    variants: tuple[Record, ...]


Kind: TypeAlias = Scalar | Option | ListOf | Label | Record | Choice
