"""Requests and replies: golden bytes for every opcode, round trips, and what damaged payloads lead to."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wire.flymq.exchanges import EXCHANGES, FORMS, Exchange, Form, octets
from tests.wire.flymq.strategies import any_answer, any_request
from tests.wire.vectors import vector_bytes

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import fetched_records, replies, requests
from penstock.wire.flymq.codec.coalesced_produce import coalesce_produce
from penstock.wire.flymq.codec.fields import BOOL, S8, S16, Reader, many
from penstock.wire.flymq.errors import MalformedPayload, PayloadTooLarge, ProtocolError, UnknownOpcode
from penstock.wire.flymq.frames import Framer
from penstock.wire.flymq.opcodes import Op

NO_REQUESTS = {Op.AUTH_RESPONSE, Op.ERROR}


def named(exchange: Exchange | Form) -> str:
    return exchange.request_vector


def framed(opcode: int, payload: bytes) -> bytes:
    return bytes((0xAF, 0x01, opcode, 0x01)) + len(payload).to_bytes(4) + payload


# -- golden bytes


def test_every_opcode_has_golden_bytes() -> None:
    opcodes = set(Op) - NO_REQUESTS
    assert {exchange.opcode for exchange in EXCHANGES} == opcodes
    assert requests.LAYOUTS.keys() == opcodes
    assert replies.LAYOUTS.keys() == opcodes | {Op.ERROR}
    documented = [*range(0x01, 0x0C), *range(0x10, 0x16), *range(0x20, 0x23), 0x30, 0x31, 0x35, *range(0x40, 0x44)]
    documented += [*range(0x50, 0x53), *range(0x60, 0x67), *range(0x70, 0x7E), 0xFF]
    later, ours = [0x53, 0x80, 0x81], [0x0C, 0x0D, 0x0E, 0x0F, 0x16, 0x7E, 0x7F]
    assert sorted(Op) == sorted(documented + later + ours)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=named)
def test_golden_request(exchange: Exchange) -> None:
    payload = exchange.request_payload
    assert requests.decode(exchange.opcode, payload) == exchange.request
    assert requests.encode(exchange.request) == framed(exchange.opcode, payload)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=named)
def test_golden_reply(exchange: Exchange) -> None:
    payload = exchange.reply_payload
    opcode = exchange.reply_opcode or exchange.opcode
    code_order = isinstance(exchange.reply, m.Fetched) and exchange.reply.code_order
    assert replies.encode(exchange.opcode, exchange.reply) == framed(opcode, payload)
    assert replies.decode(opcode, payload, code_order) == exchange.reply
    assert replies.decode(exchange.opcode, payload, code_order) == exchange.reply


@pytest.mark.parametrize("form", FORMS, ids=named)
def test_other_forms_of_requests(form: Form) -> None:
    assert requests.decode(form.opcode, form.request_payload) == form.request


def test_golden_error() -> None:
    payload = octets("00 0012 'E: topic not found'")
    assert replies.encode(Op.CONSUME, m.Failure("topic not found")) == framed(0xFF, payload)
    assert replies.decode(0xFF, payload) == m.Failure("topic not found")
    assert replies.decode(0xFF, octets("00 0003 'EOF'")) == m.Failure("EOF")


# -- decisions that golden bytes do not show in full


def test_decision_04_an_empty_result_is_the_same_in_both_orders() -> None:
    seed, code = (replies.encode(Op.FETCH, m.Fetched([], 9, order)) for order in (False, True))
    assert seed == code


def test_decision_05_a_failed_login_says_why_in_the_order_that_each_kind_of_client_reads() -> None:
    told = {
        style: replies.encode(Op.AUTH, m.AuthResult(False, "no", "", [], style)).removeprefix(b"\xaf\1\x71\1")[4:]
        for style in m.AuthStyle
    }
    assert told[m.AuthStyle.SPEC] == octets("00 0002 'no' 0000 00000000")
    assert told[m.AuthStyle.ORIGINAL] == octets("00 0000 00000000 0002 'no'")
    for style, payload in told.items():
        result = replies.decode(Op.AUTH, payload)
        assert isinstance(result, m.AuthResult)
        assert (result.success, result.error, result.roles) == (False, "no", []), style


@pytest.mark.parametrize("reason", ["no", "invalid username or password", "é" * 40, "é" * 3000])
def test_decision_05_by_default_a_failed_login_says_why_in_both_orders(reason: str) -> None:
    payload = replies.encode(Op.AUTH, m.AuthResult(False, reason))[8:]
    document = Reader(payload)
    assert (BOOL.read(document), S16.read(document), S16.read(document)) == (False, reason, "")
    many(S16).read(document)
    assert document.left == 0, "a client that wants its payload to be over finds it over"
    original = Reader(payload)
    assert (BOOL.read(original), S16.read(original), many(S8).read(original)) == (False, reason, [])
    assert S16.read(original) == "\t " + reason[:1168], "behind blanks, which print as nothing"
    assert replies.decode(Op.AUTH, payload) == m.AuthResult(False, reason)


def test_decision_09_whoami_reads_in_both_layouts() -> None:
    """As the original's Python client reads it, and as its Go client does, which reads the layout of AUTH."""
    payload = replies.encode(Op.WHOAMI, m.CurrentUser(True, "bob", ["admin"], ["read", "write"]))[8:]
    python = Reader(payload)
    assert (BOOL.read(python), S16.read(python)) == (True, "bob")
    assert (many(S16).read(python), many(S16).read(python)) == ([], ["read", "write"])
    go = Reader(payload)
    assert (BOOL.read(go), S16.read(go), many(S8).read(go), S16.read(go)) == (True, "bob", [], "")
    assert replies.decode(Op.WHOAMI, payload) == m.CurrentUser(True, "bob", ["admin"], ["read", "write"])


