"""Both ends of a connection: frames in any pieces, every refusal, and answers that the peer understands."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import scaled
from tests.wire.vectors import by_name

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec, Refused, ServerCodec
from penstock.wire.kimberlite.codec.dialects import NAMED
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.frames import HEADER_SIZE, MAX_PAYLOAD, crc32, frame

every_dialect = pytest.mark.parametrize("name", NAMED)
Code = m.ErrorCode


def hello(client: ClientCodec, number: int = 1) -> bytes:
    return client.request(number, 42, m.Handshake(client.version, "token"))


def connected(name: str, **options: bool) -> tuple[ClientCodec, ServerCodec]:
    client, server = ClientCodec(name, **options), ServerCodec()
    server.feed(hello(client))
    assert server.next() is not None
    return client, server


def refusal(server: ServerCodec, data: bytes = b"") -> Refused:
    server.feed(data)
    with pytest.raises(Refused) as raised:
        server.next()
    return raised.value


def told(client: ClientCodec, refused: Refused) -> tuple[int, m.ErrorCode, str]:
    """The error as the client decodes it: the number of the request, the code and the text."""
    client.feed(refused.reply)
    answer = client.next()
    assert isinstance(answer, m.Response)
    assert isinstance(answer.payload, m.ErrorResponse)
    assert client.next() is None
    return answer.request_id, answer.payload.code, answer.payload.message


# -- frames


@pytest.mark.parametrize("encoding", ["bincode", "printed", "postcard", "v5"])
def test_whole_frames(encoding: str) -> None:
    """In the specification's first example, and as a client of version 5 sent it."""
    vector = by_name("kimberlite")[f"message_valid/handshake_{encoding}"]
    client, server = ClientCodec(vector.dialect), ServerCodec()
    request = m.Request(1, 42, m.Handshake(client.version))
    assert client.request(request.id, request.tenant_id, request.payload) == vector.data
    server.feed(vector.data)
    assert server.next() == request
    assert server.version == client.version


@every_dialect
@pytest.mark.parametrize("castagnoli", [False, True])
@pytest.mark.parametrize("little", [False, True])
def test_a_client_is_answered_as_it_asks(name: str, castagnoli: bool, little: bool) -> None:
    client, server = connected(name, castagnoli=castagnoli, little=little)
    client.feed(server.response(1, m.HandshakeResponse(client.version, True, ["sync"])))
    assert client.next() == m.Response(1, m.HandshakeResponse(client.version, True, ["sync"]))
    assert server.pushes == (client.version > 1)
    if server.pushes:
        client.feed(server.push(m.SubscriptionEvents(7, 1, [b"x"], 3)))
        assert client.next() == m.Push(m.SubscriptionEvents(7, 1, [b"x"], 3))


def test_the_header_is_as_the_specification_draws_it() -> None:
    _, server = connected("v0.4")
    sent = server.response(3, m.SyncResponse(True))
    assert sent[:6] == b"VDB \x00\x01"
    assert int.from_bytes(sent[6:10]) == len(sent) - HEADER_SIZE
    assert int.from_bytes(sent[10:14]) == crc32(sent[14:])


