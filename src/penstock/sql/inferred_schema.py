"""Inferred schemas: the fields of a stream's events and their types, found by scanning every event once.

Results are cached together with their end offsets, so that the next statement scans only newer events. For a statement
that names its fields, only these are inferred, which takes a fraction of the time of finding all names.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import QueryError
from penstock.sql.engine import Engine

MAX_FIELDS: Final = 1_000  # of one stream that become columns; the others are only in `data`
KEPT_SHAPES: Final = 1_024
MOST_KEPT: Final = 3 * MAX_FIELDS  # names in one schema, including those that no event has
_AT_ONCE: Final = 100  # fields whose types are inferred in one pass

_WHOLE, _LARGE, _DOUBLE, _BOOLEAN, _TEXT, _NESTED, _NULL, _POSITIVE = (1 << bit for bit in range(8))
_BITS: Final = {
    "BIGINT": _WHOLE,
    "UBIGINT": _WHOLE | _POSITIVE,
    "DOUBLE": _DOUBLE,
    "BOOLEAN": _BOOLEAN,
    "VARCHAR": _TEXT,
    "OBJECT": _NESTED,
    "ARRAY": _NESTED,
    "NULL": _NULL,
}
_TYPES: Final = {
    _WHOLE: "BIGINT",
    _WHOLE | _LARGE: "HUGEINT",
    _LARGE: "HUGEINT",
    _DOUBLE: "DOUBLE",
    _WHOLE | _DOUBLE: "DOUBLE",
    _WHOLE | _LARGE | _DOUBLE: "DOUBLE",
    _BOOLEAN: "BOOLEAN",
    _NESTED: "JSON",
}

OBJECT: Final = (
    "CASE WHEN starts_with(data, '{') THEN data WHEN starts_with(ltrim(data, E' \\t\\n\\r'), '{') THEN data END"
)
"""The event if it looks like a JSON object; it is validated when it is read."""


class Field(NamedTuple):
    name: str
    type: str


class ColumnSource(NamedTuple):
    """The part of a stream that an inferred schema covers."""

    identity: str
    position: int | None  # everything below it; None: everything up to `ends`
    ends: tuple[tuple[int, int], ...]  # (partition, end offset)


Register = Callable[[Mapping[int, int] | None], str]
"""Makes the events from these offsets on readable: returns the name of a relation with the column `data`."""


class _InferredSchema:
    __slots__ = ("complete", "ends", "seen")

    def __init__(self, ends: tuple[tuple[int, int], ...]) -> None:
        self.ends = ends
        self.complete = False  # all names are known
        self.seen: dict[str, int] = {}  # name → bits of its types; 0: no event has it

    def copy(self, ends: tuple[tuple[int, int], ...]) -> _InferredSchema:
        other = _InferredSchema(ends)
        other.complete, other.seen = self.complete, dict(self.seen)
        return other


class InferredSchemas:
    """A cache of inferred schemas. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int | None], _InferredSchema] = OrderedDict()
        self._lock = threading.Lock()

    def fields(
        self,
        engine: Engine,
        source: ColumnSource,
        register: Register,
        names: Iterable[str] = (),
        sure: Collection[str] = (),
        *,
        everything: bool = False,
    ) -> list[Field]:
        """The fields with these names, ignoring case, and with `everything` all others too; ordered by name. Only the
        `sure` ones are also searched for in a different case. Raises QueryError.
        """
        shape = self._begin(source)
        wanted = set(names)
        if shape.ends != source.ends:
            self._extend(engine, shape, register(dict(shape.ends)))
            shape.ends = source.ends
        if not shape.complete:
            self._look(engine, shape, register, wanted - shape.seen.keys())
        if not shape.complete and (everything or not self._covers(shape, wanted.intersection(sure))):
            found = _keys(engine, register(None))
            self._look(engine, shape, register, found - shape.seen.keys())
            shape.complete = len(found) <= MAX_FIELDS
        self._keep(source, shape)
        return _columns(shape.seen, wanted, everything=everything)

    def known(self, source: ColumnSource) -> list[Field]:
        """The fields that are already known, without a scan."""
        with self._lock:
            shape = self._known.get((source.identity, source.position))
            return [] if shape is None else _columns(shape.seen, (), everything=True)

    def _begin(self, source: ColumnSource) -> _InferredSchema:
        with self._lock:
            known = self._known.get((source.identity, source.position))
            if known is None or not _reaches(source.ends, known.ends):
                return _InferredSchema(source.ends)
            return known.copy(known.ends)

    def _keep(self, source: ColumnSource, shape: _InferredSchema) -> None:
        with self._lock:
            self._known.pop((source.identity, source.position), None)
            if len(shape.seen) <= MOST_KEPT:
                self._known[source.identity, source.position] = shape
            while len(self._known) > KEPT_SHAPES:
                self._known.popitem(last=False)

    def _extend(self, engine: Engine, shape: _InferredSchema, newer: str) -> None:
        """Extend an inferred schema by newer events."""
        names = set(shape.seen)
        if shape.complete:
            names |= _keys(engine, newer)
            shape.complete = len(names) <= MAX_FIELDS
        for name, bits in _types(engine, newer, names).items():
            shape.seen[name] = shape.seen.get(name, 0) | bits

    def _look(self, engine: Engine, shape: _InferredSchema, register: Register, names: set[str]) -> None:
        if names:
            shape.seen.update(_types(engine, register(None), names))

    def _covers(self, shape: _InferredSchema, names: set[str]) -> bool:
        """Whether each name is a field's exact name: if not, a field may differ in case."""
        return all(shape.seen.get(name) for name in names)


