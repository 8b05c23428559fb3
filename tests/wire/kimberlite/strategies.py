"""Strategies for the messages of Kimberlite: anything that a generation can carry, made from its tables."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect
from penstock.wire.kimberlite.codec.generations import AUDIT
from penstock.wire.kimberlite.codec.kinds import (
    BOOL,
    BYTES,
    I64,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    VALUE,
    Choice,
    Kind,
    Label,
    ListOf,
    Option,
    Record,
    Scalar,
)
from penstock.wire.kimberlite.values import Timestamp

DIALECTS: list[Dialect] = [dialect(*each) for each in NAMED.values()]

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
u64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
text = st.text(max_size=12)
values = st.none() | st.booleans() | i64 | text | i64.map(Timestamp)

SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    U8: st.integers(0, (1 << 8) - 1),
    U16: st.integers(0, (1 << 16) - 1),
    U32: st.integers(0, (1 << 32) - 1),
    U64: u64,
    I64: i64,
    BOOL: st.booleans(),
    TEXT: text,
    BYTES: st.binary(max_size=200),
    VALUE: values,
}


@cache
def any_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Anything of this kind."""
    if isinstance(kind, Scalar):
        return SCALARS[kind]
    if isinstance(kind, Option):
        return st.none() | any_of(kind.of)
    if isinstance(kind, ListOf):
        return st.lists(any_of(kind.of), max_size=12)
    if isinstance(kind, Label):
        return st.sampled_from(kind.names)
    if isinstance(kind, Record):
        return st.builds(kind.make, **{field.name: any_of(field.kind) for field in kind.fields})
    assert isinstance(kind, Choice)
    return st.one_of([any_of(variant) for variant in kind.variants])


@cache
def any_request(of: Dialect) -> st.SearchStrategy[m.Request]:
    audit = st.none() | any_of(AUDIT) if of.generation.audited else st.none()
    return st.builds(m.Request, u64, u64, any_of(of.generation.requests()), audit)


@cache
def any_response(of: Dialect) -> st.SearchStrategy[m.Response]:
    sent = [variant for variant in of.generation.responses().variants if variant.make is not m.Unserved]
    return st.builds(m.Response, u64, st.one_of([any_of(variant) for variant in sent]))


@cache
def any_push(of: Dialect) -> st.SearchStrategy[m.Push]:
    return st.builds(m.Push, any_of(of.generation.pushes()))


@cache
def any_message(of: Dialect) -> st.SearchStrategy[m.Message]:
    kinds: list[st.SearchStrategy[m.Message]] = [any_request(of), any_response(of)]
    return st.one_of([*kinds, any_push(of)] if of.generation.wrapped else kinds)
