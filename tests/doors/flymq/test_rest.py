"""FlyMQ's administration over HTTP: what the original's command line asks for, and who may have it."""

from __future__ import annotations

import enum
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.clients.flymq.running_server import RunningServer
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.flymq.seeded_broker import NOBODY, ROLES, WORD, SeededBroker
from tests.doors.http.peer import Answer, Peer, basic

from penstock import __version__
from penstock.broker.runtime.readiness import Phase
from penstock.clients.flymq import Client
from penstock.config.layers import load
from penstock.config.settings import ConfigError, Settings
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.rest import lists
from penstock.doors.flymq.rest.door import flymq_admin_router
from penstock.wire.flymq import messages as m

SETTINGS = FlyMqSettings(address="localhost:9092")
NODE = {"id": "penstock", "address": "localhost:9092", "state": "active", "is_leader": True}
PAGE = (Path(__file__).parents[3] / "docs/protocols/flymq.md").read_text()


def admin_peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture, flymq_admin_router(fixture.broker, SETTINGS))


@pytest.fixture(scope="module")
def furnished() -> Iterator[Peer]:
    """A broker without security, with two topics, a group and a schema."""
    fixture = BrokerFixture()
    fixture.broker.readiness.phase = Phase.SERVING
    peer = FlyMqPeer(fixture)
    peer.all(
        m.CreateTopic("orders", 2), m.CreateTopic("a/b", 1), m.RegisterSchema("order", "json", b'{"type": "object"}')
    )
    peer.all(*[m.Produce("orders", None, b"v", 0) for _ in range(5)], m.Commit("orders", "readers", 0, 2))
    peer.ask(m.Subscribe("orders", "readers", 0, "commit"))
    yield admin_peer(fixture)


# -- what the command line asks for


def test_cluster_status(furnished: Peer) -> None:
    told = furnished.ask("GET", "/api/v1/cluster").json
    (node,) = told.pop("nodes")
    assert node.pop("last_seen").endswith("Z") and node == NODE
    assert told == {
        "cluster_id": "standalone",
        "version": __version__,
        "node_count": 1,
        "leader_id": "penstock",
        "topic_count": 2,
        "partition_count": 3,
    }
    for path in ("members", "nodes"):
        assert [each["id"] for each in furnished.ask("GET", f"/api/v1/cluster/{path}").json] == ["penstock"]


def test_cluster_metadata(furnished: Peer) -> None:
    place = {"leader_id": "penstock", "leader_addr": "localhost:9092", "epoch": 1, "state": "online"}
    place |= {"replicas": ["penstock"], "isr": ["penstock"]}
    two = {"topic": "orders", "partitions": [{"partition": number, **place} for number in range(2)]}
    one = {"topic": "a/b", "partitions": [{"partition": 0, **place}]}
    everything = furnished.ask("GET", "/api/v1/cluster/metadata")
    assert everything.json == {"cluster_id": "standalone", "topics": [one, two]}
    assert furnished.ask("GET", "/api/v1/cluster/metadata?topic=orders").json["topics"] == [two]
    assert furnished.ask("GET", "/api/v1/cluster/metadata?topic=a/b").json["topics"] == [one]
    assert furnished.ask("GET", "/api/v1/cluster/metadata?topic=nowhere").status == 404


def test_cluster_partitions_and_leaders(furnished: Peer) -> None:
    found = furnished.ask("GET", "/api/v1/cluster/partitions").json["assignments"]
    assert [(each["topic"], each["partition"], each["leader"]) for each in found] == [
        ("a/b", 0, "penstock"),
        ("orders", 0, "penstock"),
        ("orders", 1, "penstock"),
    ]
    assert len(furnished.ask("GET", "/api/v1/cluster/partitions?topic=orders").json["assignments"]) == 2
    assert furnished.ask("GET", "/api/v1/cluster/leaders").json == {
        "distribution": {"penstock": 3},
        "total_partitions": 3,
        "imbalance_ratio": 0.0,
    }


