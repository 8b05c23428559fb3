"""Conversations beyond the vectors, for the corpora of sessions: requests that meet each other on the topic `t`, so
that what follows a success is reached too."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final

from penstock.broker.security.access import ANONYMOUS
from penstock.broker.transactions.transaction import TOKEN_BYTES, new_id
from penstock.wire.blipmq import codec as blipmq_codec
from penstock.wire.flymq import messages as f
from penstock.wire.flymq.codec import requests
from penstock.wire.kimberlite import messages as k
from penstock.wire.kimberlite.codec.connection import ClientCodec

_JSON_SCHEMA: Final = b'{"type":"object","required":["a"]}'
_TRANSACTION: Final = new_id(ANONYMOUS, bytes(TOKEN_BYTES))  # the first that a scripted broker begins
_EVERYTHING: Final = f.AuditQuery(0, 0, [], "", "", "", "", 10, 0)

_FLYMQ: Final[tuple[tuple[f.Request, ...], ...]] = (
    (f.Produce("t", b"k", b"v", 0), f.ProduceBatch("t", [None, b"k"], [b"a", b"b"], [0, -1]), f.Fetch("t", 0, 0, 10)),
    (f.Subscribe("t", "g", 0, "earliest"), f.Fetch("t", 0, 3, 10, "a", True), f.Commit("t", "g", 0, 2)),
    (f.GetOffset("t", "g", 0), f.GetLag("t", "g", 0), f.ResetOffset("t", "g", 0, "offset", 1), f.ListGroups()),
    (f.SeekToTimestamp("t", "g", 0, 1), f.DescribeGroup("t", "g"), f.DeleteGroup("t", "g"), f.Metadata("t")),
    (f.Consume("t", 0, 1), f.ConsumeZeroCopy("t", 0, 9), f.FetchBinary("t", 0, 1, 5, "$.a"), f.ListTopics()),
    (f.CreateTopic("n", 3), f.Produce("n", None, b"v"), f.DeleteTopic("n"), f.Fetch("n", 0, 0, 1)),
    (f.BeginTransaction(), f.ProduceInTransaction(_TRANSACTION, "t", b"v"), f.CommitTransaction(_TRANSACTION)),
    (f.BeginTransaction(), f.ProduceInTransaction(_TRANSACTION, "n", b"v"), f.RollbackTransaction(_TRANSACTION)),
    (f.RegisterSchema("t", "json", _JSON_SCHEMA), f.ProduceWithSchema("t", "t", b"{}"), f.FetchDlq("t", 5)),
    (f.RegisterSchema("t", "avro", b'"string"'), f.ValidateSchema("t", b"\2a"), f.SetCompatibility("t", "FULL")),
    (f.GetSchema("t", 0), f.ListSchemas(), f.DeleteSchema("t", 1), f.PurgeDlq("t"), f.ReplayDlq("t", offset=0)),
    (f.ProduceDelayed("t", b"later", 1000), f.CancelDelayed("1"), f.ProduceWithTtl("t", b"soon", 1), f.WhoAmI()),
    (f.CreateUser("v", "correct horse", "", ["admin"]), f.Authenticate("v", "correct horse"), f.GetUser("v")),
    (f.ChangePassword("u", "battery staple", "correct horse", []), f.UpdateUser("u", "", "", [], False), f.ListUsers()),
    (f.SetAcl("t", False, ["u"], ["r"], True), f.GetAcl("t"), f.ListAcls(), f.DeleteAcl("t"), f.DeleteUser("u")),
    (f.SetRole("r", ["read"], "text"), f.ListRoles(), f.DeleteRole("r"), f.AuditExportRequest(_EVERYTHING, "csv")),
    (_EVERYTHING, f.GetClusterStatus(), f.GetClusterMetadata(), f.JoinCluster("a:1"), f.LeaveCluster()),
)

_PLACE: Final = k.Everywhere()
_KIMBERLITE: Final[tuple[tuple[k.Message, ...], ...]] = (
    (k.AppendEvents(2, [b"a", b"b"], 3), k.ReadEvents(2, 0, 1000), k.StreamInfo(2), k.Sync()),
    (k.Subscribe(2, 0, 2), k.AppendEvents(2, [b"a"], 3), k.SubscribeCredit(1, 5), k.Unsubscribe(1)),
    (k.Subscribe(2, 0, 100, "g"), k.Subscribe(2, 1, 1, "g"), k.Unsubscribe(1), k.SubscribeCredit(2, 1)),
    (k.CreateStream("n", k.DataClass.PHI, _PLACE), k.CreateStream("n", k.DataClass.PUBLIC, k.Regional(k.UsEast1()))),
    (k.TenantCreate(7, "seven"), k.TenantGet(7), k.TenantList(), k.TenantDelete(7)),
    (k.ApiKeyRegister("s", 42, ["admin"], None), k.ApiKeyList(42), k.ApiKeyRevoke("s"), k.ApiKeyRotate("s")),
    (k.Query("SELECT 1", [1, "a", None]), k.QueryAt("SELECT 1", [], 1), k.ListTables(), k.DescribeTable("t")),
    (k.GetServerInfo(), k.AuditQuery(limit=5), k.VerifyAuditChain(), k.ListIndexes("t")),
)


def flymq() -> list[bytes]:
    return [b"".join(map(requests.encode, talk)) for talk in _FLYMQ]


def kimberlite(tenant: int = 42) -> list[bytes]:
    return [_kimberlite(talk, tenant) for talk in _KIMBERLITE]


def _kimberlite(talk: Iterable[k.Message], tenant: int) -> bytes:
    codec, numbers = ClientCodec("5b"), count(1)
    return b"".join(codec.request(next(numbers), tenant, message) for message in talk)


def blipmq() -> list[bytes]:
    """Behind a handshake. The first subscription of a broker has the number 1, and its first tag is 1."""
    subscribe, publish = blipmq_codec.encode_subscribe(3, b"t", 1), blipmq_codec.encode_publish(4, 1, b"t", b"value")
    poll, ack = blipmq_codec.encode_poll(5, 1), blipmq_codec.encode_client_ack(1, 1)
    expiring = blipmq_codec.encode_publish(6, 0, b"n", b"soon", ttl_ms=1)
    nack = blipmq_codec.encode_nack(1, 1, "again")
    return [
        subscribe + publish * 2 + poll * 3 + ack,
        subscribe + poll + nack + poll + ack * 2,
        blipmq_codec.encode_subscribe(3, b"n", 0) + expiring + publish + poll + blipmq_codec.encode_ping(7),
        publish * 9 + subscribe * 2 + ack + blipmq_codec.encode_client_ack(99, 1),
    ]


def felix() -> list[bytes]:
    """Subscriptions, publications and a cache in both dialects."""
    names = b'"tenant_id":"t1","namespace":"default","stream":"t"'
    auth = b'{"type":"auth","tenant_id":"t1","token":"","client_flags":63}'
    subscribe = b'{"type":"subscribe",%b,"start":"earliest"}' % names
    publish = b'{"type":"publish",%b,"payload":"YWJj","ack":"per_message","request_id":5}' % names
    put = b'{"type":"cache_put","request_id":1,"key":"k","value":"MQ==","ttl_ms":5}'
    increment = b'{"type":"cache_increment","request_id":2,"key":"k","by":1}'
    get = b'{"type":"cache_get","request_id":3,"key":"k"}'
    texts = ([subscribe, publish], [auth, subscribe, publish, publish], [auth, b"{", publish], [put, increment, get])
    return [b"".join(b"FLX1\0\1\0\0" + len(text).to_bytes(4, "big") + text for text in each) for each in texts]
