"""The wheel, in a fresh environment: what it installs runs, and has the files that it needs.

Dependencies are not installed again: the new environment looks for them where those of the tests are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess

from penstock import __version__
from penstock.admin.console import read_files

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "scripts/wheel.py", "--pure", "--out", out], check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of one that has the wheel, and not the sources that the tests run on."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    assert uv is not None
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, venv], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
    options = ("--quiet", "--offline", "--no-deps", "--python")
    command = [uv, "pip", "install", *options, str(venv / "bin/python"), str(wheel)]
    subprocess.run(command, check=True)
    # A path only: .pth files of the other environment, of which one leads to the sources, are not read through it.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def run(environment: Path, *command: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [environment / command[0], *command[1:]],
        env=clean,
        cwd=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    assert wheel.name == f"penstock-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"penstock-{__version__}.dist-info/METADATA").decode())
    assert metadata["Version"] == __version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"spark", "otel"} <= set(metadata.get_all("Provides-Extra") or [])


def test_the_console_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name.removeprefix("penstock/admin/console/") for name in archive.namelist()}
    assert set(read_files()) <= inside


def test_what_it_installs_is_what_runs(environment: Path) -> None:
    assert __version__ in run(environment, "penstock", "--version")
    where = run(environment, "python", "-c", "import penstock; print(penstock.__file__)")
    assert where.startswith(str(environment.parent))
    files = "import penstock, pathlib; d = pathlib.Path(penstock.__file__).parent; print(*d.rglob('*'), sep='\\n')"
    installed = {Path(line).name for line in run(environment, "python", "-c", files).splitlines()}
    source = {path for path in (ROOT / "src/penstock").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    vectors = set((ROOT / "conformance/vectors").rglob("*.json"))
    assert {path.name for path in source | vectors} <= installed


def test_a_broker_of_it_takes_records_and_gives_them(environment: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, program=(str(environment / "python"), "-m", "penstock.cli.main")) as broker:
        server = broker.ready().address("rustlog")
        run(environment, "penstock", "topic", "create", "t", "--server", server)
        run(environment, "penstock", "produce", "t", "hello", "--server", server)
        assert "hello" in run(environment, "penstock", "consume", "t", "--server", server)
