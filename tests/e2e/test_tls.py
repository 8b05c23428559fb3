"""The lowest version of TLS, at every door of a running broker that has TLS over TCP, and keys that others can read."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock
from tests.transport.certificates import Authority

DOORS = ("rustlog", "blipmq", "flymq", "kimberlite", "http", "flight")


def agreed(address: tuple[str, int], authority: Authority, version: ssl.TLSVersion) -> bool:
    """Whether a client that speaks this version only is taken."""
    context = ssl.create_default_context(cafile=authority.path)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])  # which gRPC wants; the others do not mind
    try:
        with (
            socket.create_connection(address, 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            return tls.version() is not None
    except (ssl.SSLError, ConnectionResetError):
        return False


@pytest.mark.parametrize("lowest", ["1.3", "1.2"])
def test_every_door_has_the_lowest_version_that_is_configured(tmp_path: Path, lowest: str) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server")
    os.chmod(server.key, 0o644)
    options = {"PENSTOCK_TLS__CERT": server.cert, "PENSTOCK_TLS__KEY": server.key}
    if lowest == "1.2":  # 1.3 is what there is without a word
        options["PENSTOCK_TLS__MIN_VERSION"] = lowest
    with BrokerProcess(tmp_path / "data", "--listen", "flight=127.0.0.1:0", **options) as broker:
        broker.ready()
        for door in DOORS:
            assert agreed(broker.endpoint(door), authority, ssl.TLSVersion.TLSv1_3), door
            assert agreed(broker.endpoint(door), authority, ssl.TLSVersion.TLSv1_2) is (lowest == "1.2"), door
        broker.process.terminate()
        _, _, err = broker.finish()
    assert f"{server.key} has the mode 0644" in err


def test_other_versions_are_refused_with_the_list_and_open_keys_are_told_by_config(tmp_path: Path) -> None:
    key = tmp_path / "server.key"
    key.write_text("secret")
    key.chmod(0o640)
    options = {"PENSTOCK_TLS__CERT": "x.crt", "PENSTOCK_TLS__KEY": str(key)}
    done = penstock("config", PENSTOCK_TLS__MIN_VERSION="1.1")
    assert done.returncode == 1 and "`tls.min_version`" in done.stderr and "one of 1.3, 1.2" in done.stderr
    done = penstock("config", **options)
    assert 'min_version = "1.3"' in done.stdout and done.stderr == ""
    key.chmod(0o604)
    assert f"warning: tls.key: {key} has the mode 0604" in penstock("config", **options).stderr