@every_dialect
@settings(max_examples=scaled(20), deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=6), st.data())
def test_frames_arrive_in_any_pieces(name: str, sizes: list[int], data: st.DataObject) -> None:
    client, server = ClientCodec(name), ServerCodec()
    requests = [m.AppendEvents(number, [bytes(size)], 0) for number, size in enumerate(sizes)]
    stream = hello(client) + b"".join(client.request(9, 42, each) for each in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    found: list[m.Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        server.feed(stream[start:end])
        if data.draw(st.booleans()) or end == len(stream):
            while (request := server.next()) is not None:
                found.append(request.payload)
    assert [getattr(each, "events", None) for each in found[1:]] == [each.events for each in requests]
    assert server.framer.buffered == 0


def test_an_incomplete_frame_consumes_nothing() -> None:
    client, server = connected("5b")
    whole = client.request(2, 42, m.ReadEvents(1, 2, 3))
    for size, byte in enumerate(whole[:-1]):
        server.feed(bytes((byte,)))
        assert server.next() is None
        assert server.framer.buffered == size + 1
    server.feed(whole[-1:])
    assert server.next() == m.Request(2, 42, m.ReadEvents(1, 2, 3))


def test_small_pieces_of_a_large_frame_are_not_copied_again_and_again() -> None:
    """8 MiB in pieces of 128 bytes: if each were joined to the rest, 256 GiB would be copied."""
    client, server = connected("5b")
    whole = client.request(2, 42, m.AppendEvents(1, [bytes(8 << 20)], 0))
    began = time.process_time()
    for start in range(0, len(whole), 128):
        server.feed(whole[start : start + 128])
        if start + 128 < len(whole):
            assert server.next() is None
    assert server.next() is not None
    assert time.process_time() - began < 2


def test_nothing_is_allocated_for_an_announced_length() -> None:
    _, server = connected("5b")
    tracemalloc.start()
    server.feed(b"VDB \x00\x05" + MAX_PAYLOAD.to_bytes(4) + bytes(4) + b"x")
    assert server.next() is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000


def test_a_frame_may_be_16_mib_and_no_more() -> None:
    client, server = connected("5b")
    head = len(client.request(2, 42, m.AppendEvents(1, [bytes(1 << 23)], 0))) - HEADER_SIZE - (1 << 23)
    exact = client.request(2, 42, m.AppendEvents(1, [bytes(MAX_PAYLOAD - head)], 0))
    assert len(exact) == HEADER_SIZE + MAX_PAYLOAD
    server.feed(exact)
    assert server.next() is not None
    with pytest.raises(ValueError, match="most is 16777216"):
        client.request(2, 42, m.AppendEvents(1, [bytes(MAX_PAYLOAD - head + 1)], 0))
    refused = refusal(server, b"VDB \x00\x05" + (MAX_PAYLOAD + 1).to_bytes(4) + bytes(4))
    assert told(client, refused)[:2] == (0, Code.INVALID_REQUEST)


# -- refusals before anything is known of the peer: it is closed without a word


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"VDX ",
        b"VDB \x00\x01" + (MAX_PAYLOAD + 1).to_bytes(4) + bytes(4),
        b"VDB \x00\x05" + bytes(4) + bytes(4),  # empty, with the right checksum
        b"VDB \x00\x01" + bytes(4) + bytes(4),
        hello(ClientCodec("5b"))[:-1] + b"?",  # damaged
        hello(ClientCodec("v0.1"))[:-1] + b"?",
        frame(b"\x01" + b"\x01\x00" * 20, 1),  # nothing that can be read
        frame(b"\x01\x01\x2a\x00\x00\x05\x00", 5),  # a response
        frame(b"\x00\x01\x2a\x00\x00\x05\x00\x00", 5),  # a handshake and a byte
    ],
)
def test_nonsense_is_closed_without_a_word(data: bytes) -> None:
    server = ServerCodec()
    assert refusal(server, data).reply == b""
    assert server.version == 0
    assert server.framer.buffered == 0
    server.feed(hello(ClientCodec("5b")))
    assert server.next() is None, "something was taken after a refusal"


@pytest.mark.parametrize("little", [False, True])
@pytest.mark.parametrize(("version", "name"), [(0, "v0.4"), (6, "5b"), (7, "5b"), (256, "5b"), (65535, "5b")])
def test_another_version_is_told_in_the_nearest_dialect(version: int, name: str, little: bool) -> None:
    server = ServerCodec()
    refused = refusal(server, frame(b"whatever", version, little=little)[:HEADER_SIZE])  # its payload does not matter
    order = "little" if little else "big"
    assert int.from_bytes(refused.reply[4:6], order) == version  # type: ignore[arg-type]
    payload = refused.reply[HEADER_SIZE:]
    client = ClientCodec(name)
    number, code, text = told(client, Refused("", frame(payload, client.version)))
    assert (number, code) == (0, Code.INVALID_REQUEST)
    assert text == f"unsupported protocol version {version}; this server speaks 1 to 5"


# -- refusals later: the peer is told


@every_dialect
def test_a_wrong_checksum_is_told(name: str) -> None:
    client, server = connected(name)
    sent = bytearray(client.request(7, 42, m.Sync()))
    sent[13] ^= 1
    number, code, text = told(client, refusal(server, bytes(sent)))
    assert (number, code) == (7, Code.INVALID_REQUEST)
    assert "checksum" in text


def test_the_checksum_does_not_change_within_a_connection() -> None:
    client, server = connected("5b")
    assert told(client, refusal(server, ClientCodec("5b", castagnoli=True).request(7, 42, m.Sync())))[0] == 7


@every_dialect
def test_the_version_does_not_change_within_a_connection(name: str) -> None:
    client, server = connected(name)
    other = ClientCodec("v3" if client.version != 3 else "v2")
    number, code, text = told(client, refusal(server, other.request(7, 42, m.Sync())))
    assert (number, code) == (0, Code.INVALID_REQUEST)
    assert f"version {other.version}" in text


@every_dialect
def test_a_message_that_cannot_be_read_is_told(name: str) -> None:
    client, server = connected(name)
    sent = client.request(7, 42, m.Sync())
    number, code, _ = told(client, refusal(server, frame(sent[HEADER_SIZE:] + b"\xff", client.version)))
    assert (number, code) == (7, Code.INVALID_REQUEST)


@every_dialect
def test_what_came_before_a_refusal_is_still_given_out(name: str) -> None:
    client, server = connected(name)
    server.feed(client.request(2, 42, m.Sync()) + b"GET / HTTP/1.1")
    assert server.next() == m.Request(2, 42, m.Sync())
    assert told(client, refusal(server))[0] == 0


def test_too_many_events_for_any_client_are_refused_before_they_are_made() -> None:
    client, server = connected("5b")
    sent = client.request(7, 42, m.AppendEvents(1, [b""] * 1_000_000, 0))
    tracemalloc.start()
    number, code, text = told(client, refusal(server, sent))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (number, code) == (7, Code.INVALID_REQUEST)
    assert text == "a list of 1000000 elements; the most is 65536"
    assert peak < 1_000_000


