"""The block that the operator reads at the start."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.settings import SecuritySection, Settings
from penstock.server.banner import _audit


@pytest.mark.parametrize(
    ("security", "text"),
    [
        ({}, 'off (while security is off; security.audit = "on" keeps one)'),
        ({"mode": "on"}, "on (kept for 90 days; penstock audit)"),
        ({"audit": "on", "audit_retention_seconds": 43_200.0}, "on (kept for 0.5 days; penstock audit)"),
        ({"mode": "on", "audit": "off"}, "off (by choice)"),
    ],
)
def test_it_says_whether_there_is_an_audit_log(security: dict[str, Any], text: str) -> None:
    assert _audit(Settings(security=SecuritySection(**security))) == text
