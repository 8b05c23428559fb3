"""Compatibility of protobuf messages: can one be read as another, by the rules of the binary encoding? Field numbers
matter, names do not.

A field that only one side has is skipped by the other. A field that both have must be readable without loss: the
reader's type may be wider, never narrower (`WIDER`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor as Field

from penstock.broker.schemas.formats.format import MAX_PROBLEMS, Sides

MAX_STEPS: Final = 20_000  # fields compared

NAMES: Final = {
    getattr(Field, name): name.removeprefix("TYPE_").lower() for name in dir(Field) if name.startswith("TYPE_")
}

# written type → other types that can read it without loss
WIDER: Final = {
    "bool": ("int32", "uint32", "int64", "uint64"),
    "int32": ("int64",),
    "uint32": ("int64", "uint64"),
    "sint32": ("sint64",),
    "enum": ("int32", "int64"),
    "string": ("bytes",),
}


def problems(reader: Any, writer: Any, sides: Sides) -> list[str]:
    comparison = _Comparison(sides)
    found = list(dict.fromkeys(comparison.messages(reader, writer)))
    return ["the schemas are too intricate to be compared"] if comparison.steps > MAX_STEPS else found[:MAX_PROBLEMS]


class _Comparison:
    def __init__(self, sides: Sides) -> None:
        self._new, self._old = sides  # named for the case that the reader is the new one
        self._known: set[tuple[str, str]] = set()
        self.steps = 0

    def messages(self, reader: Any, writer: Any) -> Iterator[str]:
        """Compare two messages and those nested in them. Iterative, as messages may be nested deeply."""
        waiting = [(reader, writer)]
        while waiting and self.steps <= MAX_STEPS:
            mine, theirs = waiting.pop()
            key = (mine.full_name, theirs.full_name)
            if key in self._known:
                continue
            self._known.add(key)
            yield from self._required(mine, theirs)
            yield from self._oneofs(mine, theirs)
            for number, written in theirs.fields_by_number.items():
                self.steps += 1
                read = mine.fields_by_number.get(number)
                if read is None:
                    continue
                yield from self._field(read, written)
                if read.message_type is not None and written.message_type is not None:
                    waiting.append((read.message_type, written.message_type))

    def _field(self, read: Any, written: Any) -> Iterator[str]:
        mine, theirs = NAMES[read.type], NAMES[written.type]
        what = f"field {read.number} ({self._old} '{written.full_name}', {self._new} '{read.full_name}')"
        if mine != theirs and mine not in WIDER.get(theirs, ()):
            yield f"{what} changes its type from {theirs} to {mine}"
        elif written.is_repeated and not read.is_repeated:
            yield f"{what} is repeated in the {self._old} schema only"
        elif _is_map(read) != _is_map(written):
            yield f"{what} is a map on one side only"
        elif mine == theirs == "enum" and read.enum_type.is_closed:
            missing = sorted(set(written.enum_type.values_by_number) - set(read.enum_type.values_by_number))
            if missing:
                yield f"{what} can have the enum numbers {missing[:10]}, which the {self._new} schema lacks"

    def _required(self, reader: Any, writer: Any) -> Iterator[str]:
        for number, read in reader.fields_by_number.items():
            if not read.is_required:
                continue
            written = writer.fields_by_number.get(number)
            if written is None:
                yield f"{self._new} required field '{read.name}' not in {self._old} schema"
            elif not written.is_required:
                yield f"field '{read.name}' is required in the {self._new} schema, optional in the {self._old}"

    def _oneofs(self, reader: Any, writer: Any) -> Iterator[str]:
        """If several fields can be set at once, a reader that has them in one oneof keeps only the last."""
        for group in reader.oneofs:
            known = [writer.fields_by_number[it.number] for it in group.fields if it.number in writer.fields_by_number]
            together = {None if it.containing_oneof is None else it.containing_oneof.name for it in known}
            if len(known) > 1 and (len(together) > 1 or together == {None}):
                names = ", ".join(it.name for it in known)
                yield f"fields {names} can all be set in the {self._old} schema, only one in the {self._new} one"


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
