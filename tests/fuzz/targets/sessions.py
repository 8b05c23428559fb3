"""The sessions of all doors with one connection for each client, as state machines."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tests.doors.channel import Channel
from tests.fuzz.targets import kimberlite as kimberlite_streams
from tests.fuzz.targets import talks
from tests.fuzz.targets.conversation import PASSWORD, SECURED, USER, ScriptedBroker, converse, furnished
from tests.fuzz.targets.target import (
    SEPARATOR,
    Target,
    begin_with,
    between,
    conversations,
    script,
    scripts,
    vector_data,
)

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.http import AdminApplication, http_door
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS
from penstock.doors.blipmq.session import DOOR as BLIPMQ
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.rest.door import flymq_admin_door
from penstock.doors.flymq.session import flymq_door
from penstock.doors.http.session import HttpSession
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.session import kimberlite_door
from penstock.doors.rustlog.session import DOOR as RUSTLOG
from penstock.doors.session import Door, Session
from penstock.log.engine import Durability
from penstock.wire.blipmq import codec as blipmq_codec
from penstock.wire.blipmq import frames as blipmq_frames
from penstock.wire.flymq import frames as flymq_frames
from penstock.wire.flymq import messages as flymq_messages
from penstock.wire.flymq.codec import replies as flymq_replies
from penstock.wire.flymq.codec import requests as flymq_requests
from penstock.wire.kimberlite import frames as kimberlite_frames
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec
from penstock.wire.kimberlite.codec.detection import VERSIONS
from penstock.wire.rustlog import frames as rustlog_frames
from penstock.wire.rustlog.codec.dialect import detect

MENDED: Final = 1  # bit of the mode: lengths and checksums are put right
GREETED: Final = 4  # the handshake is done already
SECOND_VERSION: Final = 8  # and by BlipMQ's version 2

_FLYMQ: Final = flymq_door(FlyMqSettings(fetch_wait=1_000_000))
_KIMBERLITE: Final = kimberlite_door(KimberliteSettings())
_HTTP: Final = http_door(Environment())
_FLYMQ_ADMIN: Final = flymq_admin_door(FlyMqSettings())


def _by(door: Door) -> Callable[[ScriptedBroker, Channel], Session]:
    def open_session(fixture: ScriptedBroker, channel: Channel) -> Session:
        return door.open(fixture.broker, channel, ANONYMOUS._replace(peer=channel.peer))

    return open_session


def rustlog(data: bytes) -> None:
    run = script(data)
    stream = run.stream
    if run.mode & MENDED:
        stream = b"".join(struct.pack(">I", len(part)) + part for part in between(stream))
    framer = rustlog_frames.Framer()
    for payload in framer.feed(converse(run, stream, _by(RUSTLOG))):
        detect(payload).decode_response(payload)
    assert framer.error is None and framer.buffered == 0


def blipmq(data: bytes) -> None:
    run = script(data)
    stream = run.stream
    if run.mode & MENDED:
        stream = b"".join(struct.pack(">I", len(part)) + part for part in between(stream))
    hello = b""
    if run.mode & GREETED:
        key = furnished().keys["default"]
        hello = blipmq_codec.encode_hello(1, 2 if run.mode & SECOND_VERSION else 1) + blipmq_codec.encode_auth(2, key)
    framer = blipmq_frames.Framer(blipmq_frames.DELIVER)
    for kind, correlation, payload in framer.feed(converse(run, stream, _by(BLIPMQ), hello)):
        match kind:
            case blipmq_frames.NACK:
                assert blipmq_codec.decode_nack(payload) is not None
            case blipmq_frames.ACK:
                assert len(payload) == 8
            case blipmq_frames.PUBLISH:
                assert blipmq_codec.decode_delivery(correlation, payload) is not None
            case blipmq_frames.DELIVER:
                assert blipmq_codec.decode_deliver(payload) is not None
            case _:
                assert kind == blipmq_frames.PONG
    assert framer.error is None and framer.buffered == 0


def flymq(data: bytes) -> None:
    run = script(data)
    stream = run.stream
    if run.mode & MENDED:
        parts = begin_with(stream, b"\xaf\x01")
        stream = b"".join(part[:4] + struct.pack(">I", len(part) - 8) + part[8:] for part in parts if len(part) >= 8)
    login = flymq_requests.encode(flymq_messages.Authenticate(USER, PASSWORD)) if run.mode & GREETED else b""
    framer = flymq_frames.Framer(stray=False)
    for frame in framer.feed(converse(run, stream, _by(_FLYMQ), login)):
        if frame.opcode not in _IN_ANOTHER_ORDER:
            flymq_replies.decode(frame.opcode, frame.payload)
    assert framer.error is None and framer.buffered == 0


_IN_ANOTHER_ORDER: Final = (0x07,)  # a FETCH is answered as it was asked


def kimberlite(data: bytes) -> None:
    run = script(data)
    stream = kimberlite_streams.mended(run.stream) if run.mode & MENDED else run.stream
    key = furnished().keys["42"]
    hello = ClientCodec("5b").request(0, 42, m.Handshake(5, key)) if run.mode & GREETED else b""
    framer = kimberlite_frames.Framer(range(1 << 16))
    framer.feed(converse(run, stream, _by(_KIMBERLITE), hello))
    versions = set()
    while (frame := framer.next()) is not None:
        payload = frame.data[frame.start : frame.end]
        assert frame.checksum in (kimberlite_frames.crc32(payload), kimberlite_frames.crc32c(payload))
        versions.add(frame.version)
    assert framer.buffered == 0
    assert len(versions & set(VERSIONS)) <= 1, "replies in two versions"


def http(data: bytes) -> None:
    run = script(data)
    _check_http(converse(run, run.stream, _by(_HTTP)))


def flymq_admin(data: bytes) -> None:
    run = script(data)
    sent = converse(run, run.stream, _by(_FLYMQ_ADMIN))
    assert not sent or sent.startswith(b"HTTP/1.1 ")


def admin(data: bytes) -> None:
    run = script(data)

    def open_session(fixture: ScriptedBroker, channel: Channel) -> Session:
        rest = HealthApplication(fixture.broker, Durability.SYNCED, ADMINISTRATOR)
        application = AdminApplication(Api(fixture.broker, Environment()), rest)
        return HttpSession(fixture.broker, channel, ADMINISTRATOR, application)

    _check_http(converse(run, run.stream, open_session))


def _check_http(sent: bytes) -> None:
    """Whole responses, by their lengths; a HEAD has none of what it announces."""
    at = 0
    while at < len(sent):
        end = sent.find(b"\r\n\r\n", at)
        assert sent.startswith(b"HTTP/1.1 ", at) and end > 0, sent[at : at + 100]
        head = sent[at:end].lower()
        (size,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        at = end + 4
        if at < len(sent) and not sent.startswith(b"HTTP/1.1 ", at):
            at += size
    assert at == len(sent), "a reply is not whole"


# -- corpora


def _rustlog() -> list[bytes]:
    payloads = rustlog_frames.Framer
    streams = [*conversations("rustlog"), *vector_data("rustlog", "request")]
    mended = [SEPARATOR.join(payloads().feed(stream)) for stream in streams]
    return [*scripts(streams, (0, SECURED)), *scripts(mended, (MENDED,))]


def _blipmq() -> list[bytes]:
    streams = [*talks.blipmq(), *conversations("blipmq"), *vector_data("blipmq", "client")]
    parts = [[each[4:] for each in _cut(stream)] for stream in streams]
    mended = [SEPARATOR.join(each) for each in parts]
    modes = (MENDED | GREETED, MENDED | GREETED | SECOND_VERSION)
    return [*scripts(streams, (0, GREETED, GREETED | SECURED)), *scripts(mended, modes)]


def _cut(stream: bytes) -> list[bytes]:
    found = []
    while len(stream) > 4:
        end = 4 + int.from_bytes(stream[:4], "big")
        found.append(stream[:end])
        stream = stream[end:]
    return found


def _flymq() -> list[bytes]:
    streams = [*talks.flymq(), *conversations("flymq"), *vector_data("flymq", "request")]
    return scripts(streams, (MENDED, 0, MENDED | SECURED, MENDED | SECURED | GREETED))


def _kimberlite() -> list[bytes]:
    streams = [*talks.kimberlite(), *kimberlite_streams.streams()]
    return scripts(streams, (MENDED | GREETED, 0, MENDED, MENDED | GREETED | SECURED))


_REQUESTS: Final = (
    b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET /nothing HTTP/1.0\r\n\r\n",
    b"PUT /health HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
)
_BODIES: Final = (
    (b"GET", b"/api/v1/keys", b""),
    (b"POST", b"/api/v1/keys", b'{"name":"k","permissions":["read"],"topics":["t"]}'),
    (b"DELETE", b"/api/v1/keys/1", b""),
    (b"POST", b"/api/v1/keys/1/rotate", b""),
    (b"GET", b"/api/v1/users", b""),
    (b"POST", b"/api/v1/users", b'{"name":"u","password":"correct horse","roles":["admin"]}'),
    (b"PATCH", b"/api/v1/users/u", b'{"enabled":false}'),
    (b"PUT", b"/api/v1/users/u/password", b'{"password":"battery staple"}'),
    (b"PUT", b"/api/v1/roles/r", b'{"permissions":["read"]}'),
    (b"PUT", b"/api/v1/acls/t", b'{"public":true,"users":["u"]}'),
    (b"GET", b"/api/v1/acls", b""),
    (b"POST", b"/api/v1/schemas/s", b'{"kind":"json","definition":"e30="}'),
    (b"POST", b"/api/v1/schemas/s/1", b'{"message":"e30="}'),
    (b"PUT", b"/api/v1/schemas/s", b'{"mode":"full"}'),
    (b"PATCH", b"/api/v1/topics/t", b'{"schema":"s","expiry_seconds":5,"fetch_wait_seconds":null}'),
    (b"GET", b"/api/v1/topics/t", b""),
    (b"PUT", b"/api/v1/tenants/x", b'{"label":"y"}'),
    (b"DELETE", b"/api/v1/tenants/t1", b""),
    (b"POST", b"/api/v1/sql", b'{"sql":"SELECT 1"}'),
    (b"GET", b"/api/v1/audit?start=0&types=auth&types=topic", b""),
    (b"POST", b"/api/v1/audit/verify?tenant=%64efault", b"{}"),
    (b"POST", b"/api/v1/topics", b'{"name":"n","partitions":2}'),
    (b"GET", b"/api/v1/topics/t/records?order=desc&limit=3&text=a.*b&header=x%3Dy&path=$.a", b""),
    (b"GET", b"/api/v1/topics/t/records?time=1&partition=0", b""),
    (b"POST", b"/api/v1/topics/t/records", b'{"records":[{"key_text":"k","value":"dg==","ttl_ms":5}]}'),
    (b"POST", b"/api/v1/groups/g/t/offsets", b'{"to":"earliest","dry_run":true}'),
    (b"GET", b"/api/openapi.json", b""),
)


def _http() -> list[bytes]:
    return scripts(_REQUESTS, (0, SECURED))


def _request(method: bytes, path: bytes, body: bytes) -> bytes:
    head = b"%b %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    return head % (method, path, len(body), body)


def _flymq_admin() -> list[bytes]:
    places = ("cluster", "cluster/metadata?topic=t", "topics", "topics/%2e%2e", "consumer-groups/t:g", "schemas/s")
    asked = [_request(method, b"/api/v1/" + place.encode(), b"") for place in places for method in (b"GET", b"DELETE")]
    made = _request(b"POST", b"/api/v1/topics", b'{"name":"n","options":{"partitions":2}}')
    moved = _request(b"POST", b"/api/v1/cluster/partitions/t/0", b'{"new_leader":"penstock"}')
    return scripts([*asked, made, moved, _request(b"GET", b"/health/ready", b"")], (0, SECURED))


def _admin() -> list[bytes]:
    return scripts([_request(*each) for each in _BODIES], (0, SECURED))


TARGETS: Final = (
    Target("sessions.rustlog", rustlog, _rustlog, quick=500),
    Target("sessions.blipmq", blipmq, _blipmq, quick=500),
    Target("sessions.flymq", flymq, _flymq, quick=500),
    Target("sessions.kimberlite", kimberlite, _kimberlite, quick=500),
    Target("sessions.http", http, _http, quick=400),
    Target("sessions.flymq_admin", flymq_admin, _flymq_admin, quick=200),
    Target("sessions.admin", admin, _admin, quick=400),
)