def test_cluster_rebalance_moves_nothing_and_says_so(furnished: Peer) -> None:
    told = furnished.ask("POST", "/api/v1/cluster/rebalance").json
    assert told["success"] and told["moves"] == [] and "standalone" in told["message"]
    assert told["old_leaders"] == told["new_leaders"] == {"penstock": 3}


def test_cluster_reassign_is_refused_unless_it_is_so_already(furnished: Peer) -> None:
    def reassign(place: str, **body: Any) -> Answer:
        return furnished.ask("POST", f"/api/v1/cluster/partitions/{place}", body)

    assert reassign("orders/1", new_leader="penstock").json["success"]
    assert reassign("a%2Fb/0", new_leader="penstock", new_replicas=["penstock"]).status == 200
    assert "standalone" in reassign("orders/1", new_leader="other").json["error"]["message"]
    assert reassign("orders/1", new_leader="penstock", new_replicas=["penstock", "other"]).status == 400
    assert reassign("orders/2", new_leader="penstock").status == reassign("new/0", new_leader="penstock").status == 404
    assert reassign("orders/-1", new_leader="penstock").status == reassign("orders/x", new_leader="x").status == 400
    assert reassign("orders/1").status == 400


def test_admin_topics(furnished: Peer) -> None:
    first, second = furnished.ask("GET", "/api/v1/topics").json
    assert first.pop("created_at").endswith("Z") and second.pop("created_at").endswith("Z")
    assert first == {"name": "a/b", "partitions": 1, "replica_factor": 1, "message_count": 0}
    assert second == {"name": "orders", "partitions": 2, "replica_factor": 1, "message_count": 5}
    assert furnished.ask("GET", "/api/v1/topics/a%2Fb").json["name"] == "a/b"
    assert furnished.ask("GET", "/api/v1/topics/nowhere").status == 404


def test_admin_groups(furnished: Peer) -> None:
    group = {"name": "readers", "topic": "orders", "members": 1, "state": "active", "lag": 3}
    group["partitions"] = [{"partition": 0, "offset": 2, "lag": 3}]
    assert furnished.ask("GET", "/api/v1/consumer-groups").json == [group]
    for name in ("readers", "orders:readers"):
        assert furnished.ask("GET", f"/api/v1/consumer-groups/{name}").json == group
    assert furnished.ask("GET", "/api/v1/consumer-groups/nobody").status == 404


def test_admin_schemas(furnished: Peer) -> None:
    assert furnished.ask("GET", "/api/v1/schemas").json == [{"name": "order", "version": 1, "type": "json"}]
    assert furnished.ask("GET", "/api/v1/schemas/order").json["schema"] == '{"type": "object"}'
    assert furnished.ask("GET", "/api/v1/schemas/none").status == 404


def test_topics_and_groups_are_made_and_deleted() -> None:
    fixture = BrokerFixture()
    peer = admin_peer(fixture)
    assert peer.ask("GET", "/api/v1/topics").json == peer.ask("GET", "/api/v1/consumer-groups").json == []
    made = peer.ask("POST", "/api/v1/topics", {"name": "t", "options": {"partitions": 5}})
    assert (made.status, made.json["partitions"]) == (201, 5)
    assert peer.ask("POST", "/api/v1/topics", {"name": "u", "partitions": 2}).json["partitions"] == 2
    assert peer.ask("POST", "/api/v1/topics", {"name": "w"}).json["partitions"] == 1
    assert peer.ask("POST", "/api/v1/topics", {"name": "t", "partitions": 9}).json["partitions"] == 5, "left as it is"
    for wrong in ({"name": "../x"}, {"name": "x", "partitions": -1}, {"name": 1}, {}, b"", b"["):
        assert peer.ask("POST", "/api/v1/topics", wrong).status == 400, wrong
    FlyMqPeer(fixture).ask(m.Commit("t", "g", 0, 0))
    assert peer.ask("DELETE", "/api/v1/consumer-groups/t:g").status == 204
    assert peer.ask("DELETE", "/api/v1/consumer-groups/t:g").status == 404
    deleted = peer.ask("DELETE", "/api/v1/topics/t")
    assert (deleted.status, deleted.body) == (204, b"")
    assert peer.ask("DELETE", "/api/v1/topics/t").status == 404
    assert [each["name"] for each in peer.ask("GET", "/api/v1/topics").json] == ["u", "w"]


