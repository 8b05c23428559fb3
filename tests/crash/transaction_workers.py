"""Clients that change what FlyMQ's broker keeps beside records: users, roles, access lists and schemas.

To the history each of them is a register, `user/alice`, whose value is a text that says all that can be told of it. A
register has one keeper, which knows what it holds by what it was told, or, after a kill, by the next look.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.crash.flymq_load import SCHEMA, Load, Worker, connect

from penstock.clients.flymq import Client, LoginFailed, RequestSpec, requests
from penstock.wire.flymq import messages as m

KINDS: Final = ("user/", "role/", "acl/", "schema/")  # registers that can be looked at
DISABLED: Final = "user account is disabled"  # said only to those who know the password


def user_text(roles: Sequence[str], enabled: bool) -> str:
    return f"{','.join(roles)}|{'on' if enabled else 'off'}"


def role_text(permissions: Sequence[str], description: str) -> str:
    return f"{','.join(permissions)}|{description}"


def acl_text(users: Sequence[str], roles: Sequence[str], restrict: bool) -> str:
    return json.dumps([list(users), list(roles), restrict])


def schema_text(mode: str, versions: dict[int, str]) -> str:
    return json.dumps([mode, sorted(versions.items())]) if versions else ""


class RegisterWorker(Worker):
    def change(self, client: Client, spec: RequestSpec[Any], values: dict[str, str]) -> None:
        """Ask for one change, which gives these values to registers."""
        changes = [self.history.invoke(self.name, "put", key=name, value=values[name] or None) for name in values]
        self.ask_all(client, [(changes, spec)])

    def held(self, register: str) -> str:
        return self.load.known.get(register, "")


class UserWorker(RegisterWorker):
    ROLES: Final[tuple[list[str], ...]] = (["consumer"], ["guest"], ["consumer", "producer"], [])

    def step(self, client: Client, rng: random.Random) -> None:
        name = f"user{rng.randrange(6)}"
        roles, enabled = rng.choice(self.ROLES), rng.random() < 0.7
        number = self.load.serial[self.name] = self.load.serial[self.name] + 1
        password, roll = f"password-{number}", rng.random()
        user, secret = f"user/{name}", f"password/{name}"
        if not self.held(user):
            self.load.passwords.setdefault(name, []).append(password)
            spec: RequestSpec[Any] = requests.create_user(name, password, roles)
            self.change(client, spec, {user: user_text(roles, True), secret: password})
        elif roll < 0.3:
            self.load.passwords.setdefault(name, []).append(password)
            self.change(client, requests.change_password(name, password), {secret: password})
        elif roll < 0.5:
            self.change(client, requests.delete_user(name), {user: "", secret: ""})
        else:
            self.change(client, requests.update_user(name, roles, enabled), {user: user_text(roles, enabled)})
        time.sleep(rng.uniform(0, 0.01))


class RuleWorker(RegisterWorker):
    """Roles and access lists. The lists name nobody who exists: who is deleted would be struck off them."""

    def step(self, client: Client, rng: random.Random) -> None:
        number = self.load.serial[self.name] = self.load.serial[self.name] + 1
        role, topic = f"role{rng.randrange(4)}", f"topic{rng.randrange(5)}"
        if rng.random() < 0.5:
            if self.held(f"role/{role}") and rng.random() < 0.4:
                self.change(client, requests.delete_role(role), {f"role/{role}": ""})
            else:
                given = rng.choice((["read"], ["write"], ["read", "write"], []))
                text = role_text(given, f"number {number}")
                self.change(client, requests.set_role(role, given, f"number {number}"), {f"role/{role}": text})
        elif rng.random() < 0.4:
            self.change(client, requests.delete_acl(topic), {f"acl/{topic}": ""})
        else:
            users, roles, restrict = [f"stranger-{number}"], rng.choice((["guest"], [])), rng.random() < 0.5
            spec = requests.set_acl(topic, users=users, roles=roles, restrict=restrict)
            self.change(client, spec, {f"acl/{topic}": acl_text(users, roles, restrict)})
        time.sleep(rng.uniform(0, 0.01))


class SchemaWorker(RegisterWorker):
    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self._last: Counter[str] = Counter()  # the highest version that each name ever had

    def step(self, client: Client, rng: random.Random) -> None:
        name = f"schema{rng.randrange(3)}"
        register = f"schema/{name}"
        held = self.held(register)
        mode, pairs = json.loads(held) if held else ("backward", [])
        versions: dict[int, str] = {int(version): text for version, text in pairs}
        self._last[name] = max([self._last[name], *versions])
        roll = rng.random()
        if not versions or (roll < 0.6 and len(versions) < 8):
            number = self.load.serial[self.name] = self.load.serial[self.name] + 1
            text = json.dumps({"type": "object", "title": f"number {number}"})
            after = schema_text(mode, versions | {self._last[name] + 1: text})
            self.change(client, requests.register_schema(name, "json", text.encode()), {register: after})
        elif roll < 0.7:
            self.change(client, requests.delete_schema(name), {register: ""})
        elif roll < 0.85:
            version = rng.choice(list(versions))
            del versions[version]
            self.change(client, requests.delete_schema(name, version), {register: schema_text(mode, versions)})
        else:
            mode = rng.choice(("none", "backward", "forward", "full"))
            self.change(client, requests.set_compatibility(name, mode), {register: schema_text(mode, versions)})
        time.sleep(rng.uniform(0, 0.01))


def read_view(load: Load, client: Client) -> None:
    """Look at all registers but passwords: those that were ever changed, and those that are there."""
    found: dict[str, str] = {}
    changed = {one.key for one in load.history.of("put") if one.key.startswith(KINDS)}
    for user in client.list_users():
        found[f"user/{user.username}"] = user_text(user.roles, user.enabled)
    for role in client.list_roles():
        if role.name not in ("admin", "producer", "consumer", "guest"):
            found[f"role/{role.name}"] = role_text(role.permissions, role.description)
    for entry in client.list_acls().entries:
        acl = client.get_acl(entry.topic)
        found[f"acl/{entry.topic}"] = acl_text(acl.users, acl.roles, acl.restrict)
    versions: dict[str, list[m.SchemaInfo]] = {}
    for schema in client.list_schemas():
        if schema.name != SCHEMA:
            versions.setdefault(schema.name, []).append(client.get_schema(schema.name, schema.version))
    for name, infos in versions.items():
        texts = {info.version: info.definition.decode() for info in infos}
        found[f"schema/{name}"] = schema_text(infos[-1].compatibility, texts)
    for register in sorted(changed | found.keys()):
        observe(load, register, found.get(register, ""))


def observe(load: Load, register: str, value: str) -> None:
    load.history.note("campaign", "get", key=register, found=value or None)
    load.known[register] = value


def try_passwords(load: Load, ports: dict[str, int]) -> None:
    """Find out which password each user has, at a broker that wants one: the last ones that a user had or may have had,
    and the one before."""
    for name, passwords in load.passwords.items():
        changes = [one for one in load.history.of("put") if one.key == f"password/{name}"]
        settled = [one.value for one in changes if one.value and one.acknowledged]
        first = passwords.index(settled[-1]) if settled else 0
        right = [one for one in passwords[max(0, first - 1) :] if _opens(ports, name, one)]
        observe(load, f"password/{name}", " ".join(right))


def _opens(ports: dict[str, int], name: str, password: str) -> bool:
    with connect(ports) as client:
        try:
            client.authenticate(name, password)
        except LoginFailed as error:
            return error.message == DISABLED
    return True
