"""A client of the administration API in memory."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Peer

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.broker.security.access import ANONYMOUS, Identity


def api_peer(fixture: BrokerFixture, identity: Identity = ANONYMOUS, environment: Environment | None = None) -> Peer:
    return Peer(fixture, Api(fixture.broker, environment or Environment()), identity)