def test_long_lists_come_in_pieces() -> None:
    fixture = BrokerFixture()
    names = [f"t{number:03}" for number in range(lists.AT_ONCE * 3)]
    FlyMqPeer(fixture).all(*[m.CreateTopic(name, 1) for name in names])
    answer = admin_peer(fixture).ask("GET", "/api/v1/topics")
    assert answer.whole and [each["name"] for each in answer.json] == names


def test_health_says_the_word_that_the_command_line_looks_for(furnished: Peer) -> None:
    for path in ("/health", "/health/live", "/health/ready", "/api/v1/health"):
        answer = furnished.ask("GET", path)
        assert (answer.status, answer.json["status"], answer.json["version"]) == (200, "healthy", __version__)
    fixture = BrokerFixture()
    fixture.broker.readiness.phase = Phase.STOPPING
    stopping = admin_peer(fixture)
    assert stopping.ask("GET", "/health/live").status == 200
    answer = stopping.ask("GET", "/health/ready")
    assert (answer.status, answer.json["status"]) == (503, "unhealthy")
    assert {"name": "broker", "status": "unhealthy", "message": "it is stopping"} in answer.json["checks"]


def test_other_paths_say_what_there_is(furnished: Peer) -> None:
    for path in ("/", "/metrics", "/api/v1/users", "/api/v1/topics/a/b"):
        answer = furnished.ask("GET", path)
        assert answer.status == 404 and "/api/v1/cluster" in answer.json["error"]["message"]
    assert furnished.ask("PUT", "/api/v1/cluster").status == 405


# -- who may


class Need(enum.Enum):
    NOTHING = enum.auto()
    SOMETHING = enum.auto()  # a permission somewhere
    EITHER = enum.auto()  # to read or to write the topic `mine`
    ADMIN = enum.auto()


class Row(NamedTuple):
    need: Need
    path: str = ""  # if the route's has names in it
    body: Any = None


TABLE = {
    "GET /health": Row(Need.NOTHING),
    "GET /health/live": Row(Need.NOTHING),
    "GET /health/ready": Row(Need.NOTHING),
    "GET /api/v1/health": Row(Need.NOTHING),
    "GET /api/v1/cluster": Row(Need.SOMETHING),
    "GET /api/v1/cluster/members": Row(Need.SOMETHING),
    "GET /api/v1/cluster/nodes": Row(Need.SOMETHING),
    "GET /api/v1/cluster/metadata": Row(Need.EITHER, "/api/v1/cluster/metadata?topic=mine"),
    "GET /api/v1/cluster/partitions": Row(Need.EITHER, "/api/v1/cluster/partitions?topic=mine"),
    "GET /api/v1/cluster/leaders": Row(Need.SOMETHING),
    "POST /api/v1/cluster/rebalance": Row(Need.ADMIN),
    "POST /api/v1/cluster/partitions/{topic}/{partition}": Row(
        Need.ADMIN, "/api/v1/cluster/partitions/mine/0", {"new_leader": "penstock"}
    ),
    "GET /api/v1/topics": Row(Need.SOMETHING),
    "POST /api/v1/topics": Row(Need.ADMIN, body={"name": "new", "partitions": 1}),
    "GET /api/v1/topics/{topic}": Row(Need.EITHER, "/api/v1/topics/mine"),
    "DELETE /api/v1/topics/{topic}": Row(Need.ADMIN, "/api/v1/topics/mine"),
    "GET /api/v1/consumer-groups": Row(Need.SOMETHING),
    "GET /api/v1/consumer-groups/{group}": Row(Need.EITHER, "/api/v1/consumer-groups/mine:g"),
    "DELETE /api/v1/consumer-groups/{group}": Row(Need.ADMIN, "/api/v1/consumer-groups/mine:g"),
    "GET /api/v1/schemas": Row(Need.SOMETHING),
    "GET /api/v1/schemas/{name}": Row(Need.EITHER, "/api/v1/schemas/mine"),
}

