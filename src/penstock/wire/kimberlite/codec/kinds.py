"""The kinds of values that messages are made of: what a schema says, and an encoding carries out."""

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
    """Values one after the other, and before them how many."""

    of: Kind
    limit: int | None = None  # of them; a longer list is refused before it is read


@dataclass(frozen=True, slots=True)
class Label:
    """One of several names, sent as its number. What stands for a name in a program may be any object."""

    what: str  # for messages
    names: tuple[Any, ...]


class Field(NamedTuple):
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Record:
    """Fields one after the other: the first ones of a class, in its order. The others keep their defaults."""

    make: type[Any]
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several records, told apart by its number."""

    what: str
    variants: tuple[Record, ...]


Kind: TypeAlias = Scalar | Option | ListOf | Label | Record | Choice
