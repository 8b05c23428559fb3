"""The dialect of a client, detected from its first frame and its later requests."""

from __future__ import annotations

import random

import pytest

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec import detection
from penstock.wire.kimberlite.codec.connection import ClientCodec, Refused, ServerCodec
from penstock.wire.kimberlite.codec.dialects import NAMED, dialect
from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding
from penstock.wire.kimberlite.errors import MalformedPayload

ENCODINGS = (POSTCARD, BINCODE, PRINTED)
CASES = 24_000


def remaining(server: ServerCodec) -> list[str]:
    """The names of the generations that the peer may be of."""
    return [each.generation.name for each in server._dialects]


def ask(server: ServerCodec, client: ClientCodec, payload: m.Message, number: int = 2) -> m.Message:
    server.feed(client.request(number, 42, payload))
    request = server.next()
    assert request is not None
    return request.payload


def greeted(name: str, assume: str = "auto") -> tuple[ServerCodec, ClientCodec]:
    server, client = ServerCodec(assume), ClientCodec(name)
    assert ask(server, client, m.Handshake(client.version)) == m.Handshake(client.version)
    return server, client


# -- the first frame


class Hostile:
    """Numbers and tokens made of the bytes that have a meaning somewhere in a handshake."""

    def __init__(self, seed: int) -> None:
        self._seeded = random.Random(seed)

    def octets(self, size: int) -> bytes:
        return bytes(self._seeded.choices(b"\x00\x00\x00\x01\x01\x02\x80\x81\x0c\x17\x1a\x22\x7f", k=size))

    def number(self, bits: int) -> int:
        way = self._seeded.randrange(3)
        if way == 0:
            return self._seeded.randrange(256)
        if way == 1:
            return self._seeded.getrandbits(bits)
        return int.from_bytes(self.octets(bits // 8), "little")

    def token(self) -> str | None:
        way = self._seeded.randrange(4)
        if way == 0:
            return None
        size = self._seeded.choice((0, 1, 2, 8, 12, 15, 18, 23, 31, 34, 60, 127, 130))
        if way == 1:
            return "".join(self._seeded.choices("abcdefgh.-_0123456789", k=size))
        data = self.octets(size)
        for start in range(0, size - 3, 7):  # a length that fits what is left, and a whole handshake in the token
            data = data[:start] + bytes((0, 1, 1, max(0, size - start - 4) & 0x7F)) + data[start + 4 :]
        return data.decode("ascii", "replace")


def clear(encoding: Encoding, payload: bytes) -> bool:
    """Whether the payload can be read as a handshake of version 1 in this encoding."""
    try:
        request = dialect("seed", encoding).read_request(payload, 0, len(payload))
    except MalformedPayload:
        return False
    return isinstance(request.payload, m.Handshake) and request.payload.client_version == 1 and request.id < 1 << 32


def test_no_handshake_can_be_read_in_two_ways() -> None:
    hostile = Hostile(6)
    for case in range(CASES):
        encoding = ENCODINGS[case % 3]
        handshake = m.Handshake(1, hostile.token())
        number, tenant = hostile.number(32), hostile.number(64)
        payload = bytes(dialect("seed", encoding).write_request(number, tenant, handshake, None))
        assert [each.name for each in ENCODINGS if clear(each, payload)] == [encoding.name], payload.hex()
        readings = detection.first(payload, 0, len(payload), "auto")
        assert {each.dialect.encoding for each in readings} == {encoding}
        assert readings[0].request == m.Request(number, tenant, handshake)


@pytest.mark.parametrize("name", NAMED)
def test_ids_may_be_large_and_random(name: str) -> None:
    seeded = random.Random(name)
    client = ClientCodec(name)
    for _ in range(300):
        server, handshake = ServerCodec(), m.Handshake(client.version, seeded.choice((None, "secret-token")))
        number, tenant = seeded.getrandbits(64), seeded.getrandbits(64)
        server.feed(client.request(number, tenant, handshake))
        assert server.next() == m.Request(number, tenant, handshake)
        assert NAMED[name][0] in remaining(server)
        welcome = m.HandshakeResponse(client.version, True, ["sync"])
        client.feed(server.response(number, welcome))
        assert client.next() == m.Response(number, welcome)


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("v0.1", ["v0.1", "seed"]),
        ("seed/bincode", ["v0.1", "seed"]),
        ("seed", ["seed"]),
        ("seed/postcard", ["v0.4", "seed"]),
        ("v0.4", ["v0.4", "seed"]),
        ("v2", ["v2"]),
        ("v3", ["v3"]),
        ("v4", ["v4"]),
        ("5a", ["5b", "5a"]),
        ("5b", ["5b", "5a"]),
    ],
)
def test_what_a_handshake_tells(name: str, candidates: list[str]) -> None:
    server, _ = greeted(name)
    assert remaining(server) == candidates


