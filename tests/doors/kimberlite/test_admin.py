"""Tenants, API keys, the audit log, what the server says of itself, and what is not served."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import START, BrokerFixture
from tests.doors.kimberlite.asking import ABOUT, Target
from tests.doors.kimberlite.peer import TENANT, Peer
from tests.doors.kimberlite.test_session import key, secured

from penstock import __version__
from penstock.broker.names import Scope
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.security.audit_event import AuditPolicy
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.log.engine import Records, partition_id
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.messages import DataClass, ErrorCode

NOW = START * 1000  # ns


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture, settings=KimberliteSettings(assume="5b", started=START - 90_000_000))


# -- tenants


def test_a_tenant_is_created_once_found_listed_and_deleted_with_its_streams(fixture: BrokerFixture, peer: Peer) -> None:
    seven = m.TenantInfo(7, "seven", 0, NOW)
    assert peer.ask(m.TenantCreate(7, "seven")) == m.TenantCreateResponse(seven, True)
    assert peer.ask(m.TenantCreate(7, "seven")) == m.TenantCreateResponse(seven, False)
    assert peer.refused(m.TenantCreate(7, "another")).code == ErrorCode.TENANT_ALREADY_EXISTS
    other = Peer(fixture, tenant=7)
    number = other.create()
    assert peer.ask(m.TenantGet(7)) == m.TenantGetResponse(m.TenantInfo(7, "seven", 1, NOW))
    assert peer.ask(m.TenantList()) == m.TenantListResponse([m.TenantInfo(7, "seven", 1, NOW)])
    assert peer.ask(m.TenantDelete(7)) == m.TenantDeleteResponse(True, 1)
    assert other.refused(m.ReadEvents(number, 0, 10)).code == ErrorCode.STREAM_NOT_FOUND
    for request in (m.TenantGet(7), m.TenantDelete(7)):
        assert peer.refused(request).code == ErrorCode.TENANT_NOT_FOUND
    assert peer.ask(m.TenantList()) == m.TenantListResponse([])


def test_tenants_that_have_no_number_are_not_listed(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, settings=KimberliteSettings(tenants={9: "acme"}))
    for name in ("acme", "default", "8"):
        fixture.broker.topics.create(ANONYMOUS, Scope(name, "default"), "t", 1)
    listed = peer.ask(m.TenantList())
    assert isinstance(listed, m.TenantListResponse)
    assert [tenant.tenant_id for tenant in listed.tenants] == [8, 9]


def test_the_administrator_of_a_tenant_sees_that_one_and_creates_none() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture), settings=KimberliteSettings(assume="5b"))
    peer.create()
    Peer(fixture, tenant=7, token=key(fixture, 7)).create()
    listed = peer.ask(m.TenantList())
    assert isinstance(listed, m.TenantListResponse)
    assert [tenant.tenant_id for tenant in listed.tenants] == [TENANT]
    for request in (m.TenantCreate(8, None), m.TenantDelete(TENANT), m.TenantGet(7)):
        assert peer.refused(request).code == ErrorCode.AUTHENTICATION_FAILED


# -- API keys


def test_an_api_key_opens_the_door_with_its_roles_until_it_is_revoked() -> None:
    fixture = secured()
    admin = Peer(fixture, token=key(fixture))
    made = admin.ask(m.ApiKeyRegister("app", TENANT, ["User"], NOW + 60_000_000_000))
    assert isinstance(made, m.ApiKeyRegisterResponse)
    assert made.info == m.ApiKeyInfo("2", "app", TENANT, ["User"], NOW + 60_000_000_000)
    app = Peer(fixture, token=made.key)
    number = app.create()
    assert app.refused(m.ApiKeyList()).code == ErrorCode.AUTHENTICATION_FAILED
    listed = admin.ask(m.ApiKeyList(TENANT))
    assert isinstance(listed, m.ApiKeyListResponse)
    assert [one.key_id for one in listed.keys] == ["1", "2"] and listed.keys[1] == made.info
    assert made.key not in repr(listed)
    assert admin.ask(m.ApiKeyRevoke(made.key)) == m.ApiKeyRevokeResponse(True)
    assert admin.ask(m.ApiKeyRevoke("2")) == m.ApiKeyRevokeResponse(False)
    assert app.refused(m.ReadEvents(number, 0, 10)).code == ErrorCode.AUTHENTICATION_FAILED
    assert isinstance(Peer(fixture, greets=False).greet(made.key), m.ErrorResponse)
    assert len(admin.ask(m.ApiKeyList()).keys) == 1  # type: ignore[attr-defined]


def test_a_key_expires() -> None:
    fixture = secured()
    made = Peer(fixture, token=key(fixture)).ask(m.ApiKeyRegister("app", TENANT, ["User"], NOW + 60_000_000_000))
    assert isinstance(made, m.ApiKeyRegisterResponse)
    app = Peer(fixture, token=made.key)
    fixture.pass_time(61)
    assert app.refused(m.Sync()).code == ErrorCode.AUTHENTICATION_FAILED


def test_a_key_is_rotated_at_once() -> None:
    fixture = secured()
    admin = Peer(fixture, token=key(fixture))
    made = admin.ask(m.ApiKeyRegister("app", TENANT, ["User"]))
    assert isinstance(made, m.ApiKeyRegisterResponse)
    rotated = admin.ask(m.ApiKeyRotate(made.key))
    assert isinstance(rotated, m.ApiKeyRotateResponse)
    assert rotated.info == m.ApiKeyInfo("3", "app", TENANT, ["User"], None)
    assert isinstance(Peer(fixture, greets=False).greet(made.key), m.ErrorResponse)
    assert Peer(fixture, token=rotated.new_key).create() > 0
    assert admin.refused(m.ApiKeyRotate(made.key)).code == ErrorCode.API_KEY_NOT_FOUND
    assert admin.refused(m.ApiKeyRevoke("psk_99_none")).code == ErrorCode.API_KEY_NOT_FOUND


def test_a_key_without_roles_or_with_unknown_ones_is_refused(peer: Peer) -> None:
    for roles in ([], ["Emperor"]):
        assert peer.refused(m.ApiKeyRegister("app", TENANT, roles)).code == ErrorCode.INVALID_REQUEST


def test_old_versions_are_told_of_missing_keys_with_a_code_that_they_know(fixture: BrokerFixture) -> None:
    assert Peer(fixture, "v2").refused(m.ApiKeyRevoke("psk_99_none")).code < 20
    assert Peer(fixture, "v3").refused(m.ApiKeyRevoke("psk_99_none")).code == ErrorCode.API_KEY_NOT_FOUND


# -- the audit log


def events(peer: Peer, request: m.AuditQuery) -> list[m.AuditEventInfo]:
    found = peer.ask(request)
    assert isinstance(found, m.AuditQueryResponse), found
    return found.events


def test_the_audit_log_is_asked_by_subject_action_actor_and_time() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture))
    peer.create("first")
    fixture.pass_time(10)
    peer.create("second")
    created = events(peer, m.AuditQuery(action_type="topic.create"))
    assert [event.subject_id for event in created] == ["second", "first"]
    newest = created[0]
    assert (newest.timestamp_nanos, newest.actor, newest.tenant_id) == (NOW + 10_000_000_000, "key:1", TENANT)
    assert newest.ip_address == "127.0.0.1" and newest.event_id
    assert [event.subject_id for event in events(peer, m.AuditQuery(subject_id="first"))] == ["first"]
    late = m.AuditQuery(action_type="topic.create", time_from_nanos=NOW + 1)
    assert [event.subject_id for event in events(peer, late)] == ["second"]
    early = m.AuditQuery(action_type="topic.create", time_to_nanos=NOW + 9_999_999_999)
    assert [event.subject_id for event in events(peer, early)] == ["first"]
    assert len(events(peer, m.AuditQuery(limit=1))) == 1
    assert events(peer, m.AuditQuery(actor="nobody")) == []


def test_the_audit_log_is_for_auditors_and_administrators() -> None:
    fixture = secured()
    Peer(fixture, token=key(fixture)).create()
    for role, allowed in (("Auditor", True), ("User", False), ("Analyst", False)):
        peer = Peer(fixture, token=key(fixture, TENANT, role), settings=KimberliteSettings(assume="5b"))
        for request in (m.AuditQuery(), m.VerifyAuditChain()):
            reply = peer.ask(request)
            refused = isinstance(reply, m.ErrorResponse) and reply.code == ErrorCode.AUTHENTICATION_FAILED
            assert refused is not allowed, (role, reply)


def test_before_version_4_nobody_knows_what_an_event_looks_like() -> None:
    fixture = BrokerFixture(audit=AuditPolicy(enabled=True))
    assert Peer(fixture, "v3").refused(m.AuditQuery()).code == ErrorCode.INVALID_REQUEST
    assert isinstance(Peer(fixture, "v4").ask(m.AuditQuery()), m.AuditQueryResponse)


def test_the_chain_of_audit_events_holds_until_somebody_changes_one() -> None:
    fixture = BrokerFixture(audit=AuditPolicy(enabled=True))
    peer = Peer(fixture, settings=KimberliteSettings(assume="5b"))
    for name in ("a", "b", "c"):
        peer.create(name)
    verified = peer.ask(m.VerifyAuditChain())
    assert isinstance(verified, m.VerifyAuditChainResponse) and verified.ok and verified.event_count >= 3
    assert len(verified.chain_head_hex) == 64 and verified.error_message is None
    log = fixture.broker.state_log.state.topics[Scope(str(TENANT), "default")]["__audit"]
    fixture.engine.append((Records(partition_id(log.id, 0), (b'{"forged": true}',)),))
    fixture.commit()
    forged = peer.ask(m.VerifyAuditChain())
    assert isinstance(forged, m.VerifyAuditChainResponse) and not forged.ok
    assert forged.mismatch_at_index == verified.event_count and forged.error_message


def test_without_an_audit_log_that_is_said(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, settings=KimberliteSettings(assume="5b"))
    for request in (m.AuditQuery(), m.VerifyAuditChain()):
        refused = peer.refused(request)
        assert refused.code == ErrorCode.INVALID_REQUEST and "security.audit" in refused.message


# -- the server


def test_the_server_says_what_it_is(fixture: BrokerFixture, peer: Peer) -> None:
    peer.create()
    Peer(fixture, tenant=7).create()
    info = peer.ask(m.GetServerInfo())
    assert isinstance(info, m.ServerInfoResponse)
    assert (info.build_version, info.protocol_version) == (f"penstock {__version__}", 5)
    assert {"query", "append", "subscribe", "query_at", "sync", "admin.v1"} <= set(info.capabilities)
    assert (info.uptime_secs, info.cluster_mode, info.tenant_count) == (90, m.ClusterMode.STANDALONE, 2)


def test_whoever_is_of_one_tenant_does_not_learn_how_many_there_are() -> None:
    fixture = secured()
    Peer(fixture, tenant=7, token=key(fixture, 7)).create()
    info = Peer(fixture, token=key(fixture)).ask(m.GetServerInfo())
    assert isinstance(info, m.ServerInfoResponse) and info.tenant_count == 1


# -- what is not served

UNSERVED = [kind for kind in ABOUT if issubclass(kind, m.Unserved)]


@pytest.mark.parametrize("kind", UNSERVED, ids=lambda kind: kind.__name__)
def test_what_is_not_served_is_told_with_what_to_do_instead(peer: Peer, kind: type[m.Message]) -> None:
    (request,) = ABOUT[kind](Target(1, 1))
    refused = peer.refused(request)
    assert refused.code == ErrorCode.INVALID_REQUEST
    start, advice = refused.message.split(": ", 1)
    assert start == f"{kind.__name__} is not served by Penstock" and len(advice) > 10
    assert peer.create() > 0


def test_a_request_that_might_delete_a_tenant_is_not_guessed_at(fixture: BrokerFixture) -> None:
    """Number 16 is TenantGet of one generation of version 5 and TenantDelete of another."""
    peer = Peer(fixture)
    peer.ask(m.CreateStream("t", DataClass.PII, m.Everywhere()))
    refused = peer.refused(m.TenantDelete(TENANT))
    assert refused.code == ErrorCode.INVALID_REQUEST and "kimberlite.assume" in refused.message
    assert isinstance(peer.ask(m.GetServerInfo()), m.ServerInfoResponse)  # shows which one it is
    assert peer.ask(m.TenantDelete(TENANT)) == m.TenantDeleteResponse(True, 1)
