"""The HTTP door: what monitoring asks (`health`), the administration API (`api`), the schema registry (`registry`) and
the console, on every port.

A session like that of any protocol. The same answers are given on the admin socket (`socket`)."""

from __future__ import annotations

from typing import Final

from penstock.admin.api import Api, shared_api
from penstock.admin.console import Console
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.registry import application as registry
from penstock.admin.registry.errors import registry_error
from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import error_reply
from penstock.doors.http.replies import HttpReply
from penstock.doors.http.request import Admission, RequestHead
from penstock.doors.http.session import MAX_HEAD, HttpSession
from penstock.doors.session import Channel, Door

API: Final = "/api/"
MAX_BODY: Final = 8 << 20  # the largest of any route


class AdminApplication:
    """All that is answered over HTTP, to one connection."""

    def __init__(self, api: Api, health: HealthApplication, console: Console | None = None) -> None:
        self._api = api
        self._console = console
        self._health = health

    def open(self, head: RequestHead) -> Admission:
        if head.path.startswith(API):
            return self._api.open(head)
        if registry.serves(head.path):
            return self._api.registry.open(head)
        if self._console is not None and self._console.serves(head.path):
            return self._console.open(head)
        return self._health.open(head)


def refusal(path: str, error: Exception) -> HttpReply:
    """An error as who asks at this path reads it."""
    return registry_error(error) if registry.serves(path) else error_reply(error)


def http_door(environment: Environment) -> Door:
    console = Console()

    def open_session(broker: Broker, channel: Channel, identity: Identity) -> HttpSession:
        health = HealthApplication(broker, environment.durability, identity)
        application = AdminApplication(shared_api(broker, environment), health, console)
        return HttpSession(broker, channel, identity, application, cookies=True, refusal=refusal)

    return Door("http", open_session, MAX_HEAD + MAX_BODY)
