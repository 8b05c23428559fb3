"""How all tests run: property tests without deadlines, because a shared machine is slow at times, and in CI always
with the same examples."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("penstock", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("penstock")
