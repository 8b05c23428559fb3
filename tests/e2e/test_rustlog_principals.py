"""The ways in for RustLog's clients where security is on: a listener with a principal, and a client's certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess
from tests.transport.certificates import Authority

from penstock.clients.rustlog import Client, RustLogError

CONFIG = """
[security]
mode = "on"
grants = [
    {{ principal = "ingest", permissions = ["create", "write", "read"], topic = "logs*" }},
    {{ principal = "cert:billing", permissions = ["read"], topic = "logs" }},
    {{ principal = "watch", permissions = ["metrics"], tenant = "*", namespace = "*" }},
]

[listen]
principals = ["rustlog=ingest"]

[tls]
cert = "{cert}"
key = "{key}"
client_ca = "{authority}"
"""


def test_rustlog_with_security_on_has_two_ways_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, billing = authority.issue("server"), authority.issue("billing")
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG.format(cert=server.cert, key=server.key, authority=authority.path))
    with BrokerProcess(tmp_path / "data", "--config", str(config)) as broker:
        broker.ready()
        host, port = broker.endpoint("rustlog")
        for dialect in ("json", "binary"):
            with Client(host, port, dialect=dialect) as client:
                client.create_topic(f"logs-{dialect}", 1)
                with pytest.raises(RustLogError, match="'ingest' may not"):
                    client.create_topic("orders", 1)
        with Client(host, port) as client:
            client.create_topic("logs", 1)
            client.produce("logs", 0, [b"one"])
        # The same bytes at another port prove nothing.
        with Client(*broker.endpoint("flymq")) as guest, pytest.raises(RustLogError, match="'anonymous' may not"):
            guest.produce("logs", 0, [b"two"])
        tls = ssl.create_default_context(cafile=authority.path)
        tls.load_cert_chain(billing.cert, billing.key)
        for door in ("rustlog", "flymq"):
            with Client("localhost", broker.endpoint(door)[1], tls=tls) as client:
                assert [record.payload for record in client.fetch("logs", 0, offset=0).records] == [b"one"]
                with pytest.raises(RustLogError, match="'cert:billing' may not"):
                    client.produce("logs", 0, [b"three"])