def test_decision_05_both_leaves_out_name_and_roles() -> None:
    told = replies.encode(Op.AUTH, m.AuthResult(True, "", "bob", ["admin"], m.AuthStyle.BOTH))
    assert told == framed(0x71, bytes.fromhex("01 00 00 00 00 00 00 00 00"))


@pytest.mark.parametrize("opcode", [0x00, 0x1F, 0x17, 0x54, 0x71, 0x82, 0xA0, 0xA1, 0xFF])
def test_decision_06_and_16_opcodes_that_are_no_requests(opcode: int) -> None:
    with pytest.raises(UnknownOpcode, match=f"^unknown opcode: {opcode}$"):
        requests.decode(opcode, b"")


def test_decision_11_data_as_long_as_a_schema_name() -> None:
    """65,536 bytes of data behind their length begin like a schema name of one byte."""
    value = bytes(65_536)
    payload = octets("0001 't'") + len(value).to_bytes(4) + value + octets("0005 'order'")
    assert requests.decode(Op.PRODUCE_WITH_SCHEMA, payload) == m.ProduceWithSchema("t", "order", value)


@pytest.mark.parametrize(
    "rest", ["0000 00000000", "00000000 0000", "0005 'order' 00000002 '{}' 00", "000000FF 0001 'x'"]
)
def test_decision_11_neither_layout(rest: str) -> None:
    with pytest.raises(MalformedPayload, match=r"^invalid binary format$"):
        requests.decode(Op.PRODUCE_WITH_SCHEMA, octets("0001 't'" + rest))


@pytest.mark.parametrize("rest", ["0003 'ab'", "0001 'ab'", "00000000000001"])
def test_decision_12_neither_id_nor_offset(rest: str) -> None:
    with pytest.raises(MalformedPayload, match=r"^invalid binary format$"):
        requests.decode(Op.REPLAY_DLQ, octets("0001 't'" + rest))


@pytest.mark.parametrize("text", ["", "x", "OK", "message not found"])
def test_decision_13_a_replays_text_has_two_bytes(text: str) -> None:
    payload = replies.encode(Op.REPLAY_DLQ, m.Done(True, text))[8:]
    assert payload[0] == 1
    struct.unpack_from(">I", payload, 1)  # what the original's client does with it
    assert int.from_bytes(payload[1:3]) == len(payload) - 3 >= 2
    assert payload[3:].decode().rstrip() == text


# -- round trips


@given(any_request)
def test_requests_go_round(request: m.Request) -> None:
    [frame] = Framer().feed(requests.encode(request))
    assert requests.decode(frame.opcode, frame.payload) == request
    assert frame.flags == 1


@given(any_answer)
def test_replies_go_round(answer: tuple[int, m.Reply]) -> None:
    opcode, reply = answer
    [frame] = Framer(stray=False).feed(replies.encode(opcode, reply))
    code_order = isinstance(reply, m.Fetched) and reply.code_order
    assert replies.decode(frame.opcode, frame.payload, code_order) == reply


