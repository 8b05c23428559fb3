"""Builds wheels into dist/: `make wheel`. One that runs everywhere and, where there is a C compiler, one for this kind
of machine with the hot modules as machine code (`scripts/compile.py`). An installer takes the second where it fits.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILED = ROOT / "build" / "compiled"


def main() -> None:
    """`--pure`: only the one that runs everywhere. `--out DIR`: not into dist/."""
    arguments = sys.argv[1:]
    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    pure = build_pure(out)
    print(f"{pure}: runs everywhere")
    if "--pure" not in arguments:
        done = subprocess.run([sys.executable, str(ROOT / "scripts/compile.py")], check=False)
        if done.returncode == 0:
            print(f"{add_compiled(pure)}: has compiled modules, for this kind of machine and this Python")
        else:
            print("no wheel with compiled modules: see above")


def build_pure(out: Path) -> Path:
    # Without isolation and offline: what it is built with is installed, from the locked list.
    command = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("*-py3-none-any.whl")
    return wheel


def add_compiled(pure: Path) -> Path:
    """The same wheel with the extension modules beside their sources."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{version}-{version}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    wheel = pure.with_name(pure.name.replace("py3-none-any", tag))
    record: list[str] = []
    with zipfile.ZipFile(pure) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:

        def add(name: str, data: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            target.writestr(name, data)

        for name in source.namelist():
            data = source.read(name)
            if name.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
                data = text.replace("Tag: py3-none-any", f"Tag: {tag}").encode()
            if not name.endswith(".dist-info/RECORD"):
                add(name, data)
        for module in sorted(COMPILED.rglob("*.so")):
            add(str(module.relative_to(COMPILED)), module.read_bytes())
        (listed,) = [name for name in source.namelist() if name.endswith(".dist-info/RECORD")]
        target.writestr(listed, "\n".join([*record, f"{listed},,", ""]))
    return wheel


if __name__ == "__main__":
    main()
