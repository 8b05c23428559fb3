"""The banner: the summary for the operator when the broker has started."""

from __future__ import annotations

import os
from typing import Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.access import ADMINISTRATOR
from penstock.config.broker import audit_policy, table_policy
from penstock.config.settings import DAY, Settings
from penstock.log.compiled import compiled
from penstock.server.doors import FELIX
from penstock.server.server import Server

_DURABILITY: Final = {
    "synced": "synced (acknowledged means on disk)",
    "written": "written (acknowledged means handed to the operating system)",
    "memory": "memory (acknowledged means in this process)",
}


def banner(server: Server) -> str:
    """The banner of a started server."""
    assert server.broker is not None
    settings = server.config.settings
    tls = "off" if not settings.tls.cert else "required" if settings.tls.required else "on, beside plain text"
    facts = (
        ("data", server.data_dir),
        ("durability", _durability(settings)),
        ("tables", _tables(settings, server.data_dir)),
        ("security", _security(settings, server.broker)),
        ("audit", _audit(settings)),
        ("tls", tls),
    )
    return "\n".join(
        [
            f"Penstock {__version__}{' (compiled)' if compiled() else ''}",
            "",
            *(f"  {label:<12}{text}" for label, text in facts),
            "",
            *(f"  {name:<12}{text}" for name, text in _doors(server).items()),
            "",
            *(f"  note: {note}" for note in server.broker.notes),
            f"  Process {os.getpid()} is ready. Ctrl-C or SIGTERM stops it; a second signal exits at once.",
        ]
    )


def _durability(settings: Settings) -> str:
    if settings.storage.url:
        return f"replicated (acknowledged means on Kafka: {settings.storage.url.partition('?')[0]})"
    return _DURABILITY[settings.log.durability]


def _doors(server: Server) -> dict[str, str]:
    """Door → its address, or why it is closed; open ones first."""
    addresses = server.addresses()
    if FELIX in addresses:
        addresses[FELIX] += f" (QUIC), certificate sha256:{server.fingerprint}"
    return addresses | {name: why for name, why in server.plan.closed.items() if name not in addresses}


def _tables(settings: Settings, data_dir: str) -> str:
    policy = table_policy(settings, data_dir)
    return policy.root if policy.enabled else "off (except for topics with --table on)"


def _audit(settings: Settings) -> str:
    policy = audit_policy(settings)
    if policy.enabled:
        return f"on (kept for {policy.seconds / DAY:g} days; penstock audit)"
    why = 'while security is off; security.audit = "on" keeps one' if settings.security.audit == "auto" else "by choice"
    return f"off ({why})"


def _security(settings: Settings, broker: Broker) -> str:
    if settings.security.mode != "on":
        return "off (everybody who can connect is administrator)"
    keys = sum(key.state(wall_clock()) == "active" for key in broker.keys.list(ADMINISTRATOR))
    issuers = len(settings.security.token_keys)
    tokens = f", {issuers} token keys" if issuers else ""
    grants = len(settings.security.grants)
    return f"on ({broker.users.count} users, {keys} keys{tokens}, {grants} grants; what is not allowed is denied)"