# -- damage

# The shortest payload of each opcode, as the original has it. Three are ours: a PRODUCE may lack its partition, a
# DESCRIBE_GROUP its topic, and the original's number for AUDIT_QUERY is one that cannot be.
SHORTEST = {
    Op.PRODUCE: 10,
    Op.CONSUME: 14,
    Op.CREATE_TOPIC: 6,
    Op.METADATA: 2,
    Op.SUBSCRIBE: 9,
    Op.COMMIT: 16,
    Op.FETCH: 18,
    Op.DELETE_TOPIC: 2,
    Op.CONSUME_ZERO_COPY: 14,
    Op.FETCH_BINARY: 18,
    Op.PRODUCE_BATCH: 6,
    Op.PRODUCE_RECORDS: 24,
    Op.FETCH_RECORDS: 18,
    Op.REGISTER_SCHEMA: 7,
    Op.GET_SCHEMA: 6,
    Op.VALIDATE_SCHEMA: 6,
    Op.PRODUCE_WITH_SCHEMA: 8,
    Op.DELETE_SCHEMA: 6,
    Op.SET_COMPATIBILITY: 3,
    Op.FETCH_DLQ: 6,
    Op.REPLAY_DLQ: 4,
    Op.PURGE_DLQ: 2,
    Op.PRODUCE_DELAYED: 14,
    Op.CANCEL_DELAYED: 2,
    Op.PRODUCE_WITH_TTL: 14,
    Op.TXN_COMMIT: 2,
    Op.TXN_ROLLBACK: 2,
    Op.TXN_PRODUCE: 8,
    Op.CLUSTER_JOIN: 2,
    Op.GET_OFFSET: 8,
    Op.RESET_OFFSET: 9,
    Op.DESCRIBE_GROUP: 2,
    Op.GET_LAG: 8,
    Op.DELETE_GROUP: 4,
    Op.SEEK_TO_TIMESTAMP: 14,
    Op.AUTH: 4,
    Op.USER_CREATE: 10,
    Op.USER_DELETE: 2,
    Op.USER_UPDATE: 10,
    Op.USER_GET: 2,
    Op.ACL_SET: 11,
    Op.ACL_GET: 2,
    Op.ACL_DELETE: 2,
    Op.PASSWORD_CHANGE: 10,
    Op.ROLE_SET: 8,
    Op.ROLE_DELETE: 2,
    Op.USE_SCOPE: 4,
    Op.AUDIT_QUERY: 36,
    Op.AUDIT_EXPORT: 6,
}


@pytest.mark.parametrize("opcode", sorted(requests.LAYOUTS), ids=lambda opcode: Op(opcode).name)
def test_a_payload_below_the_minimum(opcode: int) -> None:
    shortest = SHORTEST.get(Op(opcode), 0)
    for size in range(shortest):
        with pytest.raises(MalformedPayload, match=r"^buffer too small$"):
            requests.decode(opcode, bytes(size))
    if opcode not in (Op.PRODUCE_WITH_SCHEMA, Op.AUDIT_EXPORT):  # zeros are an empty schema name, and an empty query
        requests.decode(opcode, bytes(shortest))


@pytest.mark.parametrize("exchange", EXCHANGES, ids=named)
def test_a_request_that_ends_too_early(exchange: Exchange) -> None:
    payload = exchange.request_payload
    understood = []
    for size in range(len(payload)):
        with suppress(MalformedPayload):
            requests.decode(exchange.opcode, payload[:size])
            understood.append(size)
    assert understood == ([] if exchange.may_lack is None else [len(payload) - exchange.may_lack])


def own_tail(reply: m.Reply) -> int:
    """Bytes at the end of a reply that are ours alone: the original's clients do without them."""
    if isinstance(reply, m.AclInfo) and reply.restrict:
        return 1
    if isinstance(reply, m.DlqMessages) and reply.next_offset is not None:
        return 8
    return 4 + sum(2 + len(role) for role in reply.roles) if isinstance(reply, m.CurrentUser) and reply.roles else 0


@pytest.mark.parametrize("exchange", EXCHANGES, ids=named)
def test_a_reply_that_ends_too_early(exchange: Exchange) -> None:
    payload = exchange.reply_payload
    code_order = isinstance(exchange.reply, m.Fetched) and exchange.reply.code_order
    for size in range(len(payload)):
        if size == len(payload) - own_tail(exchange.reply):
            continue
        with pytest.raises(MalformedPayload):
            replies.decode(exchange.opcode, payload[:size], code_order)