def _reaches(ends: Sequence[tuple[int, int]], known: Sequence[tuple[int, int]]) -> bool:
    """Whether the known part is a prefix of the present one."""
    now = dict(ends)
    return len(now) == len(known) and all(now.get(partition, -1) >= end for partition, end in known)


def _columns(seen: Mapping[str, int], wanted: Collection[str], *, everything: bool) -> list[Field]:
    """One column for names that differ only in case, as DuckDB does not distinguish them: the spelling in the
    statement, else the first in order. If there are too many, named fields take precedence.
    """
    folded = {name.lower() for name in wanted}
    found: dict[str, str] = {}
    for name in sorted(name for name, bits in seen.items() if bits):
        lower = name.lower()
        if not everything and lower not in folded:
            continue
        other = found.get(lower)
        if other is not None and other in wanted and name in wanted:
            raise QueryError(
                f"There are fields '{other}' and '{name}', which are one column in SQL: a statement can name one of "
                f"them, and take the other out of the event, with data->>'$.{name}' for example"
            )
        if other is None or name in wanted:
            found[lower] = name
    shown = sorted(found.values(), key=lambda name: (name.lower() not in folded, name))[:MAX_FIELDS]
    return [Field(name, _TYPES.get(seen[name] & ~(_NULL | _POSITIVE), "VARCHAR")) for name in sorted(shown)]


def _keys(engine: Engine, source: str) -> set[str]:
    rows = engine.rows(
        f"SELECT DISTINCT unnest(k) AS name FROM (SELECT DISTINCT TRY(json_keys({OBJECT})) AS k FROM {source}) "
        f"ORDER BY name LIMIT {MAX_FIELDS + 1}"
    )
    return {row[0] for row in rows if _usable(row[0])}


def _usable(name: str) -> bool:
    """Whether DuckDB's JSON paths can express the name. Other fields are only in `data`."""
    return bool(name) and '"' not in name and "\\" not in name and "\0" not in name and name.isprintable()


def _types(engine: Engine, source: str, names: Iterable[str]) -> dict[str, int]:
    """Name → bits of the types of its values."""
    found: dict[str, int] = {}
    usable = sorted(name for name in names if _usable(name))
    cases = " ".join(f"WHEN '{kind}' THEN {bit}" for kind, bit in _BITS.items())
    for at in range(0, len(usable), _AT_ONCE):
        some = usable[at : at + _AT_ONCE]
        paths = ", ".join(quoted(f'$."{name}"') for name in some)
        bits = ", ".join(f"bit_or(CASE t[{index + 1}] {cases} END)" for index in range(len(some)))
        looked = f"SELECT TRY(json_type({OBJECT}, [{paths}])) AS t FROM {source}"
        row = engine.rows(f"SELECT {bits} FROM ({looked})")[0]
        found.update(zip(some, (bit or 0 for bit in row), strict=True))
        for name in _large(engine, source, [name for name in some if found[name] & _POSITIVE]):
            found[name] |= _LARGE
    return found


def _large(engine: Engine, source: str, names: Sequence[str]) -> list[str]:
    """The fields with integers that do not fit BIGINT."""
    found = []
    left = list(names)
    while left:
        some = list({name.lower(): name for name in left}.values())  # structures ignore case
        left = [name for name in left if name not in some]
        structure = quoted(structure_of((name, "HUGEINT") for name in some))
        read = f"SELECT TRY(json_transform({OBJECT}, {structure})) AS f FROM {source}"
        maxima = ", ".join(f"max(f.{identifier(name)})" for name in some)
        row = engine.rows(f"SELECT {maxima} FROM ({read})")[0]
        found += [name for name, largest in zip(some, row, strict=True) if largest is not None and largest >= 1 << 63]
    return found


def structure_of(fields: Iterable[tuple[str, str]]) -> str:
    """The structure for `json_transform`, which extracts these fields from an event."""
    return json.dumps(dict(fields), ensure_ascii=False)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
