"""Random inputs from a corpus: the usual mutations, without coverage. For the short run in the tests, and for machines
without atheris."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.fuzz.targets.target import MAX_STEPS, Script, script

_NUMBERS: Final = tuple(
    number.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for number in (0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1)
    for order in ("big", "little")
)
_WORD: Final = re.compile(rb"[A-Za-z_$/]{3,24}")


def words(corpus: Sequence[bytes], limit: int = 300) -> list[bytes]:
    """The words in a corpus, for a dictionary."""
    found: dict[bytes, None] = {}
    for data in corpus:
        found.update(dict.fromkeys(_WORD.findall(data)))
    return list(found)[:limit]


def mutations(corpus: Sequence[bytes], rng: random.Random, max_len: int) -> Iterator[bytes]:
    """Without end. What was made of an input may be changed again."""
    known = words(corpus)
    pool = list(corpus) or [b""]
    while True:
        data = bytearray(rng.choice(pool))
        for _ in range(1 << rng.randrange(4)):
            rng.choice(_CHANGES)(data, rng, pool, known)
        del data[max_len:]
        yield bytes(data)


def _at(data: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytearray, rng: random.Random, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _insert(data: bytearray, rng: random.Random, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _at(data, rng)
    data[at:at] = rng.randbytes(1 + rng.randrange(4))


def _delete(data: bytearray, rng: random.Random, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _at(data, rng)
    del data[at : at + 1 + rng.randrange(8)]


def _number(data: bytearray, rng: random.Random, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at, number = _at(data, rng), rng.choice(_NUMBERS)
    data[at : at + len(number)] = number


def _repeat(data: bytearray, rng: random.Random, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _at(data, rng)
    data[at:at] = data[at : at + 1 + rng.randrange(32)] * (1 + rng.randrange(4))


def _splice(data: bytearray, rng: random.Random, pool: Sequence[bytes], _: Sequence[bytes]) -> None:
    other = rng.choice(pool)
    at, start = _at(data, rng), rng.randrange(len(other) + 1)
    data[at:at] = other[start : start + rng.randrange(64)]


def _combine(data: bytearray, rng: random.Random, pool: Sequence[bytes], _: Sequence[bytes]) -> None:
    """One conversation behind another, in other pieces and with other events."""
    first, second = script(bytes(data)), script(rng.choice(pool))
    steps = rng.randbytes(rng.randrange(MAX_STEPS + 1))
    data[:] = Script(first.stream + second.stream, steps, rng.choice((first.mode, second.mode))).encode()


def _word(data: bytearray, rng: random.Random, _: Sequence[bytes], known: Sequence[bytes]) -> None:
    if known:
        at = _at(data, rng)
        data[at:at] = rng.choice(known)


_CHANGES: Final[tuple[Callable[[bytearray, random.Random, Sequence[bytes], Sequence[bytes]], None], ...]] = (
    _flip,
    _insert,
    _delete,
    _number,
    _repeat,
    _splice,
    _word,
    _combine,
    _combine,
)
