"""The Java installation that Spark would use, and the message if there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

OLDEST = 17  # required by PySpark 4
PACKAGE = "openjdk-17-jre-headless"
HOW_TO_GET = f"""\
  Debian, Ubuntu:  sudo apt install {PACKAGE}
  Fedora:          sudo dnf install java-17-openjdk-headless
  macOS:           brew install openjdk@17
  elsewhere:       set JAVA_HOME to a Java {OLDEST} or newer"""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class Java(NamedTuple):
    path: str
    version: int


class JavaMissing(Exception):
    """There is no Java that Spark can use. The text says what was found, and how to install one."""

    def __init__(self, found: str) -> None:
        super().__init__(f"Spark needs Java {OLDEST} or newer, and {found}.\n{HOW_TO_GET}")
        self.found = found


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java that Spark's scripts would use: `JAVA_HOME`'s, else the first on PATH. Raises JavaMissing."""
    home = environment.get("JAVA_HOME")
    if home:
        path, origin = os.path.join(home, "bin", "java"), f"JAVA_HOME={home}"
        if not os.access(path, os.X_OK):
            raise JavaMissing(f"{origin} has no bin/java")
    else:
        found = shutil.which("java", path=environment.get("PATH", os.defpath))
        if found is None:
            raise JavaMissing("none was found on PATH")
        path = origin = found
    try:
        result = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{origin} does not run: {error}") from error
    version = major_version(result.stderr + result.stdout)
    if version is None:
        raise JavaMissing(f"{origin} does not say which version it is")
    if version < OLDEST:
        raise JavaMissing(f"{origin} is Java {version}")
    return Java(path, version)


def major_version(text: str) -> int | None:
    """From the output of `java -version`. Before 9, the second number was the major version: 1.8."""
    match = _VERSION.search(text)
    if match is None:
        return None
    first = int(match[1])
    return int(match[2]) if first == 1 and match[2] else first
