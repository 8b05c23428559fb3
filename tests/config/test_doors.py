"""`kimberlite.tenants`: numbers of tenants and their names."""

from __future__ import annotations

import msgspec
import pytest

from penstock.config.doors import kimberlite_settings, tenant_names
from penstock.config.settings import ConfigError, KimberliteSection, Settings


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
        kimberlite_settings(settings)
