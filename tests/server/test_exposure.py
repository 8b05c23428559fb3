"""Without security, only this machine may connect, unless the operator says otherwise. Secrets that others can read are
told."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.settings import SecuritySection, Settings, TlsSection
from penstock.server.errors import StartFailed
from penstock.server.exposure import exposed_secrets, refuse_exposed_doors
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


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, False), (0o640, False), (0o400, False), (0o644, True), (0o660, True), (0o602, True)]
)
def test_a_key_that_others_can_read_or_change_is_told_with_its_mode(tmp_path: Path, mode: int, told: bool) -> None:
    key, secret = tmp_path / "server.key", tmp_path / "issuer.key"
    own = tmp_path / "data" / "certificates" / "felix.key"
    own.parent.mkdir(parents=True)
    for path in (key, secret, own):
        path.write_text("secret")
        path.chmod(mode)
    settings = Settings(
        tls=TlsSection(cert="server.crt", key=str(key)), security=SecuritySection(token_keys=(str(secret),))
    )
    found = exposed_secrets(settings, str(tmp_path / "data"))
    assert len(found) == (3 if told else 0)
    for path, warning in zip((key, own, secret), found, strict=False):
        assert f"{path} has the mode {mode:04o}" in warning and "chmod 600" in warning


def test_keys_that_are_not_there_are_no_matter_of_exposure(tmp_path: Path) -> None:
    assert exposed_secrets(Settings(tls=TlsSection(cert="x", key="/nowhere/key")), str(tmp_path)) == []
