"""The code blocks of documents: found, run, and compared with what they print.

A block that no test runs says why, in a comment above it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.launcher import WITHOUT_SETTINGS, penstock

from penstock.config.layers import load

PORTS: Final[dict[str, tuple[str, ...]]] = {
    "9092": ("rustlog", "flymq"),
    "5555": ("blipmq",),
    "5432": ("kimberlite",),
    "5000": ("felix",),
    "8080": ("http",),
    "8815": ("flight",),
    "9096": ("flymq_admin",),
}
"""Ports that documents name → the doors that are there."""

RUN: Final = ("python", "sh", "console", "toml")  # languages of blocks that do something
ON_PATH: Final = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
SECONDS: Final = 120
FAILURE: Final = "penstock: "  # every message of a command that fails begins like this
SHELL: Final = re.compile(r"[|<>&;`\\]|\$\(")  # what takes a shell

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_MARK: Final = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SAID: Final = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)


class Snippet(NamedTuple):
    language: str
    text: str
    line: int
    why_not: str = ""  # it is not run


def snippets(page: Path, after: str = "", before: str = "") -> list[Snippet]:
    """The code blocks of a page, in their order; of the part after or before a text, if one is given."""
    text = page.read_text()
    start = text.index(after) if after else 0
    end = text.index(before) if before else len(text)
    found = []
    for block in _FENCE.finditer(text, start, end):
        line = text.count("\n", 0, block.start()) + 1
        mark = _MARK.search(text[: block.start()])
        inner = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        found.append(Snippet(block["language"], inner, line, mark[1] if mark else ""))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether this is what was printed. `…` stands for anything; white space at the ends of lines does not count."""
    pattern = ".*".join(map(re.escape, _trimmed(expected).split("…")))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip()


@dataclass
class Reader:
    """Somebody who follows a page, in a directory, beside a broker whose ports are not the usual ones."""

    directory: Path
    ports: Mapping[str, int]
    environment: Mapping[str, str]
    names: dict[str, Any] = field(default_factory=dict)

    def follow(self, page: list[Snippet]) -> None:
        for snippet in page:
            if snippet.why_not or snippet.language not in RUN:
                continue
            text = self._with_ports(snippet.text)
            if snippet.language == "python":
                self._python(text, snippet.line)
            elif snippet.language == "toml":
                tomllib.loads(text)
                (self.directory / "penstock.toml").write_text(text)
                load(file=str(self.directory / "penstock.toml"))
            elif snippet.language == "sh":
                for line in [text] if SHELL.search(text) else text.splitlines():
                    self.shell(line)
            else:
                for command, expected in _COMMAND.findall(text):
                    self.command(command, expected)

    def command(self, command: str, expected: str) -> None:
        """A command and what the page says that it prints; nothing: that is not said."""
        if command.startswith("alias "):
            return
        fails = expected.startswith(FAILURE) or command.endswith("# exit code 1")
        done = self.shell(command, fails=fails)
        assert not expected or matches(expected, done), (command, expected, done)

    def shell(self, command: str, *, fails: bool = False) -> str:
        """Run it, and return what a terminal would show."""
        environment = {"XDG_CONFIG_HOME": str(self.directory), **self.environment}
        if command.startswith("penstock ") and not SHELL.search(command):  # in this process: a new one takes its time
            with contextlib.chdir(self.directory):
                quick = penstock(*shlex.split(command, comments=True)[1:], **environment)
            code, shown = quick.returncode, quick.stdout + quick.stderr
        else:
            done = subprocess.run(
                ["bash", "-c", f"set -e -o pipefail\n{command}"],
                cwd=self.directory,
                env=WITHOUT_SETTINGS | ON_PATH | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
            )
            code, shown = done.returncode, done.stdout
        assert (code != 0) is fails, (command, shown)
        return shown

    def _python(self, text: str, line: int) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.directory):
            exec(compile("\n" * line + text, "snippet", "exec"), self.names)
        for said in _SAID.findall(text):
            assert said in printed.getvalue().splitlines(), (said, printed.getvalue())

    def _with_ports(self, text: str) -> str:
        for port, used in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(used), text)
        return text
