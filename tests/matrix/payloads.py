"""Payloads of the matrix: every kind that somebody could take for another; keys and headers where they can be had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A record as it is written."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def _unicode(first: int, last: int) -> bytes:
    """Every character of a range, with what looks like an end, a quote or an escape; halves of pairs are none."""
    halves = range(0xD800, 0xE000)
    codes = chain(range(first, halves.start), range(halves.stop, last + 1)) if first == 0 else range(first, last + 1)
    return "".join(map(chr, codes)).encode()


def _sized(size: int) -> bytes:
    """Bytes that are no text, and differ from one place to the next."""
    return (b"\xff" + bytes(range(251)) * (size // 251 + 1))[:size]


PLANES: Final = {f"Unicode, plane {plane}": _unicode(plane << 16, (plane << 16) + 0xFFFF) for plane in range(17)}

KINDS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "one byte": b"x",
    "a zero": b"\0",
    "every byte": bytes(range(256)),
    "no UTF-8": b"\xc3(\xff\xfe\xed\xa0\x80",
    "lines": b"a\r\nb\nc\r",
    "JSON": json.dumps({"id": 7, "text": "größer", "nested": {"a": [1, None]}}).encode(),
    "half of JSON": b'{"id": ',
    "Base64": b"AAECAw==",
    **PLANES,
    "127 bytes": _sized(127),
    "128 bytes": _sized(128),
    "64 KiB - 1": _sized(65_535),
    "64 KiB": _sized(65_536),
    "130 KiB": _sized(130 << 10),  # more than Kimberlite's clients take in one reply
}
"""Up to what every protocol carries. The largest records of each are those of tests/doors/test_largest_record.py."""

BATCH_BYTES: Final = 3 << 20  # of a request that has several records: less than every protocol's frame
KEYS: Final = (None, b"k", bytes(range(256)), "schlüssel".encode(), b"k" * 300)
HEADERS: Final = ((), (("h", b""),), (("größe", b"\0\xff"), ("h", b"1"), ("h", b"2")))


NAMES: Final = (
    "größe", "gro\u0308ße", "with space", "a.b/c", "quote\"d 'x' $1", "a#0", "%2e%2e", "select", "MixedCase",
    "mixedcase", "emoji 🚰", "-", "x" * 256, "漢" * 256,
)  # fmt: skip
"""Names of topics that somebody could write in another way, or take for something else. Some differ in little."""


def entries(*, keys: bool, headers: bool) -> list[Entry]:
    """One of each kind; every kind of key and of headers occurs."""
    return [
        Entry(value, KEYS[at % len(KEYS)] if keys else None, HEADERS[at % len(HEADERS)] if headers else ())
        for at, value in enumerate(KINDS.values())
    ]


def batches(records: Sequence[Entry]) -> Iterator[list[Entry]]:
    """In their order, as many as fit one request."""
    batch: list[Entry] = []
    for entry in records:
        if batch and sum(len(one.value) for one in batch) + len(entry.value) > BATCH_BYTES:
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def short_entries(mark: str, *, keys: bool, headers: bool) -> list[Entry]:
    """Small ones that are found nowhere else: they begin with the mark."""
    found = [entry for entry in entries(keys=keys, headers=headers) if len(entry.value) < 1000]
    return [entry._replace(value=f"{mark}/{at}/".encode() + entry.value) for at, entry in enumerate(found)]
