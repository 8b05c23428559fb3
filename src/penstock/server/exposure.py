"""Exposure: without security a broker listens on loopback only, unless the operator accepts the risk."""

from __future__ import annotations

from penstock.config.settings import SecuritySection
from penstock.server.errors import StartFailed
from penstock.transport.tcp_listener import BindPlan, is_loopback


def refuse_exposed_doors(security: SecuritySection, plan: BindPlan) -> None:
    """Without security, anybody who can connect is the administrator; so only this machine may connect. Raises
    StartFailed."""
    if security.mode == "on" or security.insecure_ok:
        return
    for address in plan.addresses:
        door, endpoint = address.doors[0], address.endpoint
        if not is_loopback(endpoint):
            raise StartFailed(
                f"{door} would be open to the network at {endpoint}, and security is off: anybody who "
                "can connect would be administrator of every tenant. Three ways out:\n"
                f"  - listen on this machine only:  --listen {door}=127.0.0.1:{endpoint.port}\n"
                '  - turn security on:             mode = "on" in [security] of the configuration file; then\n'
                "                                  penstock users add NAME --role admin, or penstock keys add\n"
                "  - accept it, on a network where everybody is trusted:  --allow-insecure"
            )