# -- answers


def answered(name: str, payload: m.Message) -> m.Message:
    client, server = connected(name)
    client.feed(server.response(5, payload))
    answer = client.next()
    assert isinstance(answer, m.Response)
    assert answer.request_id == 5
    return answer.payload


@every_dialect
def test_a_client_never_gets_a_code_that_it_does_not_know(name: str) -> None:
    """Nor one that the other generation of its version does not, while it is not known which it is of."""
    last = {"v0.1": 15, "v0.4": 15, "v2": 19, "5a": 28, "5b": 28}.get(name, 15 if "seed" in name else 28)
    nearest = {16: Code.INVALID_OFFSET, 19: Code.RATE_LIMITED, 29: Code.QUERY_EXECUTION_ERROR, 30: Code.STORAGE_ERROR}
    for code in m.ErrorCode:
        expected = code if code <= last else nearest.get(code, Code.INVALID_REQUEST)
        assert answered(name, m.ErrorResponse(code, "why")) == m.ErrorResponse(expected, "why")


def test_the_newest_code_is_told_to_who_is_known_to_be_new() -> None:
    client, server = connected("5b")
    server.feed(client.request(2, 42, m.StreamInfo(5)))
    server.next()
    client.feed(server.response(2, m.ErrorResponse(Code.UNIQUE_CONSTRAINT_VIOLATION, "twice")))
    assert client.next() == m.Response(2, m.ErrorResponse(Code.UNIQUE_CONSTRAINT_VIOLATION, "twice"))


def test_an_answer_that_a_version_lacks_is_an_error() -> None:
    payload = answered("v3", m.AuditQueryResponse([]))
    assert isinstance(payload, m.ErrorResponse)
    assert "version 3" in payload.message


def test_an_answer_that_no_frame_can_hold_is_an_error() -> None:
    payload = answered("5b", m.QueryResponse(["data"], [["x" * MAX_PAYLOAD]]))
    assert isinstance(payload, m.ErrorResponse)
    assert payload.code is Code.QUERY_EXECUTION_ERROR
    assert "ask for less" in payload.message


def test_version_1_has_no_pushes() -> None:
    _, server = connected("seed")
    assert not server.pushes
    with pytest.raises(AssertionError, match="no pushes"):
        server.push(m.SubscriptionEvents(1, 0, [], 0))


# -- the client


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 200 OK\r\n", frame(b"", 5), frame(b"\x01\x01", 5), frame(b"\x01\x01\x08\x01", 4)]
)
def test_a_client_does_not_accept_nonsense(data: bytes) -> None:
    client = ClientCodec("5b")
    client.feed(data)
    with pytest.raises(MalformedPayload):
        client.next()


def test_a_client_checks_the_checksum() -> None:
    client, server = connected("5b")
    sent = bytearray(server.response(1, m.SyncResponse(True)))
    sent[-1] ^= 1
    client.feed(bytes(sent))
    with pytest.raises(MalformedPayload, match="checksum"):
        client.next()


def test_a_client_does_not_ask_what_its_version_lacks() -> None:
    with pytest.raises(ValueError, match="version 1 of the protocol has no StreamInfo"):
        ClientCodec("v0.4").request(1, 42, m.StreamInfo(1))


# -- whatever comes, nothing but Refused is raised


def drain(server: ServerCodec, data: bytes) -> int:
    """The number of requests that were read."""
    server.feed(data)
    count = 0
    try:
        while server.next() is not None:
            count += 1
    except Refused:
        pass
    return count


@settings(max_examples=scaled(200), deadline=None)
@given(st.binary(max_size=80), st.integers(1, 5), st.booleans())
def test_random_payloads(payload: bytes, version: int, first: bool) -> None:
    server = ServerCodec()
    if not first:
        drain(server, hello(ClientCodec({1: "seed", 2: "v2", 3: "v3", 4: "v4", 5: "5a"}[version])))
    assert drain(server, frame(payload, version)) <= 1


@settings(max_examples=scaled(100), deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes(data: bytes) -> None:
    assert drain(ServerCodec(), data) == 0  # the checksum of a frame is wrong
    assert drain(ServerCodec(), b"VDB " + data) == 0


@every_dialect
def test_damaged_and_truncated_streams(name: str) -> None:
    seeded = random.Random(name)
    client = ClientCodec(name)
    whole = hello(client) + client.request(2, 42, m.AppendEvents(1, [b"abc"] * 10, 0)) + client.request(3, 42, m.Sync())
    assert drain(ServerCodec(), whole) == 3
    for _ in range(300):
        damaged = bytearray(whole)
        at = seeded.randrange(len(damaged))
        damaged[at] ^= 1 << seeded.randrange(8)
        assert drain(ServerCodec(), bytes(damaged)) < 3, at
        cut = seeded.randrange(len(whole))
        assert drain(ServerCodec(), whole[:cut]) < 3
        assert drain(ServerCodec(), whole[:cut] + whole[cut + 1 :]) < 3
