"""Messages as bytes, computed by hand from the specification and from how its encodings are defined.

Bytes are hex digits; `00*7` is a byte seven times; text in single quotes stands for its own bytes; spaces and bars mean
nothing. The checksums are those of the whole payload, in both polynomials where both are known.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.values import Timestamp

_TOKEN = re.compile(r"'([^']*)'|([0-9a-f]{2})(?:\*(\d+))?|[ |]+")


def octets(text: str) -> bytes:
    """What the notation above stands for."""
    parts = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, text[at:]
        at = found.end()
        if found[1] is not None:
            parts.append(found[1].encode())
        elif found[2] is not None:
            parts.append(bytes.fromhex(found[2]) * int(found[3] or 1))
    return b"".join(parts)


class Example(NamedTuple):
    dialects: str
    message: m.Request | m.Response | m.Push
    octets: str
    crc32: int | None = None
    crc32c: int | None = None


def request(number: int, payload: m.Message, audit: m.AuditMetadata | None = None) -> m.Request:
    return m.Request(number, 42, payload, audit)


HELLO = {version: request(1, m.Handshake(version)) for version in range(1, 6)}
SECRET = {version: request(1, m.Handshake(version, "secret-token")) for version in range(1, 6)}
WELCOME = {version: m.Response(1, m.HandshakeResponse(version, True, ["query_at", "sync"])) for version in range(1, 6)}

EVENTS = [b"event1", b"event2"]
CREATE = request(2, m.CreateStream("events", m.DataClass.PHI, m.Everywhere()))
CREATED = m.Response(2, m.CreateStreamResponse(100))
APPEND = request(3, m.AppendEvents(100, EVENTS))
APPEND_AT = request(3, m.AppendEvents(100, EVENTS, 0))
APPENDED = m.Response(3, m.AppendEventsResponse(0, 2))
READ = request(4, m.ReadEvents(100, 0, 1 << 20))
FOUND = m.Response(4, m.ReadEventsResponse(EVENTS, 2))
SQL = "SELECT COUNT(*) as count FROM events"
QUERY = request(5, m.Query(SQL, []))
PARAMS = request(5, m.Query("", [-42, "hi", True, None, Timestamp(1_700_000_000_000_000_000)]))
ROWS = m.Response(5, m.QueryResponse(["count"], [[2]]))
ERROR = m.Response(6, m.ErrorResponse(m.ErrorCode.STREAM_NOT_FOUND, "no"))
SUBSCRIBE = request(7, m.Subscribe(100, 0, 128))
SYNC = request(8, m.Sync())

EXAMPLES = [
    # Handshake
    Example("v0.1 seed/bincode", HELLO[1], "01 00*7 | 2a 00*7 | 00*4 | 01 00 | 00", 0x07DBE72F, 0xA3C29ED6),
    Example("seed", HELLO[1], "01 00*7 | 2a 00*7 | 00*4 | 01 00 | 00*4", 0xCC6EB6BF, 0x9F5E101F),
    Example("v0.4 seed/postcard", HELLO[1], "01 2a 00 01 00", 0x2DD6A0B6, 0xF0C7D502),
    Example("v2", HELLO[2], "00 01 2a 00 02 00"),
    Example("v3", HELLO[3], "00 01 2a 00 00 03 00", 0xF66C68BD),
    Example("v4", HELLO[4], "00 01 2a 00 00 04 00"),
    Example("5a 5b", HELLO[5], "00 01 2a 00 00 05 00", 0xA036CF3B),
    Example("v0.1 seed/bincode", SECRET[1], "01 00*7 | 2a 00*7 | 00*4 | 01 00 | 01 0c 00*7 'secret-token'", 0x4D202E5E),
    Example("seed", SECRET[1], "01 00*7 | 2a 00*7 | 00*4 | 01 00 | 01 00*3 0c 00*7 'secret-token'", 0x3A74ADDC),
    Example("v0.4 seed/postcard", SECRET[1], "01 2a 00 01 01 0c 'secret-token'", 0x1E51301D),
    Example("5a 5b", SECRET[5], "00 01 2a 00 00 05 01 0c 'secret-token'", 0x971FA71B),
    Example(
        "v0.1 seed seed/bincode",
        WELCOME[1],
        "01 00*7 | 01 00*3 | 01 00 | 01 | 02 00*7 | 08 00*7 'query_at' | 04 00*7 'sync'",
        0x75DB4302,
    ),
    Example("v0.4 seed/postcard", WELCOME[1], "01 01 01 01 02 08 'query_at' 04 'sync'", 0xCD86265D),
    Example("5a 5b", WELCOME[5], "01 01 01 05 01 02 08 'query_at' 04 'sync'", 0x0E346836),
    # CreateStream: the specification has another number for "global" than what was released
    Example("v0.1", CREATE, "02 00*7 | 2a 00*7 | 01 00*3 | 06 00*7 'events' | 00*4 | 01 00*3", 0x3B869C06),
    Example(
        "seed seed/bincode",
        CREATE,
        "02 00*7 | 2a 00*7 | 01 00*3 | 06 00*7 'events' | 00*4 | 00*4",
        0x833AFB63,
        0xA0438467,
    ),
    Example("v0.4", CREATE, "02 2a 01 06 'events' 00 01", 0xC3605048),
    Example("seed/postcard", CREATE, "02 2a 01 06 'events' 00 00", 0xB46760DE),
    Example("v3 v4 5a 5b", CREATE, "00 02 2a 00 01 06 'events' 00 01", 0x735C20FE),
    Example(
        "5a 5b",
        request(13, m.CreateStream("eu", m.DataClass.PII, m.Regional(m.CustomRegion("eu-central-1")))),
        "00 0d 2a 00 01 02 'eu' 02 00 02 0c 'eu-central-1'",
    ),
    Example("v0.1 seed seed/bincode", CREATED, "02 00*7 | 02 00*3 | 64 00*7", 0x7D81DDDF),
    Example("v0.4 seed/postcard", CREATED, "02 02 64"),
    Example("v2 v3 v4 5a 5b", CREATED, "01 02 02 64"),
    # AppendEvents
    Example(
        "v0.1 seed seed/bincode",
        APPEND,
        "03 00*7 | 2a 00*7 | 02 00*3 | 64 00*7 | 02 00*7 | 06 00*7 'event1' | 06 00*7 'event2'",
        0xB145A0D6,
        0xF25B4A23,
    ),
    Example("seed/postcard", APPEND, "03 2a 02 64 02 06 'event1' 06 'event2'", 0x0DF5A996),
    Example("v0.4", APPEND_AT, "03 2a 02 64 02 06 'event1' 06 'event2' 00", 0xCB632C55),
    Example("v3 v4 5a 5b", APPEND_AT, "00 03 2a 00 02 64 02 06 'event1' 06 'event2' 00", 0xAE505444),
    Example(
        "seed seed/bincode v0.1",
        request(3, m.AppendEvents(42, [b"\x01\x02\x03", b"\x04\x05"])),
        "03 00*7 | 2a 00*7 | 02 00*3 | 2a 00*7 | 02 00*7 | 03 00*7 01 02 03 | 02 00*7 04 05",
    ),
    Example(
        "v3 v4 5a 5b",
        request(3, m.AppendEvents(42, [b"\x01\x02\x03", b"\x04\x05"], 0)),
        "00 03 2a 00 02 2a 02 03 01 02 03 02 04 05 00",
        0xFE914A2F,
    ),
    Example("v0.1 seed seed/bincode", APPENDED, "03 00*7 | 03 00*3 | 00*8 | 02 00*3", 0x781E1F71),
    Example("v0.4 seed/postcard", APPENDED, "03 03 00 02"),
    Example("v2 v3 v4 5a 5b", APPENDED, "01 03 03 00 02"),
    # ReadEvents
    Example("v0.1 seed seed/bincode", READ, "04 00*7 | 2a 00*7 | 05 00*3 | 64 00*7 | 00*8 | 00 00 10 00*5", 0x06FFCA4A),
    Example("v0.4 seed/postcard", READ, "04 2a 05 64 00 80 80 40", 0x1AB03524),
    Example("v3 v4 5a 5b", READ, "00 04 2a 00 05 64 00 80 80 40", 0x46C5C581),
    Example(
        "v0.1 seed/bincode",
        FOUND,
        "04 00*7 | 06 00*3 | 02 00*7 | 06 00*7 'event1' | 06 00*7 'event2' | 01 02 00*7",
    ),
    Example(
        "seed",
        FOUND,
        "04 00*7 | 06 00*3 | 02 00*7 | 06 00*7 'event1' | 06 00*7 'event2' | 01 00*3 02 00*7",
    ),
    Example("v0.4 seed/postcard", FOUND, "04 06 02 06 'event1' 06 'event2' 01 02"),
    Example("v2 v3 v4 5a 5b", FOUND, "01 04 06 02 06 'event1' 06 'event2' 01 02"),
    # Query
    Example(
        "v0.1 seed seed/bincode",
        QUERY,
        f"05 00*7 | 2a 00*7 | 03 00*3 | 24 00*7 '{SQL}' | 00*8",
        0x6DE4CB73,
        0xE57B1A7B,
    ),
    Example("v0.4 seed/postcard", QUERY, f"05 2a 03 24 '{SQL}' 00", 0xB2A3C808),
    Example("v2", QUERY, f"00 05 2a 03 24 '{SQL}' 00"),
    Example("v3 v4 5a 5b", QUERY, f"00 05 2a 00 03 24 '{SQL}' 00 00", 0x56701E9A),
    Example(
        "v0.1 seed seed/bincode",
        PARAMS,
        "05 00*7 | 2a 00*7 | 03 00*3 | 00*8 | 05 00*7 | 01 00*3 d6 ff*7 | 02 00*3 02 00*7 'hi' | 03 00*3 01 | 00*4"
        "| 04 00*3 00 00 2a 36 fe 9c 97 17",
    ),
    Example(
        "v0.4 seed/postcard",
        PARAMS,
        "05 2a 03 00 | 05 | 01 53 | 02 02 'hi' | 03 01 | 00 | 04 80 80 d0 e2 c6 bf ce 97 2f",
    ),
    Example(
        "v0.1 seed seed/bincode",
        ROWS,
        "05 00*7 | 04 00*3 | 01 00*7 05 00*7 'count' | 01 00*7 | 01 00*7 | 01 00*3 02 00*7",
        0x7DC6B6D3,
    ),
    Example("v0.4 seed/postcard", ROWS, "05 04 01 05 'count' 01 01 01 04"),
    Example("v2 v3 v4 5a 5b", ROWS, "01 05 04 01 05 'count' 01 01 01 04"),
    Example("v0.1 seed seed/bincode", ERROR, "06 00*7 | 00*4 | 05 00*3 | 02 00*7 'no'"),
    Example("v0.4 seed/postcard", ERROR, "06 00 05 02 'no'"),
    Example("v2 v3 v4 5a 5b", ERROR, "01 06 00 05 02 'no'"),
    # others
    Example("seed/bincode", SUBSCRIBE, "07 00*7 | 2a 00*7 | 06 00*3 | 64 00*7 | 00*8 | 80 00*3 | 00", 0x597268B2),
    Example("seed", SUBSCRIBE, "07 00*7 | 2a 00*7 | 06 00*3 | 64 00*7 | 00*8 | 80 00*3 | 00*4", 0x2AB4028A),
    Example("v0.4 seed/postcard", SUBSCRIBE, "07 2a 06 64 00 80 01 00"),
    Example("v3 v4 5a", SUBSCRIBE, "00 07 2a 00 06 64 00 80 01 00"),
    Example("5b", SUBSCRIBE, "00 07 2a 00 07 64 00 80 01 00"),
    Example("v0.1", SYNC, "08 00*7 | 2a 00*7 | 06 00*3", 0x4563217A),
    Example("seed seed/bincode", SYNC, "08 00*7 | 2a 00*7 | 07 00*3", 0xFDDF461F),
    Example("v0.4 seed/postcard", SYNC, "08 2a 07"),
    Example("5b", SYNC, "00 08 2a 00 08"),
    Example(
        "v2 v3 v4 5a 5b",
        m.Push(m.SubscriptionEvents(99, 0, [b"\x01\x02\x03", b"\x04\x05"], 2)),
        "02 00 63 00 02 03 01 02 03 02 04 05 02",
    ),
    Example("v2 v3 v4 5a 5b", m.Push(m.SubscriptionClosed(99, m.CloseReason.STREAM_DELETED)), "02 01 63 02"),
    Example(
        "5b",
        request(8, m.Sync(), m.AuditMetadata("dr@x", "chart")),
        "00 08 2a 01 01 04 'dr@x' 01 05 'chart' 00 00 08",
    ),
]

FRAMES = [  # whole frames, in the specification's first example and as a client of version 5 sent it
    ("v0.1", HELLO[1], "56 44 42 20 00 01 00 00 00 17 07 db e7 2f | 01 00*7 2a 00*7 00*4 01 00 00"),
    ("seed", HELLO[1], "56 44 42 20 00 01 00 00 00 1a cc 6e b6 bf | 01 00*7 2a 00*7 00*4 01 00 00*4"),
    ("v0.4", HELLO[1], "56 44 42 20 00 01 00 00 00 05 2d d6 a0 b6 | 01 2a 00 01 00"),
    ("5b", HELLO[5], "56 44 42 20 00 05 00 00 00 07 a0 36 cf 3b | 00 01 2a 00 00 05 00"),
]
