"""What the configuration says about the doors."""

from __future__ import annotations

import msgspec
import pytest

from penstock.config.settings import ConfigError, KimberliteSection, Settings
from penstock.server.doors import BUILT, FLIGHT, quic_door, stream_doors, tenant_names


def test_every_door_that_is_built_can_be_opened() -> None:
    assert set(stream_doors(Settings())) | {quic_door(Settings()).name} == set(BUILT) - {FLIGHT}


def test_tenants_get_names() -> None:
    assert tenant_names(("1=acme", "42=default", "7=7")) == {1: "acme", 42: "default", 7: "7"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("1=a b",), "Tenant name"),
        (("1=",), "Tenant name"),
        (("1=acme", "1=globex"), "there already"),
        (("1=acme", "2=acme"), "there already"),
        (("1=acme", "01=globex"), "there already"),
        (("1=2",), "tenant with this number"),
        ((f"{1 << 64}=acme",), "64 bits"),
    ],
)
def test_names_that_would_mix_tenants_up_are_refused(given: tuple[str, ...], said: str) -> None:
    settings = msgspec.structs.replace(Settings(), kimberlite=KimberliteSection(tenants=given))
    with pytest.raises(ConfigError, match=said):
        stream_doors(settings)
