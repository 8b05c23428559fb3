"""Without security, only this machine may connect, unless the operator says otherwise."""

from __future__ import annotations

import pytest

from penstock.config.settings import SecuritySection
from penstock.server.errors import StartFailed
from penstock.server.exposure import refuse_exposed_doors
from penstock.transport.endpoint import Endpoint
from penstock.transport.tcp_listener import BindAddress, BindPlan


def plan(*hosts: str) -> BindPlan:
    return BindPlan(tuple(BindAddress(Endpoint(host, 9092), ("rustlog", "flymq")) for host in hosts), {})


def test_loopback_is_for_everybody_on_this_machine() -> None:
    refuse_exposed_doors(SecuritySection(), plan("127.0.0.1", "::1"))


def test_an_open_door_without_security_is_refused_with_three_ways_out() -> None:
    with pytest.raises(StartFailed) as refused:
        refuse_exposed_doors(SecuritySection(), plan("127.0.0.1", "0.0.0.0"))
    said = str(refused.value)
    assert said.startswith("rustlog would be open to the network at 0.0.0.0:9092, and security is off")
    assert "--listen rustlog=127.0.0.1:9092" in said and 'mode = "on"' in said and "--allow-insecure" in said


@pytest.mark.parametrize("security", [SecuritySection(mode="on"), SecuritySection(insecure_ok=True)])
def test_with_security_or_by_the_operators_word_it_may_be_open(security: SecuritySection) -> None:
    refuse_exposed_doors(security, plan("0.0.0.0", "192.168.1.1"))