@pytest.mark.parametrize("name", [name for name in NAMED if "v" not in name or name in ("v0.1", "v0.4")])
@pytest.mark.parametrize("payload", [m.Sync(), m.Query("SELECT 1", [7, "x"]), m.ReadEvents(1, 2, 3)], ids=repr)
def test_a_first_frame_that_is_no_handshake_can_be_answered(name: str, payload: m.Message) -> None:
    server, client = ServerCodec(), ClientCodec(name)
    assert ask(server, client, payload) == payload
    client.feed(server.response(2, m.ErrorResponse(m.ErrorCode.INVALID_REQUEST, "handshake required")))
    answer = client.next()
    assert isinstance(answer, m.Response)
    assert isinstance(answer.payload, m.ErrorResponse)
    assert ask(server, client, m.Handshake(client.version)) == m.Handshake(client.version)
    assert NAMED[name][0] in remaining(server)


def test_another_client_version_than_that_of_the_frame_is_for_the_session_to_judge() -> None:
    for name in NAMED:
        assert ask(ServerCodec(), ClientCodec(name), m.Handshake(9)) == m.Handshake(9)


# -- version 1, from what is asked later

CREATE = {place: m.CreateStream("s", m.DataClass.PHI, place) for place in (m.Everywhere(), m.Regional())}
NON_PHI = m.CreateStream("s", m.DataClass.NON_PHI, m.Everywhere())


def read_as(asked: str, name: str) -> list[str]:
    server, client = greeted(name)
    payload = {
        "append": m.AppendEvents(1, [b"x"], 3),
        "global": CREATE[m.Everywhere()],
        "sync": m.Sync(),
        "subscribe": m.Subscribe(1, 2, 3),
        "query": m.Query("SELECT 1", []),
    }[asked]
    read = ask(server, client, payload)
    assert type(read) is type(payload)
    return remaining(server)


@pytest.mark.parametrize(
    ("name", "asked", "left"),
    [
        ("v0.4", "append", ["v0.4"]),
        ("seed/postcard", "append", ["seed"]),
        ("v0.4", "global", ["v0.4", "seed"]),  # 1: "global", or the specification's "regional"
        ("seed/postcard", "global", ["seed"]),
        ("seed/bincode", "global", ["seed"]),
        ("v0.1", "sync", ["v0.1"]),
        ("seed/bincode", "sync", ["seed"]),
        ("seed/bincode", "subscribe", ["seed"]),
        ("v0.1", "append", ["v0.1", "seed"]),
        ("v0.1", "query", ["v0.1", "seed"]),
        ("v0.4", "sync", ["v0.4", "seed"]),
        ("5a", "append", ["5b", "5a"]),
        ("5b", "query", ["5b", "5a"]),
    ],
)
def test_what_a_request_tells(name: str, asked: str, left: list[str]) -> None:
    assert read_as(asked, name) == left


def test_an_append_without_an_expected_offset_is_unconditional() -> None:
    server, client = greeted("seed/postcard")
    assert ask(server, client, m.AppendEvents(1, [b"x"])) == m.AppendEvents(1, [b"x"], None)
    server, client = greeted("v0.4")
    assert ask(server, client, m.AppendEvents(1, [b"x"], 0)) == m.AppendEvents(1, [b"x"], 0)


def test_placement_1_is_global_unless_the_client_has_shown_to_follow_the_specification() -> None:
    regional = CREATE[m.Regional()]
    for name in ("seed/bincode", "seed/postcard"):
        server, client = greeted(name)
        assert ask(server, client, regional) == CREATE[m.Everywhere()]
        server, client = greeted(name)
        assert ask(server, client, CREATE[m.Everywhere()]) == CREATE[m.Everywhere()]
        assert ask(server, client, regional) == regional
    server, client = greeted("seed")  # shows it with its options of four bytes
    assert ask(server, client, regional) == regional


def test_the_classes_of_the_specification_are_understood_where_they_are_known() -> None:
    for name in ("seed", "seed/bincode", "seed/postcard"):
        server, client = greeted(name)
        assert ask(server, client, NON_PHI) == NON_PHI
    server, client = greeted("v0.4")
    pii = m.CreateStream("s", m.DataClass.PII, m.Everywhere())
    assert ask(server, client, pii) == pii
    public = m.CreateStream("s", m.DataClass.PUBLIC, m.Everywhere())
    assert ask(server, client, public) == public
    assert remaining(server) == ["v0.4"], "eight classes show that it is the newer one"


def test_a_sync_is_answered_with_the_number_that_the_client_has_for_it() -> None:
    for name in ("v0.1", "seed/bincode", "seed", "v0.4", "5a", "5b"):
        server, client = greeted(name)
        ask(server, client, m.Sync())
        client.feed(server.response(2, m.SyncResponse(True)))
        assert client.next() == m.Response(2, m.SyncResponse(True)), name


# -- version 5: two generations with the same version

