"""The policies of the broker, as the configuration says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.security.audit_event import AuditPolicy
from penstock.config.broker import audit_policy, table_policy
from penstock.config.layers import load, to_toml
from penstock.config.settings import ConfigError, SecuritySection, Settings, TablesSection


@pytest.mark.parametrize(
    ("mode", "audit", "enabled"),
    [("off", "auto", False), ("on", "auto", True), ("on", "off", False), ("off", "on", True)],
)
def test_audit_is_on_with_security_unless_configured_otherwise(mode: Any, audit: Any, enabled: bool) -> None:
    security = SecuritySection(mode=mode, audit=audit, audit_retention_seconds=60, audit_retention_bytes=1 << 20)
    assert audit_policy(Settings(security=security)) == AuditPolicy(enabled, 60, 1 << 20)
    assert audit_policy(Settings()) == AuditPolicy()


def test_credentials_of_an_object_store_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    options = ("AWS_REGION=here", f"AWS_SECRET_ACCESS_KEY.file={secret}", "azure_storage_sas_token=hunter3")
    policy = table_policy(Settings(tables=TablesSection(options=options)), "/data")
    assert policy.options == {
        "AWS_REGION": "here",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "azure_storage_sas_token": "hunter3",
    }
    shown = to_toml(load(file=None, environment={"PENSTOCK_TABLES__OPTIONS": ",".join(options)}, flags={}))
    assert "AWS_REGION=here" in shown
    assert f"AWS_SECRET_ACCESS_KEY.file={secret}" in shown
    assert "azure_storage_sas_token=(not shown)" in shown
    assert "hunter" not in shown
    with pytest.raises(ConfigError, match=r"tables\.options: X\.file: /nonexistent cannot be read"):
        table_policy(Settings(tables=TablesSection(options=("X.file=/nonexistent",))), "/data")
