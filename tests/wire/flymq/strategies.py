"""Strategies for the messages of FlyMQ: anything that the wire can carry, made from the classes' annotations."""

from __future__ import annotations

import types
import typing
from typing import Any

from hypothesis import strategies as st

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.opcodes import Op

U64 = {"offset", "next_offset", "oldest_offset", "newest_offset", "current", "committed", "latest", "lag", "epoch"}
I64 = {"timestamp_ms", "delay_ms", "ttl_ms", "start_s", "end_s", "created_at_s", "updated_at_s"}
U32 = {"version", "members"}

names = st.text(max_size=12)
some_names = st.text(min_size=1, max_size=12)
values = st.binary(max_size=40)
keys = st.none() | st.binary(min_size=1, max_size=20)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
u64 = st.integers(0, (1 << 64) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)


def number(kind: type[Any], field: str) -> st.SearchStrategy[int]:
    if kind is m.AuditQuery and field == "offset":
        return i32
    if field in U64:
        return u64
    return i64 if field in I64 else st.integers(0, (1 << 32) - 1) if field in U32 else i32


def of_type(kind: type[Any], field: str, hint: Any) -> st.SearchStrategy[Any]:
    if field == "key" and hint is not str:
        return keys
    if isinstance(hint, types.UnionType):
        return st.one_of(*(of_type(kind, field, part) for part in typing.get_args(hint)))
    if typing.get_origin(hint) is list:
        return st.lists(of_type(kind, field, typing.get_args(hint)[0]), max_size=4)
    if isinstance(hint, type) and issubclass(hint, m.Message):
        return of_class(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {str: names, bytes: values, bool: st.booleans(), type(None): st.none()}
    return plain[hint] if hint in plain else number(kind, field)


def of_class(kind: type[Any]) -> st.SearchStrategy[Any]:
    if kind in SPECIAL:
        return SPECIAL[kind]
    return st.builds(kind, **{f: of_type(kind, f, hint) for f, hint in typing.get_type_hints(kind).items()})


def _batch(records: list[tuple[bytes | None, bytes, int]]) -> tuple[list[Any], ...]:
    return tuple([record[i] for record in records] for i in range(3))


batches = st.lists(st.tuples(keys, values, i32), max_size=5).map(_batch)
places = st.lists(st.tuples(i32, u64), max_size=5).map(lambda found: ([p for p, _ in found], [o for _, o in found]))
records = st.lists(st.builds(m.FetchedRecord, u64, keys, values), max_size=5)
headers = st.lists(st.tuples(names, values), max_size=3)


@st.composite
def _with_headers(draw: st.DrawFn) -> m.ProduceRecords:
    keyed, contents, numbers = draw(batches)
    count = len(keyed)
    texts = draw(st.just([]) | st.lists(headers, min_size=count, max_size=count))
    return m.ProduceRecords(draw(names), draw(names), draw(u64), draw(u64), keyed, contents, numbers, texts)


# Messages that cannot have every combination of values.
SPECIAL: dict[type[Any], st.SearchStrategy[Any]] = {
    m.Fetch: st.builds(m.Fetch, names, i32, u64, i32) | st.builds(m.Fetch, names, i32, u64, i32, names, st.just(True)),
    m.ProduceBatch: st.builds(lambda topic, columns: m.ProduceBatch(topic, *columns), names, batches),
    m.ProduceRecords: _with_headers(),
    m.StoredRecord: st.builds(m.StoredRecord, u64, i64, keys, values, headers.map(tuple)),
    m.ProduceDelayed: st.builds(m.ProduceDelayed, names, values, i64, keys, i32, headers),
    m.ProduceWithTtl: st.builds(m.ProduceWithTtl, names, values, i64, keys, i32, headers),
    m.ProduceInTransaction: st.builds(m.ProduceInTransaction, names, names, values, keys, i32, headers),
    m.ProduceWithSchema: st.builds(m.ProduceWithSchema, names, some_names, values),
    m.ReplayDlq: st.builds(m.ReplayDlq, names, names)
    | st.builds(m.ReplayDlq, names, st.none(), st.integers(0, (1 << 48) - 1)),
    m.ResetOffset: st.builds(m.ResetOffset, names, names, i32, names.filter(lambda mode: mode != "offset"))
    | st.builds(m.ResetOffset, names, names, i32, names, u64),
    m.ProducedBatch: st.builds(lambda topic, time, columns: m.ProducedBatch(topic, time, *columns), names, i64, places),
    m.AuthResult: st.just(m.AuthResult(True))
    | st.builds(m.AuthResult, st.just(False), names)
    | st.builds(m.AuthResult, st.just(False), some_names, names, st.lists(names), st.just(m.AuthStyle.SPEC))
    | st.builds(m.AuthResult, st.just(False), some_names, st.just(""), st.lists(names), st.just(m.AuthStyle.ORIGINAL))
    | st.builds(
        m.AuthResult,
        st.just(True),
        st.just(""),
        some_names,
        st.lists(names),
        st.sampled_from([m.AuthStyle.SPEC, m.AuthStyle.ORIGINAL]),
    ),
}


def replies_to(opcode: int) -> st.SearchStrategy[Any]:
    kind = replies.LAYOUTS[opcode].kind
    if opcode == Op.REPLAY_DLQ:
        return st.builds(m.Done, st.booleans(), st.text(min_size=2, max_size=12))
    if kind is m.Fetched:
        order = st.just(True) if opcode == Op.FETCH_BINARY else st.booleans()
        return st.builds(m.Fetched, records, u64, order)
    return of_class(kind)


any_request: st.SearchStrategy[m.Request] = st.sampled_from([row.kind for row in requests.LAYOUTS.values()]).flatmap(
    of_class
)
any_answer: st.SearchStrategy[tuple[int, m.Reply]] = st.sampled_from(sorted(replies.LAYOUTS)).flatmap(
    lambda opcode: st.tuples(st.just(opcode), replies_to(opcode))
)
