"""How all tests run: property tests without deadlines, because a shared machine is slow at times, and in CI always
with the same examples."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("penstock", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("penstock")

# Every Spark that a test starts, in whatever process, takes what it is not told from here.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark" / "conf"))
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
