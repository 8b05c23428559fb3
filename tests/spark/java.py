"""Tests that start Spark need Java; elsewhere they are skipped, and say so."""

from __future__ import annotations

import os

import pytest

from penstock.spark.pipelines.java import PACKAGE, JavaMissing, find_java

REASON = f"Spark needs Java 17 (Debian: {PACKAGE}), and there is none on this machine"


def java_is_there() -> bool:
    try:
        find_java(os.environ)
    except JavaMissing:
        return False
    return True


needs_java = pytest.mark.skipif(not java_is_there(), reason=REASON)