@pytest.mark.parametrize(
    ("opcode", "payload"),
    [
        (Op.CONSUME, "0009 't' 00000000 0000000000000000"),  # a length past the end
        (Op.CONSUME, "0001 FF 00000000 0000000000000000"),  # no UTF-8
        (Op.CONSUME, "0003 EDA080 00000000 0000000000000000"),  # half of a pair
        (Op.PRODUCE, "0001 't' 00000000 00000001 'v' FFFF"),  # half a partition
        (Op.PRODUCE, "0001 't' FFFFFFFF 00000001 'v' FFFFFFFF"),
        (Op.PRODUCE, "0001 't' 00000000 FFFFFFFF 'v' FFFFFFFF"),
        (Op.FETCH, "0001 't' 00000000 0000000000000005 00000064 00"),  # half a filter
        (Op.FETCH, "0001 't' 00000000 0000000000000005 00000064 0004 '$.i'"),
        (Op.PRODUCE_DELAYED, "0001 't' 00000001 'v' 0000000000000001 00000002 'k1'"),  # half a tail
        (Op.RESET_OFFSET, "0001 't' 0001 'g' 00000000 06 'offset'"),  # no offset
        (Op.PRODUCE_BATCH, "0001 't' 00000002 00000000 00000000 FFFFFFFF 00000000 00000000 0000"),
        (Op.PRODUCE_BATCH, "0001 't' 00000001 00000000 00000009 FFFFFFFF"),
        (Op.AUDIT_EXPORT, "00000040 00 0003 'csv'"),
    ],
)
def test_inner_damage(opcode: Op, payload: str) -> None:
    with pytest.raises(MalformedPayload, match=r"^invalid binary format$"):
        requests.decode(opcode, octets(payload))


@given(st.integers(0, 255), st.binary(max_size=80), st.booleans())
@example(Op.LIST_TOPICS, b"\xff\xff\xff\xff", False)
def test_junk_is_a_protocol_error_or_understood(opcode: int, payload: bytes, code_order: bool) -> None:
    for attempt in (lambda: requests.decode(opcode, payload), lambda: replies.decode(opcode, payload, code_order)):
        with suppress(ProtocolError):
            attempt()
    coalesce_produce(framed(Op.PRODUCE, payload), 0, 100)


@given(st.sampled_from(EXCHANGES), st.data())
def test_damaged_messages_are_protocol_errors_or_understood(exchange: Exchange, data: st.DataObject) -> None:
    for decode, sent in ((requests.decode, exchange.request_payload), (replies.decode, exchange.reply_payload)):
        payload = bytearray(sent)
        for _ in range(data.draw(st.integers(1, 3)) if payload else 0):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        with suppress(ProtocolError):
            decode(exchange.opcode, bytes(payload))


HUGE = [
    (requests.decode, Op.PRODUCE_BATCH, "0001 't' FFFFFFFF"),
    (requests.decode, Op.PRODUCE_BATCH, "0001 't' 00018000" + "00" * 60_000),
    (requests.decode, Op.USER_CREATE, "0001 'a' 0001 'b' 0000 FFFFFFFF"),
    (requests.decode, Op.ACL_SET, "0001 't' 00 FFFFFFFF FFFFFFFF"),
    (requests.decode, Op.ROLE_SET, "0001 'r' FFFFFFFF 0000"),
    (requests.decode, Op.AUDIT_QUERY, "0000000000000001 0000000000000002 FFFFFFFF" + "00" * 60_000),
    (requests.decode, Op.AUDIT_EXPORT, "FFFFFFFF" + "00" * 60_000),
    (requests.decode, Op.PRODUCE, "0001 't' FFFFFFF0" + "00" * 60_000),
    (replies.decode, Op.FETCH, "FFFFFFFF" + "00" * 60_000),
    (replies.decode, Op.FETCH_BINARY, "FFFFFFFF" + "00" * 60_000),
    (replies.decode, Op.PRODUCE_BATCH, "0001 't' 0000000000000000 FFFFFFFF" + "00" * 60_000),
    *((replies.decode, op, "FFFFFFFF" + "00" * 60_000) for op in (Op.LIST_TOPICS, Op.LIST_GROUPS, Op.LIST_SCHEMAS)),
    *(
        (replies.decode, op, "FFFFFFFF" + "00" * 60_000)
        for op in (Op.FETCH_DLQ, Op.USER_LIST, Op.ACL_LIST, Op.ROLE_LIST)
    ),
    (replies.decode, Op.AUDIT_QUERY, "FFFFFFFF" + "00" * 60_000),
    (replies.decode, Op.CLUSTER_METADATA, "0000 FFFFFFFF" + "00" * 60_000),
]