TELLING: list[tuple[str, m.Message]] = [
    ("5b", m.StreamInfo(100)),
    ("5a", m.Subscribe(100, 0, 128)),
    ("5b", m.Subscribe(100, 0, 128)),
    ("5a", m.Sync()),
    ("5b", m.Sync()),
    ("5a", m.SubscribeCredit(99, 10)),
    ("5b", m.SubscribeCredit(99, 10)),
    ("5a", m.Unsubscribe(99)),
    ("5b", m.Unsubscribe(99)),
    ("5a", m.ListTables()),
    ("5b", m.ListTables()),
    ("5a", m.DescribeTable("patients")),
    ("5b", m.ListIndexes("patients")),
    ("5a", m.TenantCreate(7, "acme")),
    ("5a", m.TenantCreate(1, None)),
    ("5b", m.TenantCreate(7, None)),
    ("5a", m.TenantList()),
    ("5b", m.TenantList()),
    ("5b", m.TenantGet(7)),
    ("5a", m.ApiKeyRegister("bob", 7, ["Admin"])),
    ("5b", m.ApiKeyRegister("bob", 7, ["Admin"])),
    ("5a", m.ApiKeyRevoke("kmb_live_1")),
    ("5b", m.ApiKeyRevoke("kmb_live_1")),
    ("5a", m.ApiKeyList()),
    ("5a", m.ApiKeyList(5)),
    ("5b", m.ApiKeyList()),
    ("5b", m.ApiKeyList(5)),
    ("5a", m.ApiKeyRotate("kmb_live_1")),
    ("5b", m.ApiKeyRotate("kmb_live_1")),
    ("5a", m.GetServerInfo()),
    ("5b", m.GetServerInfo()),
    ("5a", m.AuditQuery()),
    ("5b", m.AuditQuery()),
    ("5b", m.VerifyAuditChain()),
    ("5a", c.ErasureRequest("alice")),
    ("5b", c.ErasureRequest("alice")),
    ("5b", c.ConsentGrant("alice", c.Purpose.EMERGENCY)),
    ("5a", c.MaskingPolicyList(True)),
    ("5b", c.MaskingPolicyList(True)),
]


@pytest.mark.parametrize(("name", "payload"), TELLING, ids=repr)
def test_the_two_generations_of_version_5_show_themselves(name: str, payload: m.Message) -> None:
    server, client = greeted(name)
    assert ask(server, client, payload) == payload
    assert remaining(server) == [name]


def test_what_was_found_out_is_kept() -> None:
    for name, known in (("5a", m.TenantGet(7)), ("5b", m.TenantDelete(7))):
        server, client = greeted(name)
        ask(server, client, m.ListTables())
        assert ask(server, client, known) == known
        assert ask(server, client, m.ListIndexes("t")) == m.ListIndexes("t")
        assert remaining(server) == [name]


def test_a_generation_that_was_ruled_out_does_not_come_back() -> None:
    server, _ = greeted("5a")
    ask(server, ClientCodec("5a"), m.ListTables())
    with pytest.raises(Refused):
        ask(server, ClientCodec("5b"), m.VerifyAuditChain())


@pytest.mark.parametrize(
    ("name", "payload", "readings"),
    [
        ("5a", m.TenantGet(7), ("TenantDelete", "TenantGet")),
        ("5b", m.TenantDelete(7), ("TenantDelete", "TenantGet")),
        ("5a", c.ErasureMarkStreamErased("r", 1, 5), ("ErasureMarkProgress", "ErasureMarkStreamErased")),
        ("5b", c.ErasureMarkProgress("r", [5]), ("ErasureMarkProgress", "ErasureMarkStreamErased")),
    ],
    ids=repr,
)
def test_what_could_destroy_something_is_not_guessed(name: str, payload: m.Message, readings: tuple[str, ...]) -> None:
    server, client = greeted(name)
    assert ask(server, client, payload) == m.Ambiguous(readings)
    assert remaining(server) == ["5b", "5a"]
    client.feed(server.response(2, m.ErrorResponse(m.ErrorCode.INVALID_REQUEST, "which?")))
    assert client.next() == m.Response(2, m.ErrorResponse(m.ErrorCode.INVALID_REQUEST, "which?"))


def test_a_harmless_request_is_taken_for_one_of_the_newest() -> None:
    server, client = greeted("5a")
    assert ask(server, client, m.ListIndexes("t")) == m.DescribeTable("t")
    assert remaining(server) == ["5b", "5a"]


# -- what was configured


@pytest.mark.parametrize("name", ["seed", "seed/bincode", "seed/postcard", "v0.1", "v0.4", "5a", "5b"])
def test_a_configured_generation_is_not_doubted(name: str) -> None:
    generation = NAMED[name][0]
    server, client = greeted(name, assume=generation)
    assert remaining(server) == [generation]
    if client.version == 5:
        assert ask(server, client, m.TenantDelete(7)) == m.TenantDelete(7)


@pytest.mark.parametrize(("name", "assume"), [("v0.1", "v0.4"), ("seed", "v0.1"), ("v0.4", "v0.1")])
def test_a_client_in_another_encoding_than_the_configured_generation_has_is_closed(name: str, assume: str) -> None:
    with pytest.raises(Refused) as raised:
        greeted(name, assume)
    assert raised.value.reply == b""


def test_what_is_configured_for_one_version_leaves_the_others_alone() -> None:
    server, _ = greeted("v3", assume="5a")
    assert remaining(server) == ["v3"]
    server, _ = greeted("v0.1", assume="5a")
    assert remaining(server) == ["v0.1", "seed"]