MAY = {
    Need.NOTHING: {*ROLES, NOBODY},
    Need.SOMETHING: set(ROLES) - {"guest"},
    Need.EITHER: {"admin", "second", "producer", "consumer", "clerk"},
    Need.ADMIN: {"admin", "second"},
}


def test_every_route_has_a_row() -> None:
    router = flymq_admin_router(BrokerFixture().broker, SETTINGS)
    assert {f"{route.method} {route.path}" for route in router.routes} == set(TABLE)


@pytest.mark.parametrize("what", TABLE)
def test_who_may_do_what(what: str) -> None:
    row = TABLE[what]
    method, _, path = what.partition(" ")
    seeded = SeededBroker()
    seeded.fixture.broker.readiness.phase = Phase.SERVING
    for name in sorted({*ROLES, NOBODY} - MAY[row.need]) + sorted(MAY[row.need]):
        before = seeded.all()
        login = {} if name == NOBODY else {"authorization": basic(name, WORD)}
        answer = admin_peer(seeded.fixture).ask(method, row.path or path, row.body, **login)
        if name not in MAY[row.need]:
            hidden = name == "owner" and answer.status == 404 and answer.code == "group_not_found"
            assert answer.status == (401 if name == NOBODY else 403) or hidden, (name, answer)
            assert seeded.all() == before, name
        else:
            assert answer.status < 300 or (answer.status == 404 and method == "DELETE"), (name, answer)


def test_wrong_passwords_are_refused_and_noted(furnished: Peer) -> None:  # noqa: ARG001
    seeded = SeededBroker()
    answer = admin_peer(seeded.fixture).ask("GET", "/api/v1/topics", authorization=basic("admin", "wrong"))
    assert answer.status == 401 and answer.code == "wrong_credentials"


def test_lists_have_what_their_reader_may_see() -> None:
    seeded = SeededBroker()
    for name, topics in (("consumer", ["mine", "mine.dlq"]), ("owner", ["secret"])):
        peer, login = admin_peer(seeded.fixture), basic(name, WORD)
        found = [each["name"] for each in peer.ask("GET", "/api/v1/topics", authorization=login).json]
        assert [each for each in found if not each.endswith(".dlq")] == topics[:1]
        placed = peer.ask("GET", "/api/v1/cluster/metadata", authorization=login).json["topics"]
        assert [each["topic"] for each in placed] == found
        groups = peer.ask("GET", "/api/v1/consumer-groups", authorization=login).json
        assert {each["topic"] for each in groups} == {topics[0]}


# -- its port


def get(port: int, path: str) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def test_the_port_of_flymqs_administration_has_flymqs_paths_and_the_http_port_its_own(tmp_path: Path) -> None:
    ports = {"listen__flymq_admin": "127.0.0.1:0", "listen__http": "127.0.0.1:0", "flymq__advertised": "here:9092"}
    with RunningServer(tmp_path, **ports) as server:
        found = {name: int(text.rpartition(":")[2]) for name, text in server.server.addresses().items()}
        with Client("127.0.0.1", server.port) as client:
            client.create_topic("orders", 2)
        status, told = get(found["flymq_admin"], "/api/v1/cluster")
        assert (status, told["nodes"][0]["address"], told["partition_count"]) == (200, "here:9092", 2)
        assert get(found["flymq_admin"], "/health/live")[1]["status"] == "healthy"
        assert (
            get(found["http"], "/health/live")[1]["status"] == get(server.port, "/health/live")[1]["status"] == "live"
        )
        with Client("127.0.0.1", found["flymq_admin"]) as client:  # every other protocol, as on every port
            assert client.list_topics() == ["orders"]


def test_its_address_is_the_one_that_the_command_line_has_by_default() -> None:
    assert Settings().listen.flymq_admin == "127.0.0.1:9096"
    assert "`127.0.0.1:9096`" in PAGE
    with pytest.raises(ConfigError, match=r"listen\.flymq_admin.*both speak HTTP"):
        load(flags={"listen.http": "127.0.0.1:9096"})
