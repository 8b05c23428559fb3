"""The command line at a terminal and in a pipe: widths, Ctrl-C, readers that go away, colours, progress bars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.secured import Secured, secured
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal
from tests.launcher import COMMAND, WITHOUT_SETTINGS, penstock

ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("terminal")) as running:
        running.admin("topic", "create", "kept")
        running.admin("produce", "kept", *(f"value {number}" for number in range(20)))
        running.admin("topic", "create", "asked")
        running.admin("produce", "asked", *(f"value {number}" for number in range(20)))
        running.admin("topic", "create", "a-topic-with-a-long-name-" + "x" * 100)
        yield running


def environment(broker: Secured, **more: str) -> dict[str, str]:
    return {
        "PENSTOCK_SERVER": broker.server, "PENSTOCK_USER": "admin", "HOME": str(broker.elsewhere),
        "PENSTOCK_PASSWORD_FILE": str(broker.elsewhere / "admin"), "XDG_CONFIG_HOME": str(broker.elsewhere), **more,
    }  # fmt: skip


def terminal(broker: Secured, *arguments: str, columns: int = 80, **more: str) -> Terminal:
    return Terminal(*arguments, columns=columns, environment=environment(broker, **more), cwd=str(broker.elsewhere))


def test_ctrl_c_at_a_question_changes_nothing(broker: Secured) -> None:
    with terminal(broker, "topic", "delete", "asked") as shown:
        assert "Delete asked with 20 record(s)?" in shown.until("[y/N]:")
        shown.interrupt()
        assert shown.end() == 130 and "Traceback" not in shown.text
    assert "asked" in broker.admin("topic", "list")


@pytest.mark.parametrize(("answer", "code", "said"), [("n\n", 1, "nothing was changed"), (CTRL_D, 1, "nobody answers")])
def test_any_answer_but_yes_changes_nothing(broker: Secured, answer: str, code: int, said: str) -> None:
    with terminal(broker, "topic", "delete", "kept") as shown:
        shown.until("[y/N]:")
        shown.press(answer)
        assert shown.end() == code and said in shown.text
    assert "kept" in broker.admin("topic", "list")


def test_yes_at_a_question_does_it(broker: Secured) -> None:
    broker.admin("topic", "create", "gone")
    with terminal(broker, "topic", "delete", "gone") as shown:
        shown.until("[y/N]:")
        shown.press("y\n")
        assert shown.end() == 0 and "deleted gone" in shown.text


def test_a_password_is_asked_for_and_not_shown(broker: Secured) -> None:
    with terminal(broker, "topic", "list", PENSTOCK_PASSWORD_FILE="") as shown:
        shown.until("Password of admin:")
        shown.press("admin has a long password\n")
        assert shown.end() == 0 and "kept" in shown.text and "long password" not in shown.shown


def test_ctrl_c_at_a_password_ends_it(broker: Secured) -> None:
    with terminal(broker, "topic", "list", PENSTOCK_PASSWORD_FILE="") as shown:
        shown.until("Password of admin:")
        shown.interrupt()
        assert shown.end() == 130 and "Traceback" not in shown.text


INTERRUPTED = (
    (("consume", "kept", "--follow", "--from", "earliest"), "value 19"),
    (("top", "--interval", "0.2"), "records/s"),
    (("bench", "--seconds", "600"), "producing"),
)


@pytest.mark.parametrize(("command", "seen"), INTERRUPTED, ids=[each[0] for each, _ in INTERRUPTED])
def test_ctrl_c_ends_what_goes_on(broker: Secured, command: tuple[str, ...], seen: str) -> None:
    with terminal(broker, *command) as shown:
        shown.until(seen)
        shown.press(CTRL_C)
        assert shown.end() == 130, shown.text
        assert "Traceback" not in shown.text


def test_ctrl_c_ends_the_input_of_produce(broker: Secured) -> None:
    with terminal(broker, "produce", "kept") as shown:
        shown.press("from the keyboard\n")
        shown.until("kept/0: offset")
        shown.interrupt()
        assert shown.end() == 130, shown.text
        assert "Traceback" not in shown.text


def test_the_shell_of_sql_drops_a_statement_at_ctrl_c_and_leaves_at_ctrl_d(broker: Secured) -> None:
    with terminal(broker, "sql") as shown:
        shown.until("penstock> ")
        shown.press("SELECT 1 +\n")
        shown.until("...> ")
        shown.interrupt()
        shown.shown = ""
        shown.until("penstock> ")
        shown.press(CTRL_D)
        assert shown.end() == 0 and "Traceback" not in shown.text


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "command",
    [("topic", "list"), ("status",), ("consume", "-h")],
    ids=" ".join,
)
def test_lines_are_as_wide_as_the_terminal(broker: Secured, command: tuple[str, ...], columns: int) -> None:
    with terminal(broker, *command, columns=columns) as shown:
        assert shown.end() == 0, shown.text
    widest = max(len(line) for line in shown.text.split("\n"))
    assert widest <= columns, shown.text
    if command == ("topic", "list"):
        assert widest > columns - 20  # a long name uses the room that there is


def test_a_long_name_is_folded_and_not_cut_off(broker: Secured) -> None:
    with terminal(broker, "topic", "list") as shown:
        assert shown.end() == 0
    assert shown.text.count("x") >= 100


def piped(broker: Secured, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=broker.elsewhere, timeout=60, check=False,
        env=WITHOUT_SETTINGS | environment(broker, TERM="xterm-256color", **more),
    )  # fmt: skip


COLOURFUL = (
    (("topic", "list"), 0),
    (("consume", "kept"), 0),
    (("topic", "describe", "nowhere"), 1),
)


@pytest.mark.parametrize(("command", "code"), COLOURFUL, ids=[" ".join(each) for each, _ in COLOURFUL])
def test_colours_are_for_terminals(broker: Secured, command: tuple[str, ...], code: int) -> None:
    for name, value, coloured in (("A", "", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)):
        with Terminal(*command, environment=environment(broker) | {name: value}) as shown:
            assert shown.end() == code
        assert (ESCAPE in shown.shown) is coloured, (name, shown.shown)
    done = piped(broker, *command)
    assert done.returncode == code and ESCAPE not in done.stdout + done.stderr


def test_a_reader_that_goes_away_ends_it_quietly(broker: Secured) -> None:
    broker.admin("topic", "create", "flood")
    broker.admin("produce", "flood", stdin=("y" * 1000 + "\n") * 900)
    for command in (("consume", "flood"), ("consume", "flood", "-o", "jsonl"), ("--help",)):
        line = " ".join((*COMMAND, *command))
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line} | head -1"], capture_output=True, text=True, timeout=60,
            env=WITHOUT_SETTINGS | environment(broker), check=False,
        )  # fmt: skip
        assert done.stdout.count("\n") == 1 and done.stderr == "", done


@pytest.fixture(scope="module")
def large(broker: Secured) -> Path:
    path = broker.elsewhere / "large"
    path.write_bytes((b"z" * 99 + b"\n") * 60_000)
    broker.admin("topic", "create", "large")
    broker.admin("topic", "create", "copy")
    return path


def test_progress_is_shown_on_a_terminal_and_nowhere_else(broker: Secured, large: Path, tmp_path: Path) -> None:
    stopped = ("--data-dir", str(tmp_path / "stopped"))
    assert penstock("users", "add", "x", "--generate", *stopped).returncode == 0
    login = ("--source-secret-file", "admin", "--destination-secret-file", "admin")
    url = f"penstock://admin@{broker.server}"
    commands = (
        ("produce", "large", "--file", str(large)),
        ("consume", "large", "--to", "60000"),
        ("mirror", url, url, "--topic", "kept", "--prefix", "mirrored-", *login),
        ("log", "verify", *stopped),
        ("backup", "create", str(tmp_path / "backup"), *stopped),
        ("backup", "verify", str(tmp_path / "backup")),
        ("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "restored")),
        ("conformance", "--protocol", "rustlog"),
    )
    with open(os.devnull, "wb") as nowhere:
        for command in commands:
            with Terminal(
                *command, environment=environment(broker), cwd=str(broker.elsewhere), stdout=nowhere.fileno()
            ) as shown:
                assert shown.end() == 0, shown.text
            assert "━" in shown.text and "%" in shown.text, (command, shown.text)
    for command in commands[:2]:
        done = piped(broker, *command)
        assert done.returncode == 0 and done.stderr == ""