@pytest.mark.parametrize(("decode", "opcode", "payload"), HUGE)
def test_huge_counts_and_lengths_allocate_nothing(decode: object, opcode: Op, payload: str) -> None:
    assert callable(decode)
    data = octets(payload)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedPayload):
            decode(opcode, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_lists_in_requests_are_bounded_although_the_bytes_are_there() -> None:
    names = octets("0001 'r'") + (requests.MAX_NAMES + 1).to_bytes(4) + bytes(2 * (requests.MAX_NAMES + 1)) + bytes(2)
    with pytest.raises(MalformedPayload, match=r"^invalid binary format: a list of 10001 "):
        requests.decode(Op.ROLE_SET, names)
    batch = octets("0001 't'") + (requests.MAX_BATCH + 1).to_bytes(4) + bytes(12 * (requests.MAX_BATCH + 1))
    with pytest.raises(MalformedPayload, match=r"^invalid binary format: a batch of 25001 "):
        requests.decode(Op.PRODUCE_BATCH, batch)


# -- what cannot be written


@pytest.mark.parametrize(
    "request_",
    [
        m.DeleteTopic("x" * 65_536),
        m.DeleteTopic("é" * 32_768),
        m.DeleteTopic("\udcff"),
        m.SetCompatibility("s", "x" * 256),
        m.Consume("t", 1 << 31, 0),
        m.Consume("t", 0, -1),
        m.Consume("t", 0, 1 << 64),
        m.Fetch("t", 0, 0, 10, "filter", code_order=False),
        m.ReplayDlq("t"),
        m.ReplayDlq("t", "id", 3),
        m.ProduceBatch("t", [None], [b"a", b"b"], [0, 0]),
    ],
)
def test_values_that_do_not_fit_are_refused(request_: m.Request) -> None:
    with pytest.raises(ValueError):
        requests.encode(request_)


def test_the_longest_string_fits() -> None:
    request = m.DeleteTopic("x" * 65_535)
    assert requests.decode(Op.DELETE_TOPIC, requests.encode(request)[8:]) == request


def test_a_reply_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than FlyMQ can carry"):
        replies.encode(Op.DELETE_TOPIC, m.Done(True, "x" * 65_536))
    with pytest.raises(ValueError, match="cannot carry"):
        replies.encode(Op.SUBSCRIBE, m.Position(-1))
    with pytest.raises(PayloadTooLarge):
        replies.encode(Op.CONSUME, m.Consumed(None, bytes(33_554_432)))
    value = bytes(1 << 20)
    with pytest.raises(PayloadTooLarge):
        fetched_records.encode_fetched(Op.FETCH, range(32), [None] * 32, [value] * 32, 32, True)
    assert len(fetched_records.encode_fetched(Op.FETCH, range(31), [None] * 31, [value] * 31, 31, True)) < 33_554_440


def test_passwords_stay_out_of_texts() -> None:
    for request in (m.Authenticate("bob", "hush"), m.ChangePassword("bob", "hush", "hush", [])):
        assert "hush" not in repr(request)
        assert "bob" in repr(request)


HEADERS = [("trace", b"\x01\xff")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("txn_produce_with_headers", m.ProduceInTransaction("txn-1", "t", b"hello", b"k1", -1, HEADERS)),
        ("produce_delayed_with_headers", m.ProduceDelayed("t", b"hello", 5000, b"k1", -1, HEADERS)),
        ("produce_with_ttl_with_headers", m.ProduceWithTtl("t", b"hello", 60_000, b"k1", -1, HEADERS)),
    ],
)
def test_headers_come_behind_a_whole_record(name: str, message: m.Request) -> None:
    data = vector_bytes("flymq")[f"message_opcodes/{name}"]
    assert requests.encode(message) == data
    assert requests.decode(data[2], data[8:]) == message
    for cut in range(1, 17):  # half of them is a mistake
        with pytest.raises(MalformedPayload):
            requests.decode(data[2], data[8:-cut])
    assert requests.decode(data[2], data[8:-17]) == msgspec.structs.replace(message, headers=[])
