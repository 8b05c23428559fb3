"""The policies of the broker, as the configuration says them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.security.audit_event import AuditPolicy
from penstock.config.broker import audit_policy
from penstock.config.settings import SecuritySection, Settings


@pytest.mark.parametrize(
    ("mode", "audit", "enabled"),
    [("off", "auto", False), ("on", "auto", True), ("on", "off", False), ("off", "on", True)],
)
def test_audit_is_on_with_security_unless_configured_otherwise(mode: Any, audit: Any, enabled: bool) -> None:
    security = SecuritySection(mode=mode, audit=audit, audit_retention_seconds=60, audit_retention_bytes=1 << 20)
    assert audit_policy(Settings(security=security)) == AuditPolicy(enabled, 60, 1 << 20)
    assert audit_policy(Settings()) == AuditPolicy()
