"""The root of the command line: what it lists, what it imports, and how it takes mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.launcher import WITHOUT_SETTINGS, BrokerProcess, penstock
from typer.main import get_command

from penstock.cli.main import SECTIONS, app

ENTRIES = {name: entry for _, part in SECTIONS for name, entry in part.items()}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_command_of_the_table_has_help(name: str) -> None:
    done = penstock(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: penstock {name} ")
    assert "--install-completion" not in done.stdout  # the root has it, once


def test_the_help_of_the_root_lists_all_commands_under_their_headings() -> None:
    said = penstock("--help").stdout
    for heading, entries in SECTIONS:
        assert f"\n{heading}:\n" in said
        for name, entry in entries.items():
            assert f"  {name} " in said and entry.summary.split()[0] in said


def test_the_help_of_the_root_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['penstock', '--help']\n"
        "from penstock.cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print('loaded', *sorted(m for m in sys.modules if m.startswith('penstock.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()[-1]
        == "loaded penstock.cli penstock.cli.examples penstock.cli.lazy_group penstock.cli.main"
    )


def test_a_command_that_is_misspelt_gets_a_suggestion() -> None:
    done = penstock("topc", "list")
    assert done.returncode == 2
    assert "No such command 'topc'. Did you mean 'topic', 'top'?" in done.stderr


def test_a_command_is_imported_once() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == set(ENTRIES) and len(commands) == len(ENTRIES)
    assert commands["version"] is commands["version"]
    with pytest.raises(KeyError):
        commands["nonsense"]


def test_shell_completion_knows_the_commands() -> None:
    done = penstock(
        _PENSTOCK_COMPLETE="complete_bash", COMP_WORDS="penstock to", COMP_CWORD="1", _TYPER_COMPLETE_ARGS="penstock to"
    )
    assert done.stdout.split() == ["topic", "token", "top"]


HEAVY = (
    "click", "deltalake", "duckdb", "numpy", "pandas", "penstock.broker.broker",
    "penstock.clients.blipmq", "penstock.clients.felix", "penstock.clients.flymq", "penstock.config.settings",
    "pyarrow", "pydantic", "pyspark", "rich", "sqlglot",
)  # fmt: skip


@pytest.mark.parametrize("command", ["--version", "--help", "topic --help", "topic list", "produce --help"])
def test_light_commands_load_nothing_heavy(command: str, tmp_path: Path) -> None:
    """They start in under 0.3 s on a quiet machine because of what they do not import."""
    code = (
        f"import sys; sys.argv = ['penstock', *{command.split()!r}]\n"
        "from penstock.cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        f"print('loaded', *sorted(m for m in sys.modules if m in {HEAVY!r}))"
    )
    environment = WITHOUT_SETTINGS | {"HOME": str(tmp_path)}

    def run() -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", code]
        return subprocess.run(program, capture_output=True, text=True, env=environment, check=False)

    if command == "topic list":
        with BrokerProcess(tmp_path / "data", "--durability", "memory") as broker:
            environment["PENSTOCK_SERVER"] = broker.ready().address("rustlog")
            done = run()
    else:
        done = run()
    assert done.stderr == "" and done.stdout.splitlines()[-1] == "loaded", done


def completed(shell: str, line: str, **environment: str) -> str:
    words = {"bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}}
    return penstock(
        _PENSTOCK_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args",
        **words.get(shell, {}), **environment,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_topics(shell: str, tmp_path: Path) -> None:
    assert "describe" in completed(shell, "penstock topic d")
    assert "--retention" in completed(shell, "penstock topic create orders --ret")
    with BrokerProcess(tmp_path / "data", "--durability", "memory") as broker:
        server = broker.ready().address("rustlog")
        for topic in ("orders", "order-lines", "clicks"):
            penstock("topic", "create", topic, "--server", server)
        found = completed(shell, "penstock consume ord", PENSTOCK_SERVER=server)
        assert "orders" in found and "order-lines" in found and "clicks" not in found
        assert "orders" in completed(shell, f"penstock topic describe --server {server} ord")
    assert "orders" not in completed(shell, "penstock consume ord", PENSTOCK_SERVER="127.0.0.1:1")
    asked = completed(shell, "penstock consume ord", PENSTOCK_SERVER="127.0.0.1:1", PENSTOCK_USER="ada")
    assert "assword" not in asked and "ord" not in asked
