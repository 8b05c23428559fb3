"""The HTTP door: monitoring (`health`), the administration API (`api`), the schema registry (`registry`), the
catalog of tables (`unity`) and the console, on every port.

Its sessions are like those of any protocol. The admin socket (`socket`) gives the same replies."""

from __future__ import annotations

from typing import Final

from penstock.admin.api import Api, shared_api
from penstock.admin.console import Console
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.registry import application as registry
from penstock.admin.registry.errors import registry_error
from penstock.admin.unity import application as unity
from penstock.admin.unity.errors import unity_error
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
    """Everything served over HTTP, for one connection."""

    def __init__(self, api: Api, health: HealthApplication, console: Console | None = None) -> None:
        self._api = api
        self._console = console
        self._health = health

    def open(self, head: RequestHead) -> Admission:
        if unity.serves(head.path):
            return self._api.unity.open(head)
        if head.path.startswith(API):
            return self._api.open(head)
        if registry.serves(head.path):
            return self._api.registry.open(head)
        if self._console is not None and self._console.serves(head.path):
            return self._console.open(head)
        return self._health.open(head)


def refusal(path: str, error: Exception) -> HttpReply:
    """An error in the format of this path."""
    if unity.serves(path):
        return unity_error(path, error)
    return registry_error(error) if registry.serves(path) else error_reply(error)


def http_door(environment: Environment) -> Door:
    console = Console()

    def open_session(broker: Broker, channel: Channel, identity: Identity) -> HttpSession:
        health = HealthApplication(broker, environment.durability, identity)
        application = AdminApplication(shared_api(broker, environment), health, console)
        return HttpSession(broker, channel, identity, application, cookies=True, refusal=refusal)

    return Door("http", open_session, MAX_HEAD + MAX_BODY)
