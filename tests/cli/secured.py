"""A broker with security on, and the command line as its administrator, as a reader, and as nobody, from elsewhere: no
data directory, another working directory, another home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, Done, penstock

SECURED = {"PENSTOCK_SECURITY__MODE": "on"}


class Secured:
    """A broker's address, and files with the passwords of `admin` and `reader`."""

    def __init__(self, server: str, elsewhere: Path) -> None:
        self.server = server
        self.elsewhere = elsewhere

    def run(self, user: str | None, *arguments: str, stdin: str = "") -> Done:
        login = {} if user is None else {"PENSTOCK_USER": user, "PENSTOCK_PASSWORD_FILE": str(self.elsewhere / user)}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.elsewhere)
            return penstock(
                *arguments,
                stdin=stdin,
                PENSTOCK_SERVER=self.server,
                HOME=str(self.elsewhere),
                XDG_CONFIG_HOME=str(self.elsewhere),
                **login,
            )

    def admin(self, *arguments: str, stdin: str = "") -> str:
        """The reply to an administrator's request, which must have succeeded."""
        done = self.run("admin", *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def secured(path: Path, *flags: str) -> Iterator[Secured]:
    data, elsewhere = path / "data", path / "elsewhere"
    elsewhere.mkdir()
    for name, role in (("admin", "admin"), ("reader", "consumer")):
        (elsewhere / name).write_text(f"{name} has a long password\n")
        done = penstock(
            *("users", "add", name, "--role", role, "--password-stdin", "--data-dir", str(data)),
            stdin=(elsewhere / name).read_text(),
        )
        assert done.returncode == 0, done.stderr
    with BrokerProcess(data, "--durability", "written", *flags, **SECURED) as broker:
        yield Secured(broker.ready().address("rustlog"), elsewhere)
