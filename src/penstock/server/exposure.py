"""Exposure: without security a broker listens on loopback only, unless the operator accepts the risk. Also warns about
files with secrets that other users can access."""

from __future__ import annotations

import os
import stat
from typing import Final

from penstock.config.settings import SecuritySection, Settings
from penstock.server.errors import StartFailed
from penstock.transport.tcp_listener import BindPlan, is_loopback

FELIX_KEY: Final = os.path.join("certificates", "felix.key")  # in the data directory


def refuse_exposed_doors(security: SecuritySection, plan: BindPlan) -> None:
    """Without security, every client is administrator; so only this machine may connect. Raises StartFailed."""
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


def exposed_secrets(settings: Settings, data_dir: str) -> list[str]:
    """Warnings, with remedies, for files with secrets that can be read by users outside their group, or changed by
    anyone but their owner. Missing files are reported elsewhere."""
    secrets = {"tls.key": settings.tls.key, "the key of Felix's own certificate": os.path.join(data_dir, FELIX_KEY)}
    secrets |= {f"security.token_keys ({path})": path for path in settings.security.token_keys}
    warnings = []
    for what, path in secrets.items():
        mode = _mode(os.path.abspath(os.path.expanduser(path))) if path else 0
        if mode & (stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
            warnings.append(
                f"{what}: {os.path.abspath(os.path.expanduser(path))} has the mode {mode:04o}: other users of this "
                f"machine can {'read' if mode & stat.S_IROTH else 'change'} it. Allow only its owner: chmod 600"
            )
    return warnings


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0
