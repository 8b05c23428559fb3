"""Every row of the sniffing table, every length of prefix, and every place where two protocols look alike."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.sniff import HTTP_METHODS, TLS, sniff, sniff_tls


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def hello(version: int, id: int = 7) -> bytes:  # noqa: A002 - the name in the protocol
    return frame(struct.pack(">BQH", 1, id, version))


PRODUCE = frame(b"\x01\x00\x04logs" + struct.pack(">III", 0, 1, 1) + b"x")

# first bytes, verdict on a rustlog port, verdict on a blipmq port, how many bytes it takes on a rustlog port
ROWS = [
    (b"\x16\x03\x01\x02\x00\x01\x00", TLS, TLS, 2),
    (b"\xaf\x01\x00\x00\x00\x00\x00\x00", "flymq", "flymq", 1),
    (b"VDB \x00\x01", "kimberlite", "kimberlite", 4),
    *((method + b"/ HTTP/1.1\r\n", "http", "http", len(method)) for method in HTTP_METHODS),
    (frame(b'{"type":"Ping"}'), "rustlog", "rustlog", 5),
    (frame(b' {"type":"Ping"}'), "rustlog", "rustlog", 5),
    (frame(b'\r\n{"type":"Ping"}'), "rustlog", "rustlog", 5),
    (frame(b'\n{"type":"Ping"}'), "rustlog", "rustlog", 5),
    (frame(b"\xff"), "rustlog", "rustlog", 5),
    (frame(b"\xff" + bytes(8)), "rustlog", "blipmq", 5),
    *((frame(bytes([kind]) + b"\x00\x01t"), "rustlog", "blipmq", 5) for kind in range(1, 10)),
    (PRODUCE, "rustlog", "blipmq", 5),
    (hello(1), "blipmq", "blipmq", 15),
    (hello(2), "blipmq", "blipmq", 15),
    (hello(2, id=0xFFFF_FFFF_FFFF_FFFF), "blipmq", "blipmq", 15),
    # Not a HELLO: a Produce of 11 bytes cut short, or a version that does not exist. Rustlog tells what is wrong.
    (frame(b"\x01\x00\x04logs" + struct.pack(">I", 0)), "rustlog", "blipmq", 15),
    (hello(3), "rustlog", "blipmq", 15),
    # Frames that no protocol has: the port's own protocol answers with its own error.
    (b"\x00\x00\x00\x00", "rustlog", "blipmq", 4),
    (b"\x00\xa0\x00\x01", "rustlog", "blipmq", 4),
    (b"\x02\x00\x00\x01", "rustlog", "blipmq", 1),
    (b"\xff\xff\xff\xff", "rustlog", "blipmq", 1),
    (frame(b"\x0a"), "rustlog", "blipmq", 5),  # a line feed: white space of JSON, and no type of anybody
    (frame(b"\x0a" + bytes(8)), "rustlog", "blipmq", 5),
    (frame(b"{" + bytes(7)), "rustlog", "blipmq", 5),  # shorter than any request in JSON
    (frame(b"\n" * 20), "rustlog", "blipmq", 5),
    (frame(b"\x0b"), "rustlog", "blipmq", 5),
    (frame(b"\x00"), "rustlog", "blipmq", 5),
    (b"SSH-2.0-x\r\n", "rustlog", "blipmq", 1),
    (b"GETTING", "rustlog", "blipmq", 4),
    (b"VDBX", "rustlog", "blipmq", 4),
    (b"\x16\x02", "rustlog", "blipmq", 2),
    (b"P" * 40, "rustlog", "blipmq", 2),
]


@pytest.mark.parametrize(("data", "on_rustlog", "on_blipmq", "needed"), ROWS)
def test_every_row_is_told_apart(data: bytes, on_rustlog: str, on_blipmq: str, needed: int) -> None:
    assert sniff(data, "rustlog") == on_rustlog
    assert sniff(data, "blipmq") == on_blipmq
    for length in range(needed):
        assert sniff(data[:length], "rustlog") is None
    for length in range(needed, len(data) + 1):
        assert sniff(data[:length], "rustlog") == on_rustlog


def test_a_blipmq_port_knows_its_hello_by_five_bytes() -> None:
    assert sniff(hello(1)[:4], "blipmq") is None
    assert sniff(hello(1)[:5], "blipmq") == "blipmq"


@pytest.mark.parametrize("length", [1, 2, 10_485_760])
def test_lengths_up_to_the_largest_first_frame_of_any_protocol_are_looked_into(length: int) -> None:
    assert sniff(struct.pack(">I", length), "http") is None
    assert sniff(struct.pack(">I", length) + b"{", "rustlog") == "rustlog"
    assert sniff(struct.pack(">I", length) + b"{", "http") == ("rustlog" if length >= 15 else "http")


@pytest.mark.parametrize("length", [0, 10_485_761, 16_777_216, 33_554_433, 0xFFFF_FFFF])
def test_impossible_lengths_go_to_the_ports_own_protocol_at_once(length: int) -> None:
    assert sniff(struct.pack(">I", length), "http") == "http"


@pytest.mark.parametrize("own", ["rustlog", "flymq", "kimberlite", "http"])
def test_shared_types_are_rustlogs_on_every_port_but_blipmqs(own: str) -> None:
    assert sniff(PRODUCE, own) == "rustlog"


@pytest.mark.parametrize("own", ["blipmq", "flymq", "kimberlite", "http"])
@pytest.mark.parametrize(
    "data",
    [
        frame(b"\x0a" + bytes(8)),
        frame(b"\xff" + bytes(8)),
        frame(b"\x01" + bytes(7)),
        frame(b"\x02" + bytes(19)),
        frame(b"\x0a"),
        frame(b"\x00" + bytes(8)),
        frame(b"{}"),
        b"\xae" + bytes(20),
        b"\x00\x00\x00\x00",
    ],
)
def test_bytes_that_fit_none_are_the_protocols_that_the_port_is_named_for(data: bytes, own: str) -> None:
    """A bad first frame is answered in the port's own protocol, which is rustlog's only on a port of rustlog."""
    assert sniff(data, own) == own


@given(st.one_of(st.binary(max_size=20), st.sampled_from([row[0] for row in ROWS])), st.binary(max_size=8))
def test_a_verdict_is_never_taken_back_and_needs_at_most_fifteen_bytes(start: bytes, rest: bytes) -> None:
    data = start + rest
    for own in ("rustlog", "blipmq", "http"):
        final = sniff(data, own)
        verdicts = [sniff(data[:length], own) for length in range(len(data) + 1)]
        assert all(verdict in (None, final) for verdict in verdicts)
        decided = [verdict is not None for verdict in verdicts]
        assert decided == sorted(decided)
        assert len(data) < 15 or final is not None


def test_a_pinned_port_only_looks_for_tls() -> None:
    assert sniff_tls(b"", "rustlog") is None
    assert sniff_tls(b"\x16", "rustlog") is None
    assert sniff_tls(b"\x16\x03", "rustlog") == TLS
    assert sniff_tls(b"\x16\x04", "rustlog") == "rustlog"
    assert sniff_tls(b"\xaf", "rustlog") == "rustlog"
    assert sniff_tls(b"G", "rustlog") == "rustlog"
