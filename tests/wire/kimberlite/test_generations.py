"""The generations: every number pinned, every worked example byte for byte, and that everything comes back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import scaled
from tests.wire.kimberlite.examples import CAPTURED, EXAMPLES, octets
from tests.wire.kimberlite.strategies import DIALECTS, any_message, any_request
from tests.wire.vectors import by_name

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect
from penstock.wire.kimberlite.codec.encoding import POSTCARD
from penstock.wire.kimberlite.codec.generations import GENERATIONS
from penstock.wire.kimberlite.codec.kinds import Choice, Label
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.frames import HEADER_SIZE

VECTORS = by_name("kimberlite")
every_dialect = pytest.mark.parametrize("of", DIALECTS, ids=repr)
quick = settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])

# -- numbers

CORE = "Handshake CreateStream AppendEvents Query QueryAt ReadEvents"
ADMIN = (
    "ListTables DescribeTable ListIndexes TenantCreate TenantList TenantDelete TenantGet "
    "ApiKeyRegister ApiKeyRevoke ApiKeyList ApiKeyRotate GetServerInfo "
    "ConsentGrant ConsentWithdraw ConsentCheck ConsentList "
    "ErasureRequest ErasureMarkProgress ErasureMarkStreamErased ErasureComplete ErasureExempt ErasureStatus ErasureList"
)
EXPORT = "ExportSubject VerifyExport BreachReportIndicator BreachQueryStatus BreachConfirm BreachResolve"  #
V1 = f"{CORE} Subscribe Sync"
V2 = f"{V1} SubscribeCredit Unsubscribe {ADMIN} AuditQuery {EXPORT}"
REQUESTS = {
    "v0.1": f"{CORE} Sync",
    "seed": V1,
    "v0.4": V1,
    "v2": V2,
    "v3": V2,
    "v4": f"{V2} MaskingPolicyList",
    "5a": f"{V2} MaskingPolicyList",
    "5b": f"{CORE} StreamInfo Subscribe Sync SubscribeCredit Unsubscribe {ADMIN} AuditQuery VerifyAuditChain {EXPORT} "
    "MaskingPolicyList",
}
ANSWERS = (
    "ErrorResponse HandshakeResponse CreateStreamResponse AppendEventsResponse QueryResponse QueryAtResponse "
    "ReadEventsResponse"
)
ADMINISTERED = (
    "ListTablesResponse DescribeTableResponse ListIndexesResponse TenantCreateResponse TenantListResponse "
    "TenantDeleteResponse TenantGetResponse ApiKeyRegisterResponse ApiKeyRevokeResponse ApiKeyListResponse "
    "ApiKeyRotateResponse ServerInfoResponse" + " Unserved" * 11
)
R1 = f"{ANSWERS} SubscribeResponse SyncResponse"
R2 = f"{R1} SubscriptionAck {ADMINISTERED}"
RESPONSES = {
    "v0.1": f"{ANSWERS} SyncResponse",
    "seed": R1,
    "v0.4": R1,
    "v2": R2,
    "v3": R2,
    "v4": f"{R2} AuditQueryResponse",
    "5a": f"{R2} AuditQueryResponse",
    "5b": f"{ANSWERS} StreamInfoResponse SubscribeResponse SyncResponse SubscriptionAck {ADMINISTERED} "
    "AuditQueryResponse VerifyAuditChainResponse",
}


def names(choice: Choice) -> list[str]:
    return [variant.make.__name__ for variant in choice.variants]


@pytest.mark.parametrize("name", GENERATIONS)
def test_every_message_has_its_number(name: str) -> None:
    generation = GENERATIONS[name]
    assert names(generation.requests()) == REQUESTS[name].split()
    assert names(generation.responses()) == RESPONSES[name].split()
    assert names(generation.pushes()) == (["SubscriptionEvents", "SubscriptionClosed"] if generation.wrapped else [])


@pytest.mark.parametrize(
    ("name", "message", "number"),
    [  # from the table of the original's generations, so that the lists above are not their own proof
        ("5b", m.StreamInfo, 6),
        ("5b", m.GetServerInfo, 22),
        ("5b", c.ErasureList, 33),
        ("5b", m.VerifyAuditChain, 35),
        ("5b", c.BreachResolve, 41),
        ("5b", c.MaskingPolicyList, 42),
        ("5a", m.TenantGet, 16),
        ("5a", c.MaskingPolicyList, 40),
        ("v4", m.GetServerInfo, 21),
        ("v3", m.AuditQuery, 33),
        ("v2", c.BreachResolve, 39),
        ("v2", m.Unsubscribe, 9),
        ("v0.4", m.Sync, 7),
        ("seed", m.Subscribe, 6),
        ("v0.1", m.Sync, 6),
    ],
)
def test_numbers_of_requests(name: str, message: type[m.Message], number: int) -> None:
    assert GENERATIONS[name].requests().variants[number].make is message


def test_an_answer_has_the_number_of_its_request_from_the_tables_on() -> None:
    for name in ("v2", "v3", "v4", "5a", "5b"):
        requests, responses = GENERATIONS[name].requests(), GENERATIONS[name].responses()
        start = names(requests).index("ListTables")
        for number in range(start, len(responses.variants)):
            asked, answered = names(requests)[number], names(responses)[number]
            assert answered in (f"{asked}Response", "Unserved") or asked == "GetServerInfo", (name, number)


def labels(name: str, message: type[m.Message], field: str) -> list[str]:
    generation = GENERATIONS[name]
    variants = (*generation.requests().variants, *generation.responses().variants, *generation.pushes().variants)
    (record,) = (variant for variant in variants if variant.make is message)
    (kind,) = (each.kind for each in record.fields if each.name == field)
    while not isinstance(kind, Label | Choice):
        kind = kind.of  # type: ignore[union-attr]
    return [str(each) for each in kind.names] if isinstance(kind, Label) else names(kind)


OLD_CLASSES = ["PHI", "NonPHI", "Deidentified"]
CLASSES = ["PHI", "Deidentified", "PII", "Sensitive", "PCI", "Financial", "Confidential", "Public"]
OLD_PURPOSES = [
    "Marketing", "Analytics", "Contractual", "LegalObligation", "VitalInterests", "PublicTask", "Research", "Security",
]  # fmt: skip


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_numbers_of_classes_and_placements(name: str) -> None:
    assert labels(name, m.CreateStream, "data_class") == (OLD_CLASSES if name in ("v0.1", "seed") else CLASSES)
    placements = ["Everywhere", "Regional"] if name == "seed" else ["Regional", "Everywhere"]
    assert labels(name, m.CreateStream, "placement") == placements


@pytest.mark.parametrize("name", ["v2", "v3", "v4", "5a", "5b"])
def test_the_numbers_of_other_names(name: str) -> None:
    new = ["Treatment", "Payment", "Operations", "PublicHealth", "Emergency"] if name == "5b" else []
    assert labels(name, c.ConsentGrant, "purpose") == labels(name, c.ConsentCheck, "purpose") == OLD_PURPOSES + new
    assert labels(name, c.ConsentGrant, "scope") == ["AllData", "ContactInfo", "AnalyticsOnly", "ContractualNecessity"]
    exemptions = ["LegalObligation", "PublicHealth", "Archiving", "LegalClaims"]
    assert labels(name, c.ErasureExempt, "basis") == exemptions
    assert labels(name, c.ExportSubject, "format") == ["Json", "Csv"]
    assert labels(name, m.ServerInfoResponse, "cluster_mode") == ["standalone", "clustered"]
    assert labels(name, m.SubscriptionClosed, "reason") == [
        "client cancelled", "server shutdown", "stream deleted", "backpressure timeout", "protocol error",
    ]  # fmt: skip
    assert labels(name, c.BreachReportIndicator, "indicator") == [
        "MassDataExport", "UnauthorizedAccessPattern", "PrivilegeEscalation", "AnomalousQueryVolume",
        "UnusualAccessTime", "DataExfiltrationPattern",
    ]  # fmt: skip


def test_the_error_codes_that_a_generation_knows() -> None:
    last = {"v0.1": 15, "seed": 15, "v0.4": 16, "v2": 19, "v3": 28, "v4": 28, "5a": 28, "5b": 29}
    assert [int(code) for code in m.ErrorCode] == list(range(31))
    for name in GENERATIONS:
        assert labels(name, m.ErrorResponse, "code") == [str(code) for code in range(last[name] + 1)]


@pytest.mark.parametrize(
    ("name", "fields"),
    [("v2", 3), ("v3", 3), ("v4", 4), ("5a", 6), ("5b", 6)],
)
def test_consent_grew(name: str, fields: int) -> None:
    (grant,) = (each for each in GENERATIONS[name].requests().variants if each.make is c.ConsentGrant)
    assert len(grant.fields) == fields


# -- bytes


def write(of: Dialect, message: m.Message) -> bytes:
    if isinstance(message, m.Request):
        return bytes(of.write_request(message.id, message.tenant_id, message.payload, message.audit))
    if isinstance(message, m.Response):
        return bytes(of.write_response(message.request_id, message.payload))
    assert isinstance(message, m.Push)
    return bytes(of.write_push(message.payload))


def read(of: Dialect, like: m.Message, data: bytes) -> m.Message:
    """Within a longer buffer, as it lies in one."""
    buffer, at, end = b"????" + data + b"????", 4, 4 + len(data)
    return of.read_request(buffer, at, end) if isinstance(like, m.Request) else of.read_answer(buffer, at, end)


CASES = [(name, example.message) for example in EXAMPLES for name in example.vectors]


@pytest.mark.parametrize(("name", "message"), CASES, ids=[name for name, _ in CASES])
def test_worked_examples(name: str, message: m.Message) -> None:
    vector = VECTORS[name]
    of, payload = dialect(*NAMED[vector.dialect]), vector.data[HEADER_SIZE:]
    assert write(of, message) == payload
    assert read(of, message, payload) == message


def test_every_dialect_has_worked_examples() -> None:
    assert {VECTORS[name].dialect for name, _ in CASES} == NAMED.keys()


def test_the_printed_bodies_of_the_specification() -> None:
    seed = dialect(*NAMED["seed"])
    head = octets("01 00*7 2a 00*7")
    create = octets("06 00 00 00 00 00 00 00 65 76 65 6e 74 73 00 00 00 00 00 00 00 00")
    append = octets("2a 00*7 02 00*7 03 00*7 01 02 03 02 00*7 04 05")
    hello = octets("01 00 00 00 00 00 00 00 2a 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00")
    assert (
        write(seed, m.Request(1, 42, m.CreateStream("events", m.DataClass.PHI, m.Everywhere())))
        == head + octets("01 00*3") + create
    )
    assert write(seed, m.Request(1, 42, m.AppendEvents(42, [b"\1\2\3", b"\4\5"]))) == head + octets("02 00*3") + append
    assert write(seed, m.Request(1, 42, m.Handshake(1))) == hello


@pytest.mark.parametrize(("payload", "name"), CAPTURED, ids=[name for _, name in CAPTURED])
def test_what_the_original_client_sends(payload: m.Message, name: str) -> None:
    data = VECTORS[name].data[HEADER_SIZE:]
    request = dialect("5b", POSTCARD).read_request(data, 0, len(data))
    assert (request.tenant_id, request.payload) == (42, payload)
    assert write(dialect("5b", POSTCARD), request) == data


# -- round trips


@every_dialect
@quick
@given(st.data())
def test_everything_comes_back(of: Dialect, data: st.DataObject) -> None:
    message = data.draw(any_message(of))
    encoded = write(of, message)
    assert read(of, message, encoded) == message
    assert write(of, read(of, message, encoded)) == encoded


@every_dialect
@quick
@given(st.data())
def test_nothing_but_the_whole_message_is_read(of: Dialect, data: st.DataObject) -> None:
    message = data.draw(any_request(of))
    encoded = write(of, message)
    size = data.draw(st.integers(0, len(encoded) + 3).filter(lambda size: size != len(encoded)))
    part = (encoded + bytes(3))[:size]
    with pytest.raises(MalformedPayload):
        of.read_request(part + encoded, 0, size)
    with pytest.raises(MalformedPayload):
        of.read_request(part, 0, size)


@every_dialect
@quick
@given(st.data())
def test_damaged_messages_are_read_or_refused(of: Dialect, data: st.DataObject) -> None:
    """And what is read is what would be written, but for numbers that took more bytes than they need."""
    encoded = bytearray(write(of, data.draw(any_request(of))))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded)
    try:
        request = of.read_request(damaged, 0, len(damaged))
    except MalformedPayload:
        return
    again = write(of, request)
    assert len(again) <= len(damaged) if of.encoding is POSTCARD else again == damaged
    assert of.read_request(again, 0, len(again)) == request
